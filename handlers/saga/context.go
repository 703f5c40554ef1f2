package saga

import (
	"context"
	"crypto/rand"
	"encoding/base32"
	"time"

	"github.com/millbridge/millbridge/schema"
)

// A Context is what a step may know besides the state. It is the run's context as well: [handlers.Tx] gives the
// transaction of the step.
type Context struct {
	context.Context        // of the run
	Saga            string // the definition's name
	ID              string // the saga's
	Step            string // the step that runs; for a signal the one the saga is at
	Tenant          string
	Actor           string // who caused the message that made the step run
	RequestID       string
	Reason          string // why the saga failed; empty while it goes forward
}

// NewKey returns a new idempotency key that begins with the step's name.
func (c *Context) NewKey() string { return NewKey(c.Step) }

// NewKey returns a new idempotency key: the prefix, "_" and a ULID, which sorts by time to the millisecond.
func NewKey(prefix string) string { return prefix + "_" + newULID(time.Now()) }

// crockford is the alphabet of ULIDs.
var crockford = base32.NewEncoding("0123456789ABCDEFGHJKMNPQRSTVWXYZ").WithPadding(base32.NoPadding)

// newULID returns 48 bits of milliseconds and 80 random ones in 26 letters.
func newULID(t time.Time) string {
	var id [16]byte
	rand.Read(id[:]) // never fails: it crashes the program when there is no randomness
	for i := range 6 {
		id[i] = byte(t.UnixMilli() >> (40 - 8*i))
	}
	var bits [17]byte // 26 letters carry 130 bits: the first two are 0
	for i, b := range id {
		bits[i] |= b >> 2
		bits[i+1] = b << 6
	}
	return crockford.EncodeToString(bits[:])[:26]
}

// context returns what a step's function is given.
func (t *turn[T]) context(step string) *Context {
	return &Context{
		Context: t.ctx, Saga: t.rec.Saga, ID: t.rec.ID, Step: step,
		Tenant: t.env.Tenant, Actor: t.env.Actor, RequestID: t.env.RequestID, Reason: t.kept.Why,
	}
}

type envelopeKey struct{}

func envelopeOf(ctx context.Context) schema.Envelope {
	env, _ := ctx.Value(envelopeKey{}).(schema.Envelope)
	return env
}
