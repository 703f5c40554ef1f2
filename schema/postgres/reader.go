package postgres

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/millbridge/millbridge/schema"
)

// A Reader reads one shard of the outbox. It is not safe for concurrent use.
type Reader struct {
	s        *Store
	ref      schema.ShardRef
	stream   string
	from, to int // slots
	identity string
	floor    int64
	done     int64 // up to here reads have returned all there is and can be
	solid    int64 // up to here all commits there are and can be are on disk
	rest     rest
}

// NewReader returns a reader of one of so many shards. It does no I/O.
func (s *Store) NewReader(ref schema.ShardRef, shards int) *Reader {
	r := &Reader{s: s, ref: ref, stream: string(ref.Stream)}
	r.from, r.to = ref.Slots(shards)
	return r
}

// Reset makes the next read start from the beginning of the table. Call it when another owner may have worked on the
// shard.
func (r *Reader) Reset() { r.floor, r.done, r.solid, r.rest = 0, 0, 0, rest{} }

// Read returns rows that are safe to send, by sequence: they are committed and their commits are on disk. Rows whose
// ordering key has a parked row are left out.
//
// Rows at or below the floor are not looked at. The floor never passes a row that is still there or that can still be
// committed; see [horizon]. Nor are rows up to the rest, while nobody who could commit one has ended; see [rest]. A read
// that goes on begins where the one before has ended, unless rows can still be committed below.
func (r *Reader) Read(ctx context.Context, p schema.ReadParams) ([]schema.Row, error) {
	if p.MaxRows <= 0 {
		p.MaxRows = schema.MaxBatchRows
	}
	if p.MaxBytes <= 0 {
		p.MaxBytes = schema.MaxBatchBytes
	}
	if !p.GoOn {
		r.done = 0
	}
	for {
		var a answer
		made, start := r.s.horizon.waiting(r.identity), max(r.floor, r.done)
		if seen, ok := p.Seen.(sight); ok && seen.stands(p) {
			seen.cut(p)
			a, made, p.Exclude = seen.answer, seen.made, seen.exclude
		} else {
			var err error
			if a, err = r.s.readRows(ctx, r, start, p); err != nil {
				return nil, r.s.failed("read outbox", err)
			}
		}
		p.Seen = nil
		if a.ledger < p.Removed {
			return nil, fmt.Errorf("read outbox: the ledger says batch %d, want at least %d: %w", a.ledger, p.Removed, schema.ErrRecovered)
		}
		if a.identity == "" {
			if err := r.s.newEpoch(ctx); err != nil {
				return nil, err
			}
			continue
		}
		if a.identity != r.identity {
			begun := start
			if a.rested {
				begun = max(start, r.rest.seq)
			}
			r.Reset()
			r.identity, made = a.identity, nil
			if begun > 0 { // that was about numbers that may have come back
				r.s.log.InfoContext(ctx, "database has restarted or recovered, outbox is read from its start", "stream", r.stream, "first_slot", r.from)
				continue
			}
		}
		reached := r.s.horizon.rise(a.identity, a.snapshot.xmin)
		r.raise(a, p, made, reached)
		if r.s.horizon.due(a.lastSeq, time.Now()) {
			if err := r.s.observe(ctx); err != nil {
				return nil, err
			}
		}
		flushed := a.flushed >= a.written
		if a.last() > r.solid && !flushed {
			var err error
			if flushed, err = r.s.awaitFlush(ctx, a); err != nil {
				return nil, err
			}
			if !flushed {
				continue // the server has crashed: some of the rows may be gone
			}
		}
		if flushed {
			r.solid = max(r.solid, reached)
		}
		if len(a.rows) > 0 {
			reached = min(reached, a.last())
		}
		r.done = max(r.done, reached)
		return a.rows, nil
	}
}

// raise lifts floor and rest. Nothing can be committed any more up to reached.
func (r *Reader) raise(a answer, p schema.ReadParams, made []observation, reached int64) {
	bound := int64(math.MaxInt64)
	for _, seq := range p.Exclude {
		bound = min(bound, seq-1)
	}
	if len(a.rows) > 0 {
		bound = min(bound, a.rows[0].Seq-1)
	}
	r.floor = max(r.floor, min(reached, bound))
	if now := restAt(made, a.snapshot, bound); !a.rested || now.seq > r.rest.seq {
		r.rest = now
	}
}

