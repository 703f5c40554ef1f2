package schema

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"time"
)

// Kind tells jobs from events.
type Kind string

const (
	KindJob   Kind = "job"   // for exactly one target
	KindEvent Kind = "event" // for any number of subscribers
)

// Visibility says who may see an event; it is part of the subject, so that broker permissions can tell them apart.
type Visibility string

const (
	Internal Visibility = "internal" // the default
	Public   Visibility = "public"
)

// An Envelope is a whole message. Make one with [NewJob] or [NewEvent]; do not change it after it was published.
type Envelope struct {
	ID         string     // [NewID] unless given; at most [MaxID] letters, digits, '-' and '_'
	Kind       Kind       // job or event
	Target     string     // jobs: the target's name
	Name       string     // the job's action or the event's name
	Visibility Visibility // events: internal or public

	Key         string // idempotency key; empty means the id, see [Envelope.IdempotencyKey]
	OrderingKey string // messages with the same one keep their commit order; empty means no order
	Tenant      string // scopes both keys
	Actor       string // who caused the message
	RequestID   string // the request that caused it

	TraceParent string // W3C traceparent, passed on as it is
	TraceState  string // W3C tracestate
	ContentType string // of the payload; NewJob and NewEvent set application/json when they encode

	Metadata map[string]string // free entries for the receiver; values are kept byte for byte
	Payload  []byte            // the message's bytes; nil and empty are the same

	Time  time.Time     // when it was made; filled in at publish if zero
	DueAt time.Time     // not before; zero means at once. Not on the wire
	Delay time.Duration // not before so long after publishing; zero means at once. Not on the wire

	Source string   // received messages: the outbox it came from
	Via    []string // the bridges that have passed the message on, the first one first; see [Envelope.PassOn]
	Replay *Replay  // replays: what is replayed, for whom

	ReplyTo *ReplyTo // jobs: where the outcome is to be reported; nil means nowhere

	err error // a payload that could not be encoded; reported by Validate
}

// Replay marks an envelope that puts a dead letter back for the one handler that gave it up.
type Replay struct {
	Handler string // the handler that failed
	Of      string // the id of the message that died first
	Number  int    // 1 for the first replay, then 2, ...
}

// An Option sets one field of a new envelope.
type Option func(*Envelope)

// WithID sets the message's id in place of a new UUID. Ids should be unique: Millbridge keeps two messages with one id apart by
// their tenants and keys, but who receives them, a webhook for instance, may remember ids alone.
func WithID(id string) Option { return func(e *Envelope) { e.ID = id } }

// WithKey sets the idempotency key: publishing the same content with the same tenant, target and key again gives back
// the first message instead of a second one.
func WithKey(key string) Option { return func(e *Envelope) { e.Key = key } }

// WithOrderingKey keeps this message in commit order with all others of the same tenant, target and ordering key.
func WithOrderingKey(key string) Option { return func(e *Envelope) { e.OrderingKey = key } }

// WithDueAt holds the message back until t, judged by the database's clock.
func WithDueAt(t time.Time) Option { return func(e *Envelope) { e.DueAt = t } }

// WithDelay holds the message back for d from its publishing on, by the database's clock: a publisher whose own clock
// is wrong is none the worse for it.
func WithDelay(d time.Duration) Option { return func(e *Envelope) { e.Delay = d } }

// WithTime sets the time the message was made in place of the time of publishing.
func WithTime(t time.Time) Option { return func(e *Envelope) { e.Time = t } }

// WithTenant sets the tenant, which scopes the idempotency and ordering keys.
func WithTenant(tenant string) Option { return func(e *Envelope) { e.Tenant = tenant } }

// WithActor records who caused the message.
func WithActor(actor string) Option { return func(e *Envelope) { e.Actor = actor } }

// WithRequestID records the request that caused the message.
func WithRequestID(id string) Option { return func(e *Envelope) { e.RequestID = id } }

// WithTrace passes on a W3C trace context.
func WithTrace(traceparent, tracestate string) Option {
	return func(e *Envelope) { e.TraceParent, e.TraceState = traceparent, tracestate }
}

// WithMetadata adds entries to the metadata.
func WithMetadata(entries map[string]string) Option {
	return func(e *Envelope) {
		if e.Metadata == nil {
			e.Metadata = make(map[string]string, len(entries))
		}
		maps.Copy(e.Metadata, entries)
	}
}

// WithReplyTo asks for a report of the job's outcome: a job for target and action with an [Outcome] as payload. ref is
// given back in it.
func WithReplyTo(target, action, ref string) Option {
	return func(e *Envelope) { e.ReplyTo = &ReplyTo{Target: target, Action: action, Ref: ref} }
}

