package postgres

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/millbridge/millbridge/schema"
)

// One statement takes at most this much, so that a parameter stays far below PostgreSQL's limit of 1 GB.
const (
	chunkRows  = 10_000
	chunkBytes = 16 << 20
)

// An appending is one call's envelopes on their way into the tables.
type appending struct {
	envs  []schema.Envelope
	rows  []schema.Row
	first []int // for each envelope the one in this call that stands for its key; itself unless the key is given twice
	keys  map[[32]byte]*usedKey
	call  schema.UUID // marks the keys that this call writes
}

// A usedKey is what the database says about an explicit idempotency key.
type usedKey struct {
	env       int // the envelope that stands for it
	messageID string
	bodyHash  []byte
	isNew     bool // written by this call
}

func newAppending(envs []schema.Envelope, maxPayload int) (*appending, error) {
	if err := validate(envs, maxPayload); err != nil {
		return nil, err
	}
	now := time.Now()
	a := &appending{
		envs: withTime(envs, now), rows: make([]schema.Row, len(envs)), first: make([]int, len(envs)),
		keys: make(map[[32]byte]*usedKey), call: schema.NewUUID(now),
	}
	var faults []error
	for i, e := range a.envs {
		a.rows[i], a.first[i] = schema.NewRow(e), i
		if !keyed(e) {
			continue
		}
		h := e.KeyHash()
		k := a.keys[h]
		if k == nil {
			a.keys[h] = &usedKey{env: i}
			continue
		}
		a.first[i] = k.env
		if first := envs[k.env]; first.BodyHash() != e.BodyHash() {
			faults = append(faults, keyReused(e.ID, first.ID))
		}
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	return a, nil
}

func keyReused(id, by string) error {
	return fmt.Errorf("%w: %w", schema.ErrKeyReused, &schema.ValidationError{ID: id, Faults: []schema.Fault{{
		Field: "key", Reason: "was used by message " + by + " with other content",
	}}})
}

// keyed reports whether e takes an explicit idempotency key. A replay has its message's key on purpose and takes none.
func keyed(e schema.Envelope) bool { return e.Key != "" && e.Replay == nil }

// statements write and compare the explicit keys, take the locks of all ordering keys and write the rows.
func (a *appending) statements() []statement {
	var steps []statement
	locks := a.locks()
	hashes, bodies, ids := a.sortedKeys()
	if len(hashes) > 0 {
		steps = append(steps,
			statement{sql: sqlTakeKeys, args: []any{hashes, bodies, ids, a.call.String()}},
			statement{sql: sqlReadKeys, args: []any{hashes, a.call.String()}, each: a.readKey})
	}
	for c := range a.chunks() {
		if c.plain {
			steps = append(steps, statement{sql: sqlInsert, args: c.args(locks)})
			continue
		}
		args := append(c.args(locks), c.due, c.keys, a.call.String(), hashes, bodies)
		steps = append(steps, statement{sql: sqlInsertSome, args: args})
	}
	if len(hashes) > 0 {
		steps = append(steps, statement{sql: sqlReturnKeys, args: []any{hashes, bodies, a.call.String()}})
	}
	return steps
}

// locks returns the numbers of the ordering keys' locks, each once and sorted, so that two calls cannot block each other.
func (a *appending) locks() []int64 {
	locks := []int64{} // nil would be NULL
	for _, r := range a.rows {
		if r.OrderLock != 0 {
			locks = append(locks, r.OrderLock)
		}
	}
	slices.Sort(locks)
	return slices.Compact(locks)
}

// sortedKeys returns the explicit keys by hash, for the same reason, with the body and message that want them.
func (a *appending) sortedKeys() (hashes, bodies [][]byte, ids []string) {
	hashes, bodies = [][]byte{}, [][]byte{} // nil would be NULL
	sorted := slices.SortedFunc(maps.Keys(a.keys), func(x, y [32]byte) int { return bytes.Compare(x[:], y[:]) })
	for _, h := range sorted {
		e := a.envs[a.keys[h].env]
		body := e.BodyHash()
		hashes, bodies, ids = append(hashes, h[:]), append(bodies, body[:]), append(ids, e.ID)
	}
	return hashes, bodies, ids
}

func (a *appending) readKey(rows rowSet) error {
	var hash []byte
	var k usedKey
	if err := rows.Scan(&hash, &k.messageID, &k.bodyHash, &k.isNew); err != nil {
		return err
	}
	if known := a.keys[[32]byte(hash)]; known != nil {
		k.env = known.env
		*known = k
	}
	return nil
}

// receipts answers for each envelope, from what the statements found.
func (a *appending) receipts() ([]schema.Receipt, error) {
	receipts := make([]schema.Receipt, len(a.envs))
	var faults []error
	for i, e := range a.envs {
		receipts[i].ID = e.ID
		if !keyed(e) {
			continue
		}
		k := a.keys[e.KeyHash()]
		body := e.BodyHash()
		switch {
		case k.messageID == "": // it was there when we tried to write it and had expired when we looked
			faults = append(faults, fmt.Errorf("message %s: its key has just expired: %w", e.ID, schema.ErrRetryTransaction))
		case !bytes.Equal(k.bodyHash, body[:]):
			faults = append(faults, keyReused(e.ID, k.messageID))
		case a.first[i] != i || !k.isNew:
			receipts[i] = schema.Receipt{ID: k.messageID, Existing: true}
		}
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	return receipts, nil
}

// A chunk is the rows of one insert as columns.
type chunk struct {
	plain    bool // no row has a due time or an explicit key
	streams  []string
	slots    []int32
	ids      []string
	subjects []string
	locks    []int64
	headers  [][]byte
	payloads [][]byte
	due      []int64  // microseconds since 1970, or from now on if negative; 0 is none
	keys     [][]byte // empty is none
	bytes    int
}

func (c *chunk) args(locks []int64) []any {
	return []any{c.streams, c.slots, c.ids, c.subjects, c.locks, c.headers, c.payloads, locks}
}

func (c *chunk) add(e schema.Envelope, r schema.Row) {
	c.streams = append(c.streams, string(r.Stream))
	c.slots = append(c.slots, int32(r.Slot))
	c.ids = append(c.ids, r.ID.String())
	c.subjects = append(c.subjects, r.Subject)
	c.locks = append(c.locks, r.OrderLock)
	c.headers = append(c.headers, r.Header)
	due, key, payload := int64(0), []byte{}, r.Payload
	if payload == nil {
		payload = []byte{} // nil would be NULL
	}
	switch {
	case e.Delay > 0:
		due = -max(e.Delay.Microseconds(), 1)
	case !e.DueAt.IsZero():
		due = e.DueAt.UnixMicro()
	}
	if keyed(e) {
		h := e.KeyHash()
		key = h[:]
	}
	c.payloads = append(c.payloads, payload)
	c.due = append(c.due, due)
	c.keys = append(c.keys, key)
	c.plain = c.plain && due == 0 && len(key) == 0
	c.bytes += len(r.Header) + len(r.Payload)
}

// chunks yields the rows to write in the order given, without those whose key another envelope of the call stands for.
func (a *appending) chunks() func(yield func(*chunk) bool) {
	return func(yield func(*chunk) bool) {
		c := &chunk{plain: true}
		for i, e := range a.envs {
			if a.first[i] != i {
				continue
			}
			c.add(e, a.rows[i])
			if len(c.ids) < chunkRows && c.bytes < chunkBytes {
				continue
			}
			if !yield(c) {
				return
			}
			c = &chunk{plain: true}
		}
		if len(c.ids) > 0 {
			yield(c)
		}
	}
}
