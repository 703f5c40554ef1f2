package peer

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"mime"
	"net/http"
	"slices"
	"time"

	"github.com/millbridge/millbridge/handlers/configgroup"
	"github.com/millbridge/millbridge/handlers/webhook"
	"github.com/millbridge/millbridge/schema"
)

// Defaults of a [ReceiverConfig].
const (
	DefaultMaxBytes    = 1 << 20
	DefaultConcurrency = 64
	DefaultTimeout     = 30 * time.Second
)

// A Sender is a bridge that may send.
type Sender struct {
	// Secrets verify what it sends: shared secrets (whsec_...) or public keys (whpk_...). During a change both the old and
	// the new one are here.
	Secrets []configgroup.Secret
	// Allow is what it may send, as jobs.crm.> or events.public.order.*; see [CheckAllow].
	Allow []string
}

// A ReceiverConfig says who may send what. Origin, Senders and Store are required.
type ReceiverConfig struct {
	// Origin is what this bridge is called where loops are looked for: the origin of its own targets.
	Origin string
	// Senders are the bridges that may send, by the origin that they send with.
	Senders map[string]Sender
	// Store keeps what is received; see [StoreIn].
	Store Store
	// MaxBytes is how many bytes a request may have.
	MaxBytes int64
	// Concurrency is how many requests are taken at the same time; others are asked to come again.
	Concurrency int
	// Timeout is what reading a request and storing its message may take, each.
	Timeout time.Duration
	// Logger gets a line per message at level Debug, and one at level Warn for each that is refused; nil logs nothing.
	Logger *slog.Logger
}

// Validate reports everything that is wrong with c.
func (c ReceiverConfig) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if schema.CheckTarget(c.Origin) != nil {
		bad("origin: %s", wantName)
	}
	if c.Store == nil {
		bad("store: there is none")
	}
	if c.MaxBytes < 0 {
		bad("max_bytes: is %d, must not be negative", c.MaxBytes)
	}
	if c.Concurrency < 0 {
		bad("concurrency: is %d, must not be negative", c.Concurrency)
	}
	if c.Timeout < 0 {
		bad("timeout: is %v, must not be negative", c.Timeout)
	}
	if len(c.Senders) == 0 {
		bad("peers: there are none")
	}
	for _, name := range slices.Sorted(maps.Keys(c.Senders)) {
		if err := c.Senders[name].check(name); err != nil {
			errs = append(errs, err)
		}
		if name == c.Origin {
			bad("peers.%s: is this bridge itself", name)
		}
	}
	return errors.Join(errs...)
}

func (s Sender) check(name string) error {
	var errs []error
	bad := func(key, format string, args ...any) {
		errs = append(errs, fmt.Errorf("peers.%s%s: %s", schema.OneLine(name), key, fmt.Sprintf(format, args...)))
	}
	if schema.CheckTarget(name) != nil {
		bad("", wantName)
	}
	if len(s.Secrets) == 0 {
		bad(".secrets", "there are none")
	}
	for i, secret := range s.Secrets {
		if err := webhook.Verify(secret.Reveal(), nil, nil, 0); !errors.Is(err, webhook.ErrNotGenuine) {
			bad(".secrets", "number %d: %v", i+1, err)
		}
	}
	if len(s.Allow) == 0 {
		bad(".allow", "is empty: nothing would be taken")
	}
	for _, entry := range s.Allow {
		if !CheckAllow(entry) {
			bad(".allow", "%q is neither jobs.<target>.<action> nor events.<visibility>.<name>, with \"*\" for a token and a final \">\"", schema.OneLine(entry))
		}
	}
	return errors.Join(errs...)
}

// Receiver is the HTTP handler that takes the messages of other bridges. It is safe for concurrent use.
type Receiver struct {
	cfg   ReceiverConfig
	slots chan struct{}
}

// NewReceiver returns a receiver. Serve it behind TLS: requests are signed, not secret.
func NewReceiver(cfg ReceiverConfig) (*Receiver, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("receive: %w", err)
	}
	cfg.MaxBytes = cmp.Or(cfg.MaxBytes, DefaultMaxBytes)
	cfg.Timeout = cmp.Or(cfg.Timeout, DefaultTimeout)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Receiver{cfg: cfg, slots: make(chan struct{}, cmp.Or(cfg.Concurrency, DefaultConcurrency))}, nil
}

// refusal is an answer other than success. Its reason is told to the sender.
type refusal struct {
	status int
	reason string
}

