package natsrelay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/handlers/natslink"
	"github.com/millbridge/millbridge/schema"
)

// Stored is what the relay reports: where the message is now.
type Stored struct {
	Stream    string `json:"stream"`              // of the other side
	Sequence  uint64 `json:"sequence"`            // in it
	Duplicate bool   `json:"duplicate,omitempty"` // it was there before
}

// New returns a handler that passes messages on to another JetStream. It connects when the first message comes; Close
// it.
func New(cfg Config) (handlers.Handler, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("nats: %w", err)
	}
	link, err := natslink.New(cfg.Settings)
	if err != nil {
		return nil, fmt.Errorf("nats: %w", err)
	}
	return &relay{link: link, cfg: cfg}, nil
}

type relay struct {
	link *natslink.Link
	cfg  Config
}

// String says where messages go.
func (r *relay) String() string {
	if r.cfg.Subject != "" {
		return fmt.Sprintf("publish %s at %s", r.cfg.Subject, r.link)
	}
	return fmt.Sprintf("publish for the Millbridge %s at %s", r.cfg.Prefix, r.link)
}

// Close waits for what is under way and ends the connection.
func (r *relay) Close() error { return r.link.Close() }

// Handle publishes the message and waits until the other side has stored it.
func (r *relay) Handle(ctx context.Context, env schema.Envelope) error {
	msg, err := r.message(env)
	if err != nil {
		return fmt.Errorf("pass on: %w", err)
	}
	var ack *jetstream.PubAck
	err = r.link.Do(ctx, msg.Subject, func(ctx context.Context, nc *nats.Conn) error {
		js, err := jetstream.New(nc)
		if err != nil {
			return err
		}
		ack, err = js.PublishMsg(ctx, msg, jetstream.WithRetryAttempts(0))
		if err == nil && ack.Sequence == 0 {
			return errors.New("the answer is not that of a stream")
		}
		return judge(msg.Subject, err)
	})
	if err != nil {
		return fmt.Errorf("pass on: %w", err)
	}
	return handlers.Report(ctx, Stored{Stream: ack.Stream, Sequence: ack.Sequence, Duplicate: ack.Duplicate})
}

// Preview returns what Handle would publish.
func (r *relay) Preview(_ context.Context, env schema.Envelope) ([]handlers.Preview, error) {
	msg, err := r.message(env)
	if err != nil {
		return nil, fmt.Errorf("pass on: %w", err)
	}
	return []handlers.Preview{natslink.Preview("publish", msg)}, nil
}

// message is what is published: the same for every attempt and replay.
func (r *relay) message(env schema.Envelope) (*nats.Msg, error) {
	env, err := env.PassOn(r.cfg.Origin)
	if err != nil {
		return nil, err
	}
	subject := r.cfg.Subject
	if subject == "" {
		if env.Kind == schema.KindJob {
			env.Target = cmp.Or(r.cfg.Target, env.Target)
		}
		subject = schema.Subjects{Prefix: r.cfg.Prefix}.Full(env.Subject())
	}
	msg, err := natslink.Message(subject, env)
	if err != nil {
		return nil, err
	}
	// The id alone would not do: other bridges, other tenants, and other messages of foreign publishers, may have the same.
	ce := schema.CloudEvent(env) // without blanks
	msg.Header.Set(jetstream.MsgIDHeader, strings.Join([]string{env.ID, ce[schema.HeaderSource], ce[schema.HeaderTenant], subject}, " "))
	if r.cfg.Subject == "" { // a stream of somebody else that takes the subject, too, is not what it is for
		msg.Header.Set(jetstream.ExpectedStreamHeader, schema.Subjects{Prefix: r.cfg.Prefix}.StreamName(env.Stream()))
	}
	if r.cfg.Subject == "" && env.Kind == schema.KindEvent {
		ttl := cmp.Or(r.cfg.EventsTTL, DefaultEventsTTL)
		msg.Header.Set(jetstream.MsgTTLHeader, strconv.FormatInt(int64(ttl/time.Second), 10)+"s")
	}
	return msg, nil
}

// Codes of the server (nats-server, server/errors.json) with which it refuses a message for what it is.
const (
	codeMessageTooLarge = 10054
	codeHeaderTooLarge  = 10097
)

// judge gives the errors their kind that the link does not know.
func judge(subject string, err error) error {
	var api *jetstream.APIError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, jetstream.ErrNoStreamResponse), errors.Is(err, nats.ErrNoResponders):
		return fmt.Errorf("no stream of the other side takes %s, or it has no leader: %w", subject, nats.ErrNoResponders)
	case errors.As(err, &api) && (api.ErrorCode == codeMessageTooLarge || api.ErrorCode == codeHeaderTooLarge):
		return handlers.Permanent(err)
	}
	return err
}