// An answer is what one read statement says.
type answer struct {
	identity string
	ledger   int64 // of the shard
	lastSeq  int64 // of the sequence
	snapshot snapshot
	rested   bool  // the read began at the rest, not at the floor
	written  int64 // the log's end, as bytes from its beginning
	flushed  int64
	rows     []schema.Row
}

// last is the sequence of the last row; 0 without rows.
func (a answer) last() int64 {
	if len(a.rows) == 0 {
		return 0
	}
	return a.rows[len(a.rows)-1].Seq
}

// sqlIdentity changes whenever what we remember of the database may be wrong: after a crash, a restart, a restore, a
// fail-over, and when another database has taken the name of ours. It is NULL while there is no epoch.
const sqlIdentity = `concat((SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database()), '/',
	left(pg_walfile_name(pg_current_wal_insert_lsn()), 8), '/', extract(epoch FROM pg_postmaster_start_time()))
	|| '/' || (SELECT token::text FROM millbridge.epoch)`

// sqlInFront is whether no parked row is before row o in its ordering key.
const sqlInFront = `NOT EXISTS (SELECT FROM millbridge.parked AS p WHERE p.order_lock = o.order_lock AND p.seq < o.seq)`

// sqlRead answers with what it has found out about the database, and then with the rows. A page ends where its rows have
// more bytes than are wanted, but has one row at least.
const sqlRead = `
	WITH at AS MATERIALIZED (
		SELECT coalesce(` + sqlIdentity + `, '') AS identity,
		       coalesce((SELECT batch FROM millbridge.shards WHERE stream = $1::text AND generation = $8::integer AND shard = $9::integer),
		                9223372036854775807) AS ledger,
		       ` + sqlLastSeq + ` AS last_seq,
		       pg_current_snapshot()::text AS snapshot,
		       (pg_current_wal_flush_lsn() - '0/0'::pg_lsn)::bigint AS flushed,
		       (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint AS written
	), place AS MATERIALIZED (
		SELECT $10::bigint <= $2::bigint OR $12::bigint[] = ARRAY(
		           SELECT x::text::bigint FROM pg_snapshot_xip(pg_current_snapshot()) AS x WHERE x::text::bigint < $11::bigint ORDER BY 1) AS rested,
		       NOT EXISTS (SELECT FROM millbridge.parked WHERE order_lock IS NOT NULL) AS none_parked
	), page AS (
		SELECT o.seq, o.id, o.slot, o.subject, o.order_lock, o.header, o.payload, o.created_at, octet_length(o.header) + octet_length(o.payload) AS size
		  FROM millbridge.outbox AS o
		 WHERE o.stream = $1::text AND o.seq > (SELECT CASE WHEN rested THEN greatest($10::bigint, $2::bigint) ELSE $2::bigint END FROM place)
		   AND o.slot BETWEEN $3::integer AND $4::integer AND o.seq NOT IN (SELECT unnest($5::bigint[]))
		   AND (o.order_lock IS NULL OR (SELECT none_parked FROM place) OR ` + sqlInFront + `)
		 ORDER BY o.seq
		 LIMIT $6::bigint
	), sized AS (
		SELECT page.*, sum(size) OVER (ORDER BY seq ROWS UNBOUNDED PRECEDING) AS total FROM page
	)
	SELECT identity, ledger, last_seq, snapshot, flushed, written, rested,
	       NULL::bigint, NULL::uuid, NULL::integer, NULL::text, NULL::bigint, NULL::bytea, NULL::bytea, NULL::timestamptz
	  FROM at, place
	UNION ALL
	SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, seq, id, slot, subject, coalesce(order_lock, 0), header, payload, created_at
	  FROM sized WHERE total <= $7::bigint OR total = size`