// ServeHTTP takes one message and answers when it is stored.
func (r *Receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	select {
	case r.slots <- struct{}{}:
		defer func() { <-r.slots }()
	default: // without Retry-After: the sender's own waits become longer, and are not over while a database stands still
		http.Error(w, "busy", http.StatusServiceUnavailable)
		return
	}
	from := schema.OneLine(req.Header.Get(HeaderFrom))
	env, no := r.read(w, req)
	var existing bool
	if no == nil {
		existing, no = r.store(req.Context(), from, env)
	}
	if no != nil {
		r.cfg.Logger.WarnContext(req.Context(), "message of a peer refused", "from", from, "id", env.ID, "status", no.status, "reason", no.reason)
		http.Error(w, no.reason, no.status)
		return
	}
	r.cfg.Logger.DebugContext(req.Context(), "message of a peer stored", "from", from, "id", env.ID, "duplicate", existing)
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(Stored{ID: env.ID, Duplicate: existing}) // a sender that is gone comes again
}

// read returns the message of a request that is genuine, allowed and no loop.
func (r *Receiver) read(w http.ResponseWriter, req *http.Request) (env schema.Envelope, no *refusal) {
	if req.Method != http.MethodPost {
		return env, &refusal{http.StatusMethodNotAllowed, "POST messages here"}
	}
	if kind, _, err := mime.ParseMediaType(req.Header.Get("Content-Type")); err != nil || kind != ContentType {
		return env, &refusal{http.StatusUnsupportedMediaType, "want " + ContentType}
	}
	from := req.Header.Get(HeaderFrom)
	sender, known := r.cfg.Senders[from]
	if !known { // before its body is read
		return env, &refusal{http.StatusUnauthorized, notGenuine}
	}
	body, no := r.body(w, req)
	if no != nil {
		return env, no
	}
	if !sender.signed(req.Header, body) {
		return env, &refusal{http.StatusUnauthorized, notGenuine}
	}
	env, err := Decode(body)
	switch {
	case err != nil:
		return env, &refusal{http.StatusUnprocessableEntity, schema.OneLine(err.Error())}
	case env.ID != req.Header.Get(webhook.HeaderID):
		return env, &refusal{http.StatusUnprocessableEntity, "the message has another id than the request"}
	case len(env.Via) == 0 || env.Via[len(env.Via)-1] != from:
		return env, &refusal{http.StatusUnprocessableEntity, "the last of " + schema.HeaderVia + " is not the bridge that sends"}
	case env.HasPassed(r.cfg.Origin):
		return env, &refusal{http.StatusUnprocessableEntity, fmt.Sprintf("%v: the message has passed %s before", schema.ErrLoop, r.cfg.Origin)}
	case !slices.ContainsFunc(sender.Allow, func(entry string) bool { return allows(entry, env) }):
		return env, &refusal{http.StatusForbidden, env.Subject() + " is not allowed"}
	}
	env.ReplyTo = nil
	return env, nil
}

// notGenuine does not say more: not to those who try.
const notGenuine = "unknown sender, no signature that fits, or clocks that are too far apart"

// body reads a request up to the limits.
func (r *Receiver) body(w http.ResponseWriter, req *http.Request) ([]byte, *refusal) {
	// Without a deadline the server's own holds.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(r.cfg.Timeout))
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, r.cfg.MaxBytes))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, &refusal{http.StatusRequestEntityTooLarge, fmt.Sprintf("at most %d bytes are taken", r.cfg.MaxBytes)}
	case err != nil:
		return nil, &refusal{http.StatusRequestTimeout, "the request did not come to its end"}
	}
	return body, nil
}

// signed reports whether one of the sender's keys has signed the body lately.
func (s Sender) signed(header http.Header, body []byte) bool {
	return slices.ContainsFunc(s.Secrets, func(key configgroup.Secret) bool {
		return webhook.Verify(key.Reveal(), header, body, webhook.DefaultTolerance) == nil
	})
}

// store keeps a message.
func (r *Receiver) store(ctx context.Context, from string, env schema.Envelope) (existing bool, no *refusal) {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Timeout)
	defer cancel()
	existing, err := r.cfg.Store(ctx, from, env)
	switch {
	case err == nil:
		return existing, nil
	case errors.Is(err, errReused), errors.Is(err, schema.ErrKeyReused):
		return false, &refusal{http.StatusConflict, schema.OneLine(err.Error())}
	case errors.Is(err, schema.ErrInvalid):
		return false, &refusal{http.StatusUnprocessableEntity, schema.OneLine(err.Error())}
	}
	if errors.Is(err, errBusy) || errors.Is(err, schema.ErrLeaseLost) {
		return false, &refusal{http.StatusServiceUnavailable, errBusy.Error()}
	}
	// The reason is ours alone: the sender can do nothing but come again.
	r.cfg.Logger.ErrorContext(ctx, "message of a peer not stored", "from", from, "id", env.ID, "error", err)
	return false, &refusal{http.StatusServiceUnavailable, "not stored, try again"}
}
