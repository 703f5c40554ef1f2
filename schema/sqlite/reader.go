package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"

	"github.com/millbridge/millbridge/schema"
)

// A Reader reads the rows of one shard. It keeps nothing between reads.
type Reader struct {
	store  *Store
	ref    schema.ShardRef
	shards int
}

// NewReader returns a reader for one shard of shards.
func (s *Store) NewReader(ref schema.ShardRef, shards int) *Reader {
	return &Reader{store: s, ref: ref, shards: max(shards, 1)}
}

// Reset is for databases whose readers remember where to begin; this one begins at the oldest row each time.
func (r *Reader) Reset() {}

// Read returns rows that are safe to send, oldest first. Rows behind a parked row of their ordering key are not.
func (r *Reader) Read(ctx context.Context, p schema.ReadParams) ([]schema.Row, error) {
	if p.MaxRows <= 0 {
		p.MaxRows = schema.MaxBatchRows
	}
	if p.MaxBytes <= 0 {
		p.MaxBytes = schema.MaxBatchBytes
	}
	rows, err := r.read(ctx, p)
	if err != nil || len(rows) == 0 {
		return nil, wrap("read outbox", err)
	}
	if err := r.store.flush(ctx, rows[len(rows)-1].Seq); err != nil {
		return nil, err
	}
	return rows, nil
}

func (r *Reader) read(ctx context.Context, p schema.ReadParams) ([]schema.Row, error) {
	found, err := r.store.read.QueryContext(ctx, "SELECT seq, "+rowColumns+`,
			(SELECT batch FROM millbridge_shards AS s WHERE s.stream = ? AND s.generation = ? AND s.shard = ?)
		FROM millbridge_outbox AS o
		WHERE stream = ? AND (slot * ?) >> 16 = ?
		AND seq NOT IN (SELECT value FROM json_each(?))
		AND `+sqlInFront+`
		ORDER BY seq LIMIT ?`, string(r.ref.Stream), r.ref.Generation, r.ref.Shard, string(r.ref.Stream), r.shards, r.ref.Shard, list(p.Exclude), p.MaxRows)
	if err != nil {
		return nil, err
	}
	defer found.Close()
	var rows []schema.Row
	bytes := 0
	for found.Next() {
		var row schema.Row
		var ledger sql.NullInt64
		if err := scanRow(found, &row, &ledger); err != nil {
			return nil, err
		}
		if ledger.Valid && ledger.Int64 < p.Removed {
			return nil, fmt.Errorf("the ledger says batch %d, want at least %d: %w", ledger.Int64, p.Removed, schema.ErrRecovered)
		}
		bytes += len(row.Header) + len(row.Payload)
		if len(rows) > 0 && bytes > p.MaxBytes {
			break
		}
		rows = append(rows, row)
	}
	return rows, found.Err()
}

// Look returns what the reader knows before a read with these parameters, for [Store.Peek].
func (r *Reader) Look(p schema.ReadParams) schema.Look {
	first, last := r.ref.Slots(r.shards)
	return schema.Look{ShardRef: r.ref, FromSlot: first, ToSlot: last, Exclude: p.Exclude}
}

// Peek tells for each look whether its reader may find something to read now, in one short statement.
func (s *Store) Peek(ctx context.Context, looks []schema.Look) ([]schema.Sight, error) {
	if len(looks) == 0 {
		return nil, nil
	}
	type look struct {
		Stream   string
		From, To int
	}
	asked := make([]look, len(looks))
	var exclude []int64
	for i, l := range looks {
		asked[i] = look{string(l.Stream), l.FromSlot, l.ToSlot}
		exclude = append(exclude, l.Exclude...)
	}
	param, err := json.Marshal(asked)
	if err != nil {
		return nil, wrap("look for rows in outbox", err)
	}
	rows, err := s.read.QueryContext(ctx, sqlPeek, string(param), list(exclude))
	if err != nil {
		return nil, wrap("look for rows in outbox", err)
	}
	defer rows.Close()
	found := make([]schema.Sight, len(looks))
	for rows.Next() {
		var i int
		if err := rows.Scan(&i); err != nil {
			return nil, wrap("look for rows in outbox", err)
		}
		found[i].Found = true
	}
	return found, wrap("look for rows in outbox", rows.Err())
}

// sqlPeek has one list of what is not looked for, since a sequence is of one shard: a list for each look would be read again
// for each row, which takes seconds when thousands are in flight.
const sqlPeek = `
	SELECT w.key FROM json_each(?) AS w WHERE EXISTS (SELECT 1 FROM millbridge_outbox AS o
	WHERE o.stream = w.value->>'Stream' AND o.slot BETWEEN w.value->>'From' AND w.value->>'To'
	AND o.seq NOT IN (SELECT value FROM json_each(?))
	AND ` + sqlInFront + `)`

// sqlInFront is whether row o may be sent before any parked row of its ordering key.
const sqlInFront = `(order_lock IS NULL OR NOT EXISTS (SELECT 1 FROM millbridge_parked AS p WHERE p.order_lock = o.order_lock AND p.seq < o.seq))`

// flush makes sure that all rows up to seq are on disk. Writing with synchronous=FULL syncs the write-ahead log, and
// with it all commits before, whatever connections made them and however they were set.
func (s *Store) flush(ctx context.Context, seq int64) error {
	if s.flushed.Load() >= seq {
		return nil
	}
	var last int64
	err := s.update(ctx, "flush outbox", func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "UPDATE millbridge_meta SET flushes = flushes + 1"); err != nil {
			return err
		}
		var err error
		last, err = lastSeq(ctx, tx)
		return err
	})
	if err != nil {
		return err
	}
	s.setFlushed(last)
	return nil
}

// lastSeq returns the highest sequence that was ever committed, or written by tx itself.
func lastSeq(ctx context.Context, tx *sql.Tx) (int64, error) {
	var last int64
	err := tx.QueryRowContext(ctx, "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'millbridge_outbox'").Scan(&last)
	return last, err
}

// setFlushed records what a commit of ours, which wrote something, has covered.
func (s *Store) setFlushed(seq int64) {
	for {
		old := s.flushed.Load()
		if old >= seq || s.flushed.CompareAndSwap(old, seq) {
			return
		}
	}
}