// readRows reads rows above start.
func (s *Store) readRows(ctx context.Context, r *Reader, start int64, p schema.ReadParams) (answer, error) {
	var a answer
	exclude := make([]int64, 0, len(p.Exclude)) // NULL would exclude all
	for _, seq := range p.Exclude {
		if seq > start {
			exclude = append(exclude, seq)
		}
	}
	stay := r.rest.open
	if stay == nil {
		stay = []int64{}
	}
	var row scannedRow
	var snapshot string
	first := []any{&a.identity, &a.ledger, &a.lastSeq, &snapshot, &a.flushed, &a.written, &a.rested, nil, nil, nil, nil, nil, nil, nil, nil}
	next := append([]any{nil, nil, nil, nil, nil, nil, nil}, row.dest()...)
	dest := first
	err := pgxRunner{s.pool}.run(ctx, byIndex, statement{
		sql:  sqlRead,
		args: []any{r.stream, start, r.from, r.to, exclude, p.MaxRows, p.MaxBytes, r.ref.Generation, r.ref.Shard, r.rest.seq, r.rest.xid, stay},
		each: func(rows rowSet) error {
			if err := rows.Scan(dest...); err != nil {
				return err
			}
			if &dest[0] != &first[0] {
				a.rows = append(a.rows, row.row(schema.Stream(r.stream)))
			}
			dest = next
			return nil
		},
	})
	if err == nil {
		a.snapshot, err = parseSnapshot(snapshot)
	}
	slices.SortStableFunc(a.rows, bySeq) // as they are: nothing promises it
	return a, err
}

// outboxColumns is how many columns of a row are read.
const outboxColumns = 8

// A scannedRow is a place for rows one after the other. Many of them share the memory that their bytes are in.
type scannedRow struct {
	schema.Row
	subject      sameText
	header, data bytesIn
	slab         slab
}

func (r *scannedRow) dest() []any {
	r.header.slab, r.data.slab = &r.slab, &r.slab
	return []any{&r.Seq, (*[16]byte)(&r.ID), &r.Slot, &r.subject, &r.OrderLock, &r.header, &r.data, &r.CreatedAt}
}

// row returns what was read.
func (r *scannedRow) row(stream schema.Stream) schema.Row {
	row := r.Row
	row.Stream, row.Subject, row.Header, row.Payload = stream, r.subject.text, r.header.value, r.data.value
	row.CreatedAt = row.CreatedAt.UTC()
	return row
}

// newEpoch starts an epoch after the server has emptied the table.
func (s *Store) newEpoch(ctx context.Context) error {
	_, err := s.pool.Exec(ctx, `INSERT INTO millbridge.epoch DEFAULT VALUES ON CONFLICT (only_row) DO NOTHING`)
	return wrap("start a new epoch", err)
}

const (
	flushPoll  = time.Millisecond
	flushForce = 20 * time.Millisecond
)

// awaitFlush waits until the log is on disk up to where it was when the rows were read. same is false if the server
// has lost its memory since.
func (s *Store) awaitFlush(ctx context.Context, a answer) (same bool, err error) {
	start := time.Now()
	forced := false
	tick := time.NewTicker(flushPoll)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return false, wrap("wait for commits to be on disk", context.Cause(ctx))
		case <-tick.C:
		}
		if !forced && time.Since(start) > flushForce {
			if err := s.forceFlush(ctx); err != nil {
				return false, err
			}
			forced = true
		}
		var identity *string
		var flushed int64
		err := s.pool.QueryRow(ctx, `SELECT `+sqlIdentity+`, (pg_current_wal_flush_lsn() - '0/0'::pg_lsn)::bigint`).Scan(&identity, &flushed)
		switch {
		case err != nil:
			return false, wrap("wait for commits to be on disk", err)
		case identity == nil || *identity != a.identity:
			return false, nil
		case flushed >= a.written:
			return true, nil
		}
	}
}

// forceFlush is for when nobody else flushes: a commit of our own does, and with it all that was written before.
func (s *Store) forceFlush(ctx context.Context) error {
	err := pgxRunner{s.pool}.run(ctx, durably, statement{sql: `SELECT pg_logical_emit_message(true, 'millbridge', '')`})
	return wrap("force commits to disk", err)
}
