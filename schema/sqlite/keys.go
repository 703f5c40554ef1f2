package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/millbridge/millbridge/schema"
)

// A usedKey is an explicit idempotency key and the message that stands for it.
type usedKey struct {
	hash, body [32]byte
	message    string
	first      int  // the envelope of this call that asked for it first
	old        bool // it was used before this call
}

// takeKeys takes the explicit idempotency keys of envs and returns the receipts: those whose key had been used with
// the same content name the message that stands for it.
func (s *Store) takeKeys(ctx context.Context, tx *sql.Tx, envs []schema.Envelope, now int64) ([]schema.Receipt, error) {
	receipts := make([]schema.Receipt, len(envs))
	keys := make(map[[32]byte]*usedKey)
	var wanted []*usedKey
	for i, e := range envs {
		receipts[i].ID = e.ID
		if !keyed(e) {
			continue
		}
		if hash := e.KeyHash(); keys[hash] == nil {
			keys[hash] = &usedKey{hash: hash, body: e.BodyHash(), message: e.ID, first: i}
			wanted = append(wanted, keys[hash])
		}
	}
	for part := range slices.Chunk(wanted, chunk) {
		if err := s.takeChunk(ctx, tx, part, now, keys); err != nil {
			return nil, err
		}
	}
	var reused []error
	for i, e := range envs {
		if !keyed(e) {
			continue
		}
		k := keys[e.KeyHash()]
		switch {
		case k.body != e.BodyHash():
			reused = append(reused, keyReused(e.ID, k.message))
		case k.old || k.first != i:
			receipts[i] = schema.Receipt{ID: k.message, Existing: true}
		}
	}
	return receipts, errors.Join(reused...)
}

// takeChunk takes the keys that are free, or were used too long ago, and enters who uses the others.
func (s *Store) takeChunk(ctx context.Context, tx *sql.Tx, wanted []*usedKey, now int64, keys map[[32]byte]*usedKey) error {
	args := make([]any, 0, len(wanted)*4+1)
	for _, k := range wanted {
		k.old = true
		args = append(args, k.hash[:], k.message, k.body[:], now)
	}
	taken, err := collect(ctx, tx, scanHash, `INSERT INTO millbridge_keys (key_hash, message_id, body_hash, used_at)
		VALUES (?,?,?,?)`+strings.Repeat(",(?,?,?,?)", len(wanted)-1)+`
		ON CONFLICT (key_hash) DO UPDATE SET message_id = excluded.message_id, body_hash = excluded.body_hash, used_at = excluded.used_at
		WHERE used_at < ? RETURNING key_hash`, append(args, now-s.opts.Keep.Nanoseconds())...)
	for _, hash := range taken {
		keys[hash].old = false
	}
	if err != nil || len(taken) == len(wanted) {
		return err
	}
	var old []any
	for _, k := range wanted {
		if k.old {
			old = append(old, k.hash[:])
		}
	}
	used, err := collect(ctx, tx, func(rows *sql.Rows, k *usedKey) error {
		var hash, body []byte
		err := rows.Scan(&hash, &k.message, &body)
		copy(k.hash[:], hash)
		copy(k.body[:], body)
		return err
	}, `SELECT key_hash, message_id, body_hash FROM millbridge_keys WHERE key_hash IN (?`+strings.Repeat(",?", len(old)-1)+`)`, old...)
	for _, k := range used {
		keys[k.hash].message, keys[k.hash].body = k.message, k.body
	}
	return err
}

func scanHash(rows *sql.Rows, hash *[32]byte) error {
	var b []byte
	err := rows.Scan(&b)
	copy(hash[:], b)
	return err
}

// keyed reports whether e takes an explicit idempotency key. A replay has its message's key on purpose and takes none.
func keyed(e schema.Envelope) bool { return e.Key != "" && e.Replay == nil }

func keyReused(id, by string) error {
	fault := &schema.ValidationError{ID: id, Faults: []schema.Fault{{
		Field: "key", Reason: "was used by message " + by + " with other content",
	}}}
	return fmt.Errorf("%w: %w", schema.ErrKeyReused, fault)
}
