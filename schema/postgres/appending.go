package postgres

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/millbridge/millbridge/schema"
)

// An appending is one call's envelopes on their way into the tables.
type appending struct {
	envs []schema.Envelope
	rows []schema.Row
	keys []*usedKey            // for each envelope the explicit key it takes, or nil; nil if none takes one
	uses map[[32]byte]*usedKey // the same by hash, each once
	call pgtype.UUID           // marks the keys that this call writes
}

// A usedKey is an explicit idempotency key, and what the database says about it.
type usedKey struct {
	hash, body [32]byte
	env        int // the envelope that stands for it; others of the call may give it again
	messageID  string
	bodyHash   []byte
	isNew      bool // written by this call
}

func newAppending(envs []schema.Envelope, maxPayload int) (*appending, error) {
	now := time.Now()
	a := &appending{envs: envs, rows: make([]schema.Row, len(envs))}
	var faults []error
	for i, e := range envs {
		if e.Time.IsZero() {
			e.Time = now
		}
		var err error
		if a.rows[i], err = schema.CheckedRow(e, maxPayload); err == nil && keyed(e) {
			err = a.use(i, e, now)
		}
		if err != nil {
			faults = append(faults, err)
		}
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	return a, nil
}

// use notes the key of an envelope.
func (a *appending) use(i int, e schema.Envelope, now time.Time) error {
	if a.keys == nil {
		a.keys, a.uses, a.call = make([]*usedKey, len(a.envs)), make(map[[32]byte]*usedKey), uuid(schema.NewUUID(now))
	}
	hash, body := e.KeyHash(), e.BodyHash()
	k := a.uses[hash]
	if k == nil {
		k = &usedKey{hash: hash, body: body, env: i}
		a.uses[hash] = k
	}
	a.keys[i] = k
	if k.body != body {
		return keyReused(e.ID, a.envs[k.env].ID)
	}
	return nil
}

func keyReused(id, by string) error {
	return fmt.Errorf("%w: %w", schema.ErrKeyReused, &schema.ValidationError{ID: id, Faults: []schema.Fault{{
		Field: "key", Reason: "was used by message " + by + " with other content",
	}}})
}

// keyed reports whether e takes an explicit idempotency key. A replay has its message's key on purpose and takes none.
func keyed(e schema.Envelope) bool { return e.Key != "" && e.Replay == nil }

// due returns when a message is due, as a chunk has it.
func due(e schema.Envelope) int64 {
	switch {
	case e.Delay > 0:
		return -max(e.Delay.Microseconds(), 1)
	case !e.DueAt.IsZero():
		return e.DueAt.UnixMicro()
	}
	return 0
}

// single reports whether there is one message, and that not for later.
func (a *appending) single() bool { return len(a.envs) == 1 && due(a.envs[0]) == 0 }

// statements write and compare the explicit keys, take the locks of all ordering keys and write the rows. What they
// leave open, readKeys answers.
func (a *appending) statements() []statement {
	if a.single() {
		return []statement{a.one()}
	}
	return a.many()
}

// one writes the only row.
func (a *appending) one() statement {
	r := a.rows[0]
	s := statement{sql: sqlInsertOne, args: append(make([]any, 0, 11),
		string(r.Stream), int32(r.Slot), uuid(r.ID), r.Subject, r.Header, orEmpty(r.Payload))}
	if r.OrderLock != 0 {
		s.sql = sqlInsertOrdered
	}
	if a.keys != nil {
		k := a.keys[0]
		s.sql, s.args = sqlInsertKeyed, append(s.args, k.hash[:], k.body[:], a.envs[0].ID, a.call)
		if r.OrderLock != 0 {
			s.sql = sqlInsertKeyedOrdered
		}
		s.each = func(rows rowSet) error {
			k.messageID, k.bodyHash = a.envs[0].ID, k.body[:]
			return rows.Scan(&k.isNew)
		}
	}
	if r.OrderLock != 0 {
		s.args = append(s.args, r.OrderLock)
	}
	return s
}

// orEmpty returns b so that it is not NULL.
func orEmpty(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

func (a *appending) many() []statement {
	var steps []statement
	locks := a.locks()
	hashes, bodies, ids := a.sortedKeys()
	if len(hashes) > 0 {
		steps = append(steps, statement{sql: sqlTakeKeys, args: []any{hashes, bodies, ids, a.call}}, a.readKeys())
	}
	for c := range a.chunks() {
		args := c.args(locks)
		if c.plain && len(hashes) == 0 { // else the keys of other chunks may refuse the whole call
			steps = append(steps, statement{sql: sqlInsert, args: args})
			continue
		}
		steps = append(steps, statement{sql: sqlInsertSome, args: append(args, c.due, c.keys, a.call, hashes, bodies)})
	}
	if len(hashes) > 0 {
		steps = append(steps, statement{sql: sqlReturnKeys, args: []any{hashes, bodies, a.call}})
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
	for _, k := range slices.SortedFunc(maps.Values(a.uses), func(x, y *usedKey) int { return bytes.Compare(x.hash[:], y.hash[:]) }) {
		hashes, bodies, ids = append(hashes, k.hash[:]), append(bodies, k.body[:]), append(ids, a.envs[k.env].ID)
	}
	return hashes, bodies, ids
}

// open reports whether there are keys of which it is not known who uses them.
func (a *appending) open() bool {
	for _, k := range a.uses {
		if k.messageID == "" {
			return true
		}
	}
	return false
}

// readKeys finds out who uses the keys.
func (a *appending) readKeys() statement {
	hashes, _, _ := a.sortedKeys()
	return statement{sql: sqlReadKeys, args: []any{hashes, a.call}, each: func(rows rowSet) error {
		var hash, body []byte
		var id string
		var isNew bool
		if err := rows.Scan(&hash, &id, &body, &isNew); err != nil {
			return err
		}
		if k := a.uses[[32]byte(hash)]; k != nil {
			k.messageID, k.bodyHash, k.isNew = id, body, isNew
		}
		return nil
	}}
}

// receipts answers for each envelope, from what the statements found.
func (a *appending) receipts() ([]schema.Receipt, error) {
	receipts := make([]schema.Receipt, len(a.envs))
	var faults []error
	for i := range a.envs {
		id := a.envs[i].ID
		receipts[i].ID = id
		if a.keys == nil || a.keys[i] == nil {
			continue
		}
		k := a.keys[i]
		switch {
		case k.messageID == "": // it was there when we tried to write it and had expired when we looked
			faults = append(faults, fmt.Errorf("message %s: its key has just expired: %w", id, schema.ErrRetryTransaction))
		case !bytes.Equal(k.bodyHash, k.body[:]):
			faults = append(faults, keyReused(id, k.messageID))
		case k.env != i || !k.isNew:
			receipts[i] = schema.Receipt{ID: k.messageID, Existing: true}
		}
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	return receipts, nil
}