// WithContentType names the payload's media type.
func WithContentType(t string) Option { return func(e *Envelope) { e.ContentType = t } }

// WithPublic makes an event public; events are internal by default.
func WithPublic() Option { return func(e *Envelope) { e.Visibility = Public } }

// NewJob returns a job that asks target for action. A payload of type []byte or [json.RawMessage] is taken as it is;
// nil is no payload, and any other value is encoded as JSON. A value that cannot be encoded is reported when the job is published.
func NewJob(target, action string, payload any, opts ...Option) Envelope {
	return build(Envelope{Kind: KindJob, Target: target, Name: action}, payload, opts)
}

// NewEvent returns an event. The payload is treated as by [NewJob].
func NewEvent(name string, payload any, opts ...Option) Envelope {
	return build(Envelope{Kind: KindEvent, Name: name, Visibility: Internal}, payload, opts)
}

func build(e Envelope, payload any, opts []Option) Envelope {
	e.ID = NewID()
	switch p := payload.(type) {
	case nil:
	case []byte:
		e.Payload = p
	case json.RawMessage:
		e.Payload, e.ContentType = p, "application/json"
	default:
		e.ContentType = "application/json"
		if e.Payload, e.err = json.Marshal(p); e.err != nil {
			e.err = fmt.Errorf("encode %T: %w", p, e.err)
		}
	}
	for _, opt := range opts {
		opt(&e)
	}
	return e
}

// IdempotencyKey returns the explicit key, or the id of the message that was published first if there is none.
func (e Envelope) IdempotencyKey() string {
	switch {
	case e.Key != "":
		return e.Key
	case e.Replay != nil:
		return e.Replay.Of
	}
	return e.ID
}

// Stream returns the stream the message belongs to: replays travel with the jobs.
func (e Envelope) Stream() Stream {
	if e.Kind == KindEvent && e.Replay == nil {
		return Events
	}
	return Jobs
}

// Subject returns the message's subject without the prefix.
func (e Envelope) Subject() string {
	switch {
	case e.Replay != nil:
		return ReplaySubject(e.Replay.Handler, e.Name)
	case e.Kind == KindEvent:
		return EventSubject(e.Visibility, e.Name)
	}
	return JobSubject(e.Target, e.Name)
}

// Type returns the message's CloudEvents type: job.<target>.<action> or event.<visibility>.<name>.
func (e Envelope) Type() string {
	if e.Kind == KindEvent {
		return "event." + string(e.Visibility) + "." + e.Name
	}
	return "job." + e.Target + "." + e.Name
}

// scope is what an idempotency key is unique within, besides the tenant.
func (e Envelope) scope() string {
	if e.Kind == KindEvent {
		return e.Name
	}
	return e.Target
}

// KeyHash names (tenant, kind, target or event name, idempotency key) in 32 bytes.
func (e Envelope) KeyHash() [32]byte {
	return hashFields("key", e.Tenant, string(e.Kind), e.scope(), e.IdempotencyKey())
}

// BodyHash tells whether two messages with the same key say the same: it covers action or name, content type, payload
// and where the outcome is to be reported. Whoever waits for a report must not get the receipt of a message that reports
// to somebody else.
func (e Envelope) BodyHash() [32]byte {
	b := make([]byte, 0, 64+len(e.Name)+len(e.ContentType)+len(e.Payload))
	b = appendField(appendField(appendField(b, "body"), e.Name), e.ContentType)
	b = appendField(b, e.Payload)
	if r := e.ReplyTo; r != nil {
		b = appendField(appendField(appendField(b, r.Target), r.Action), r.Ref)
	}
	return sha256.Sum256(b)
}

// OrderHash names the ordering key in its scope: the tenant and, for jobs, the target. Its first eight bytes are the
// number of the lock that insertion takes. ok is false without an ordering key.
func (e Envelope) OrderHash() (hash [32]byte, ok bool) {
	if e.OrderingKey == "" {
		return hash, false
	}
	return hashFields("order", string(e.Stream()), e.Tenant, e.Target, e.OrderingKey), true
}

// Slot is the 16-bit number that decides the message's shard: a hash of the ordering key, else of the id.
func (e Envelope) Slot() uint16 { return e.slot(e.OrderHash()) }

func (e Envelope) slot(order [32]byte, ordered bool) uint16 {
	if ordered {
		return binary.BigEndian.Uint16(order[30:])
	}
	h := hashFields("slot", e.ID)
	return binary.BigEndian.Uint16(h[:])
}
