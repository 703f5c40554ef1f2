package natsrequest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/nats-io/nats.go"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/handlers/natslink"
	"github.com/millbridge/millbridge/schema"
)

// Headers of a reply that reports an error (NATS ADR-32).
const (
	headerError = "Nats-Service-Error"
	headerCode  = "Nats-Service-Error-Code"
)

// New returns a handler that asks a service and waits for its reply. It connects when the first message comes; Close it.
func New(cfg Config) (handlers.Handler, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("request: %w", err)
	}
	link, err := natslink.New(cfg.Settings)
	if err != nil {
		return nil, fmt.Errorf("request: %w", err)
	}
	return &requester{link: link, prefix: cfg.Prefix, maxReply: cmp.Or(cfg.MaxReply, DefaultMaxReply)}, nil
}

type requester struct {
	link     *natslink.Link
	prefix   string
	maxReply int
}

// String says who is asked.
func (r *requester) String() string { return fmt.Sprintf("request %s.* at %s", r.prefix, r.link) }

// Close waits for what is under way and ends the connection.
func (r *requester) Close() error { return r.link.Close() }

// Handle asks and reports the reply.
func (r *requester) Handle(ctx context.Context, env schema.Envelope) error {
	msg, err := r.message(env)
	if err != nil {
		return fmt.Errorf("request: %w", err)
	}
	var reply *nats.Msg
	err = r.link.Do(ctx, msg.Subject, func(ctx context.Context, nc *nats.Conn) error {
		reply, err = nc.RequestMsgWithContext(ctx, msg)
		if errors.Is(err, nats.ErrNoResponders) {
			return fmt.Errorf("no service answers on %s: %w", msg.Subject, err)
		}
		return err
	})
	if err == nil {
		err = r.verdict(reply)
	}
	if err != nil {
		return fmt.Errorf("request: %w", err)
	}
	if len(reply.Data) == 0 {
		return nil
	}
	return handlers.Report(ctx, answer(reply.Data))
}

// Preview returns the request that Handle would make.
func (r *requester) Preview(_ context.Context, env schema.Envelope) ([]handlers.Preview, error) {
	msg, err := r.message(env)
	if err != nil {
		return nil, fmt.Errorf("request: %w", err)
	}
	return []handlers.Preview{natslink.Preview("request", msg)}, nil
}

// message is the request: the same for every attempt and replay.
func (r *requester) message(env schema.Envelope) (*nats.Msg, error) {
	env = env.First()
	env.ReplyTo = nil // the report is the bridge's to make
	return natslink.Message(r.prefix+"."+env.Name, env)
}

// verdict says what a reply means.
func (r *requester) verdict(reply *nats.Msg) error {
	text, code := reply.Header.Get(headerError), reply.Header.Get(headerCode)
	if text != "" || code != "" {
		return refused(text, code)
	}
	if len(reply.Data) > r.maxReply {
		return handlers.Permanent(fmt.Errorf("the reply has %d bytes, at most %d are taken", len(reply.Data), r.maxReply))
	}
	return nil
}

// An Error is the error that a service has answered.
type Error struct {
	Code    string // as the service gave it, mostly a number as of HTTP
	Message string // in one line
}

func (e *Error) Error() string {
	return fmt.Sprintf("the service answered error %s: %s", cmp.Or(e.Code, "without a code"), cmp.Or(e.Message, "without a text"))
}

// refused judges a service's error by its code: those of 400 to 499 will be the same next time, but for a time-out and
// too many requests.
func refused(text, code string) error {
	const longest = 300 // of a text in an error
	err := &Error{Code: schema.OneLine(code), Message: schema.OneLine(text)}
	if r := []rune(err.Message); len(r) > longest {
		err.Message = string(r[:longest]) + "..."
	}
	if r := []rune(err.Code); len(r) > 20 {
		err.Code = string(r[:20]) + "..."
	}
	n, bad := strconv.Atoi(code)
	if bad == nil && n >= 400 && n < 500 && n != http.StatusRequestTimeout && n != http.StatusTooManyRequests {
		return handlers.Permanent(err)
	}
	return schema.WithKind(schema.Temporary, err)
}

// answer is a reply as JSON: as it is, or as a text.
func answer(data []byte) any {
	if json.Valid(data) {
		return json.RawMessage(data)
	}
	return string(data)
}
