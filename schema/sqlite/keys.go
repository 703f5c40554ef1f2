package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/millbridge/millbridge/schema"
)

// A usedKey is an explicit idempotency key and the message that stands for it.
type usedKey struct {
	hash, body [32]byte
	message    string
}

// takeKeys takes the explicit idempotency keys of envs and returns the receipts: those whose key had been used with
// the same content name the message that stands for it.
func (s *Store) takeKeys(ctx context.Context, tx *sql.Tx, envs []schema.Envelope, now int64) ([]schema.Receipt, error) {
	receipts := make([]schema.Receipt, len(envs))
	wanted := make(map[[32]byte]usedKey)
	var order []usedKey
	for i, e := range envs {
		receipts[i].ID = e.ID
		if !keyed(e) {
			continue
		}
		k := usedKey{hash: e.KeyHash(), body: e.BodyHash(), message: e.ID}
		if _, twice := wanted[k.hash]; !twice {
			wanted[k.hash] = k
			order = append(order, k)
		}
	}
	if len(order) == 0 {
		return receipts, nil
	}
	for start := 0; start < len(order); start += chunk {
		if err := s.takeChunk(ctx, tx, order[start:min(start+chunk, len(order))], now, wanted); err != nil {
			return nil, err
		}
	}
	var reused []error
	for i, e := range envs {
		if !keyed(e) {
			continue
		}
		k := wanted[e.KeyHash()]
		switch {
		case k.body != e.BodyHash():
			reused = append(reused, keyReused(e.ID, k.message))
		case k.message != e.ID:
			receipts[i] = schema.Receipt{ID: k.message, Existing: true}
		}
	}
	return receipts, errors.Join(reused...)
}

// takeChunk takes what is free (or was used too long ago) and puts what is not into wanted.
func (s *Store) takeChunk(ctx context.Context, tx *sql.Tx, keys []usedKey, now int64, wanted map[[32]byte]usedKey) error {
	args := make([]any, 0, len(keys)*4+1)
	hashes := make([]any, 0, len(keys))
	for _, k := range keys {
		args = append(args, k.hash[:], k.message, k.body[:], now)
		hashes = append(hashes, k.hash[:])
	}
	n, err := affected(ctx, tx, `INSERT INTO millbridge_keys (key_hash, message_id, body_hash, used_at)
		VALUES (?,?,?,?)`+strings.Repeat(",(?,?,?,?)", len(keys)-1)+`
		ON CONFLICT (key_hash) DO UPDATE SET message_id = excluded.message_id, body_hash = excluded.body_hash, used_at = excluded.used_at
		WHERE used_at < ?`, append(args, now-s.opts.Keep.Nanoseconds())...)
	if err != nil || n == len(keys) {
		return err
	}
	used, err := collect(ctx, tx, func(rows *sql.Rows, k *usedKey) error {
		var hash, body []byte
		if err := rows.Scan(&hash, &k.message, &body); err != nil {
			return err
		}
		copy(k.hash[:], hash)
		copy(k.body[:], body)
		return nil
	}, `SELECT key_hash, message_id, body_hash FROM millbridge_keys
		WHERE key_hash IN (?`+strings.Repeat(",?", len(hashes)-1)+`)`, hashes...)
	for _, k := range used {
		wanted[k.hash] = k
	}
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
