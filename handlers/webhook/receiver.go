package webhook

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/millbridge/millbridge/handlers/configgroup"
)

// Limits of a [Receiver].
const (
	DefaultMaxBody = 1 << 20
	maxBodyTime    = 30 * time.Second
	maxAnswer      = 1 << 20
)

// A ReceiverConfig says whose requests a [Receiver] takes. Only Keys is required.
type ReceiverConfig struct {
	// Keys verify requests, any of them: shared secrets ("whsec_...") and public keys ("whpk_..."). During a rotation both
	// the old and the new one are here.
	Keys []configgroup.Secret
	// Ledger keeps a message from being taken twice; nil takes it as often as it comes. Use one for each sender, as only
	// the ids of one sender are unique.
	Ledger Ledger
	// Tolerance is how far apart the clocks of sender and receiver may be, delivery included; 0 means [DefaultTolerance].
	Tolerance time.Duration
	// MaxBody is how long a body may be; 0 means [DefaultMaxBody].
	MaxBody int64
	// Logger is told at level Warn of what is refused, and why; nil logs nothing.
	Logger *slog.Logger
	// Now is the clock that timestamps are compared with; nil is [time.Now].
	Now func() time.Time
}

// A Receiver lets only those requests through to a handler that are genuine, whole and new. It is for programs that get
// webhooks, from Millbridge or from any other sender that follows Standard Webhooks.
type Receiver struct {
	cfg      ReceiverConfig
	keys     []verifier
	bodyTime time.Duration
}

// NewReceiver returns a receiver. Its errors do not repeat keys.
func NewReceiver(cfg ReceiverConfig) (*Receiver, error) {
	cfg.MaxBody = cmp.Or(cfg.MaxBody, DefaultMaxBody)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	r := &Receiver{cfg: cfg, bodyTime: maxBodyTime}
	var errs []error
	for i, text := range cfg.Keys {
		verify, err := parseVerifier(text.Reveal())
		if err != nil {
			errs = append(errs, fmt.Errorf("receiver of webhooks: key %d %w", i+1, err))
		}
		r.keys = append(r.keys, verify)
	}
	if len(cfg.Keys) == 0 {
		errs = append(errs, errors.New("receiver of webhooks: there is no key"))
	}
	if cfg.MaxBody < 0 || cfg.Tolerance < 0 {
		errs = append(errs, errors.New("receiver of webhooks: limits must not be negative"))
	}
	return r, errors.Join(errs...)
}

// Handler returns next behind the receiver. A status of 2xx from next means that the message is taken; after any other it
// is as if the request had not been made, and the sender decides by the status whether it tries again. The answer is sent
// when that is settled, so it must not be larger than 1 MiB. The receiver itself answers:
//
//	204                   the message was taken before
//	401                   not genuine
//	405, 413              no POST; a body that is too long
//	408                   a body that did not come within 30 seconds
//	503                   the same message is being taken at this moment
//	500                   the ledger failed, or the answer was too large
//
// The body is there in whole when next is called. How long the headers may take is up to the server.
func (r *Receiver) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, status, err := r.read(w, req)
		var id string
		if err == nil {
			id, err = check(r.keys, req.Header, body, r.cfg.Tolerance, r.cfg.Now())
			status = http.StatusUnauthorized
		}
		if err != nil {
			r.cfg.Logger.WarnContext(req.Context(), "webhook refused", "status", status, "error", err)
			http.Error(w, http.StatusText(status), status)
			return
		}
		r.take(w, req, next, id, body)
	})
}

// read returns the body, or the status of a request that has none to be verified.
func (r *Receiver) read(w http.ResponseWriter, req *http.Request) (body []byte, status int, err error) {
	if req.Method != http.MethodPost {
		return nil, http.StatusMethodNotAllowed, errors.New("no POST")
	}
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(r.bodyTime)) // not every server can: its own limit counts then
	body, err = io.ReadAll(http.MaxBytesReader(w, req.Body, r.cfg.MaxBody))
	_ = control.SetReadDeadline(time.Time{})
	if _, tooLong := errors.AsType[*http.MaxBytesError](err); tooLong {
		return nil, http.StatusRequestEntityTooLarge, err
	}
	return body, http.StatusRequestTimeout, err
}

var (
	errNotTaken = errors.New("the handler has not taken the message")
	errTooLarge = fmt.Errorf("the answer is larger than %d bytes", maxAnswer)
)

// take hands a genuine request on.
func (r *Receiver) take(w http.ResponseWriter, req *http.Request, next http.Handler, id string, body []byte) {
	answer := &answer{header: make(http.Header)}
	call := func(ctx context.Context) error {
		in := req.WithContext(ctx)
		in.Body = io.NopCloser(bytes.NewReader(body))
		in.ContentLength = int64(len(body))
		next.ServeHTTP(answer, in)
		switch {
		case answer.tooLarge:
			return errTooLarge
		case answer.code()/100 != 2:
			return errNotTaken
		}
		return nil
	}
	first, err := true, error(nil)
	if r.cfg.Ledger == nil {
		err = call(req.Context())
	} else {
		first, err = r.cfg.Ledger.Once(req.Context(), id, call)
	}
	switch {
	case errors.Is(err, ErrInProgress): // without Retry-After: nobody knows how long, and a short one would use up the sender's attempts
		http.Error(w, "the message is being taken", http.StatusServiceUnavailable)
	case err != nil && !errors.Is(err, errNotTaken):
		r.cfg.Logger.WarnContext(req.Context(), "webhook not taken", "id", id, "error", err)
		http.Error(w, http.StatusText(http.StatusInternalServerError), http.StatusInternalServerError)
	case !first:
		w.WriteHeader(http.StatusNoContent)
	default:
		answer.send(w)
	}
}

// answer keeps what a handler answers until it is settled whether the message is taken.
type answer struct {
	header   http.Header
	status   int
	body     bytes.Buffer
	tooLarge bool
}

func (a *answer) Header() http.Header { return a.header }

func (a *answer) WriteHeader(status int) {
	if a.status == 0 && status >= 200 {
		a.status = status
	}
}

func (a *answer) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	if a.body.Len()+len(p) > maxAnswer {
		a.tooLarge = true
		return 0, errTooLarge
	}
	return a.body.Write(p)
}

func (a *answer) code() int { return cmp.Or(a.status, http.StatusOK) }

func (a *answer) send(w http.ResponseWriter) {
	for name, values := range a.header {
		w.Header()[name] = values
	}
	w.WriteHeader(a.code())
	_, _ = w.Write(a.body.Bytes()) // a sender that has gone asks again
}
