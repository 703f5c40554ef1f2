package postgres

import (
	"cmp"
	"context"
	"slices"

	"github.com/millbridge/millbridge/schema"
)

const (
	// peekRows is how many rows of a reader a look takes along, and peekBytes how large each may be. If there are more, or
	// one is larger, they are for a read.
	peekRows  = 16
	peekBytes = 32 << 10
)

// A sight is the answer that a read would have had at the time of a look.
type sight struct {
	answer
	exclude []int64       // rows that it leaves out
	made    []observation // that waited before
}

// Look returns what the reader knows before a read with these parameters, for [Store.Peek].
func (r *Reader) Look(p schema.ReadParams) schema.Look {
	after := r.floor
	if p.GoOn {
		after = max(after, r.done)
	}
	return schema.Look{
		ShardRef: r.ref, FromSlot: r.from, ToSlot: r.to, Exclude: p.Exclude, After: after,
		Rested: r.rest.seq, RestedXID: r.rest.xid, Open: r.rest.open, Identity: r.identity,
	}
}

// Peek tells for each look whether its reader may find something to read now, and if that is little, what. It costs much
// less than the reads: one short statement for all of them. Where it says no there was nothing.
func (s *Store) Peek(ctx context.Context, looks []schema.Look) ([]schema.Sight, error) {
	if len(looks) == 0 {
		return nil, nil
	}
	var streams []string
	var after, exclude []int64
	var from, to, generations, shards []int
	for _, l := range looks {
		streams, after = append(streams, string(l.Stream)), append(after, max(l.After, l.Rested))
		from, to = append(from, l.FromSlot), append(to, l.ToSlot)
		generations, shards = append(generations, l.Generation), append(shards, l.Shard)
		exclude = append(exclude, l.Exclude...)
	}
	if exclude == nil {
		exclude = []int64{} // NULL would exclude all
	}
	made := s.horizon.waiting(looks[0].Identity)
	at := answer{rested: true}
	found := make([]*sight, len(looks))
	var now string
	first := []any{&at.identity, &at.lastSeq, &now, &at.flushed, &at.written}
	for range 2 + outboxColumns {
		first = append(first, nil)
	}
	var place int
	var ledger int64
	var row scannedRow
	next := append([]any{nil, nil, nil, nil, nil, &place, &ledger}, row.dest()...)
	dest := first
	err := pgxRunner{s.pool}.run(ctx, byIndex, statement{
		sql: sqlPeek, args: []any{streams, after, from, to, exclude, peekRows, generations, shards, peekBytes},
		each: func(rows rowSet) error {
			if err := rows.Scan(dest...); err != nil {
				return err
			}
			if &dest[0] == &first[0] {
				dest = next
				return nil
			}
			if found[place-1] == nil {
				found[place-1] = &sight{}
			}
			a := found[place-1]
			a.ledger, a.rows = ledger, append(a.rows, row.row(looks[place-1].Stream))
			return nil
		},
	})
	if err == nil {
		at.snapshot, err = parseSnapshot(now)
	}
	if err != nil {
		return nil, s.failed("look for rows in outbox", err)
	}
	sights := make([]schema.Sight, len(looks))
	for i, l := range looks {
		sights[i].Found = found[i] != nil
		if at.identity == "" || at.identity != l.Identity || l.Rested > l.After && !slices.Equal(at.snapshot.below(l.RestedXID), l.Open) {
			sights[i].Found = true // but not what: that took the reader to know more than it does
			continue
		}
		if a := found[i]; a != nil && a.small() {
			all := at
			all.ledger, all.rows = a.ledger, a.rows
			slices.SortStableFunc(all.rows, bySeq) // as they are: nothing promises it
			seen := sight{answer: all, exclude: l.Exclude}
			if l.Identity == looks[0].Identity {
				seen.made = made
			}
			sights[i].Seen = seen
		}
	}
	return sights, nil
}

// small reports whether these are all the rows there are, with what they hold.
func (a *sight) small() bool {
	return len(a.rows) < peekRows && !slices.ContainsFunc(a.rows, func(r schema.Row) bool { return r.Payload == nil })
}

func bySeq(x, y schema.Row) int { return cmp.Compare(x.Seq, y.Seq) }

// stands reports whether what was seen is still as good as the answer of a read that began at the time of the look.
func (a sight) stands(p schema.ReadParams) bool { return a.ledger >= p.Removed }

// cut leaves as many rows as a read with these parameters returns.
func (a *sight) cut(p schema.ReadParams) {
	bytes := 0
	for i, row := range a.rows {
		bytes += len(row.Header) + len(row.Payload)
		if i == p.MaxRows || i > 0 && bytes > p.MaxBytes {
			a.rows = a.rows[:i]
			return
		}
	}
}

const sqlPeek = `
	WITH at AS MATERIALIZED (
		SELECT coalesce(` + sqlIdentity + `, '') AS identity, ` + sqlLastSeq + ` AS last_seq, pg_current_snapshot()::text AS snapshot,
		       (pg_current_wal_flush_lsn() - '0/0'::pg_lsn)::bigint AS flushed,
		       (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint AS written
	)
	SELECT identity, last_seq, snapshot, flushed, written, NULL::bigint, NULL::bigint,
	       NULL::bigint, NULL::uuid, NULL::integer, NULL::text, NULL::bigint, NULL::bytea, NULL::bytea, NULL::timestamptz
	  FROM at
	UNION ALL
	SELECT NULL, NULL, NULL, NULL, NULL, w.n,
	       coalesce((SELECT batch FROM millbridge.shards AS s WHERE s.stream = w.stream AND s.generation = w.generation AND s.shard = w.shard), 9223372036854775807),
	       o.seq, o.id, o.slot, o.subject, coalesce(o.order_lock, 0), o.header,
	       CASE WHEN octet_length(o.header) + octet_length(o.payload) <= $9::integer THEN o.payload END, o.created_at
	  FROM unnest($1::text[], $2::bigint[], $3::integer[], $4::integer[], $7::integer[], $8::integer[])
	       WITH ORDINALITY AS w(stream, after, low, high, generation, shard, n)
	 CROSS JOIN LATERAL (
		SELECT * FROM millbridge.outbox AS o
		 WHERE o.stream = w.stream AND o.seq > w.after AND o.slot BETWEEN w.low AND w.high
		   AND o.seq NOT IN (SELECT unnest($5::bigint[])) AND (o.order_lock IS NULL OR ` + sqlInFront + `)
		 ORDER BY o.seq LIMIT $6::bigint) AS o`
