package inprocess

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/millbridge/millbridge/schema"
)

// source is what messages of a queue have in place of the outbox they came from.
var source = schema.SourceOf("memory")

// message is a published one. What the handler gets is read from its wire form, as after a trip through a broker.
type message struct {
	env    schema.Envelope // for our own use: the handler gets a copy
	header map[string][]string
	row    schema.Row
	due    time.Time // zero: at once
}

func newMessage(env schema.Envelope, now time.Time) (*message, error) {
	m := &message{row: schema.NewRow(env)}
	m.row.Payload = append([]byte(nil), env.Payload...) // the caller may use its bytes again
	header, err := schema.ParseHeader(m.row.Block())
	if err != nil {
		return nil, schema.WithKind(schema.Permanent, err)
	}
	header[schema.HeaderSource] = []string{source}
	m.header = header
	if m.env, err = m.envelope(); err != nil {
		return nil, err
	}
	switch {
	case env.Delay > 0:
		m.due = now.Add(env.Delay)
	case env.DueAt.After(now):
		m.due = env.DueAt
	}
	return m, nil
}

// envelope returns a copy of the message that its handler may change.
func (m *message) envelope() (schema.Envelope, error) {
	return schema.Decode(m.row.Subject, m.header, append([]byte(nil), m.row.Payload...))
}

// id is that of the message that was published first.
func (m *message) id() string {
	if r := m.env.Replay; r != nil {
		return r.Of
	}
	return m.env.ID
}

// usedKey is what an explicit idempotency key stands for.
type usedKey struct {
	id   string
	body [32]byte
}

// keyed reports whether m takes an explicit idempotency key. A replay has its message's key on purpose.
func (m *message) keyed() bool { return m.env.Key != "" && m.env.Replay == nil }

func (m *message) used() usedKey { return usedKey{m.env.ID, m.env.BodyHash()} }

// prepare checks envelopes and returns them as messages, or all their faults.
func (c *core) prepare(envs []schema.Envelope, now time.Time) ([]*message, error) {
	msgs := make([]*message, len(envs))
	var faults []error
	for i, e := range envs {
		if e.Time.IsZero() {
			e.Time = now
		}
		if err := e.Validate(c.cfg.MaxPayload); err != nil {
			faults = append(faults, err)
			continue
		}
		var err error
		if msgs[i], err = newMessage(e, now); err != nil {
			faults = append(faults, err)
		}
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	return msgs, nil
}

// resolve finds out which messages are new and which are there under their key, among what was published and in pending,
// to which it adds the new keys. With an error it changes nothing.
func (c *core) resolve(msgs []*message, pending map[[32]byte]usedKey, now time.Time) (fresh []*message, receipts []schema.Receipt, err error) {
	added := maps.Clone(pending)
	receipts = make([]schema.Receipt, len(msgs))
	var faults []error
	for i, m := range msgs {
		receipts[i].ID = m.env.ID
		if m.keyed() {
			hash := m.env.KeyHash()
			known, ok := added[hash]
			if k := c.keys.get(hash, now); !ok && k != nil {
				known, ok = *k, true
			}
			switch {
			case ok && known.body != m.used().body:
				faults = append(faults, keyReused(m.env.ID, known.id))
				continue
			case ok:
				receipts[i] = schema.Receipt{ID: known.id, Existing: true}
				continue
			}
			added[hash] = m.used()
		}
		fresh = append(fresh, m)
	}
	if len(faults) > 0 {
		return nil, nil, errors.Join(faults...)
	}
	maps.Copy(pending, added)
	return fresh, receipts, nil
}

func keyReused(id, by string) error {
	return fmt.Errorf("%w: %w", schema.ErrKeyReused, &schema.ValidationError{ID: id, Faults: []schema.Fault{{
		Field: "key", Reason: "was used by message " + by + " with other content",
	}}})
}

func (c *core) publish(ctx context.Context, envs []schema.Envelope) ([]schema.Receipt, error) {
	if len(envs) == 0 {
		return nil, nil
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("publish in process: %w", context.Cause(ctx))
	}
	now := c.now()
	msgs, err := c.prepare(envs, now)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.unlock()
	fresh, receipts, err := c.resolve(msgs, make(map[[32]byte]usedKey), now)
	if err != nil {
		return nil, err
	}
	if c.kept+len(fresh) > c.cfg.MaxMessages {
		return nil, fmt.Errorf("publish in process: %w: it keeps %d messages, the limit is %d", ErrFull, c.kept, c.cfg.MaxMessages)
	}
	for _, m := range fresh {
		c.take(m, now)
	}
	c.dispatch()
	c.signal()
	c.cfg.Logger.DebugContext(ctx, "published in process", "messages", len(fresh))
	return receipts, nil
}

// take lets a message in and remembers its key.
func (c *core) take(m *message, now time.Time) {
	if m.keyed() {
		hash := m.env.KeyHash()
		c.keys.put(hash, m.used())
		c.keys.rest(hash, now)
	}
	c.kept++
	if m.due.IsZero() {
		c.intake = append(c.intake, m)
		return
	}
	c.wait(&waiting{due: m.due, message: m})
}

// takeCommitted lets in what a transaction has published that has committed: too late to refuse anything. What clashes
// with a key that was taken meanwhile is parked.
func (c *core) takeCommitted(msgs []*message, now time.Time) {
	for _, m := range msgs {
		_, receipts, err := c.resolve([]*message{m}, make(map[[32]byte]usedKey), now)
		switch {
		case err != nil:
			c.kept++
			c.park(m, schema.Reason(err), false)
		case !receipts[0].Existing:
			c.take(m, now)
		}
	}
}
