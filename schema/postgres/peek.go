package postgres

import (
	"context"
	"slices"

	"github.com/millbridge/millbridge/schema"
)

// Look returns what the reader knows before a read with these parameters, for [Store.Peek].
func (r *Reader) Look(p schema.ReadParams) schema.Look {
	after := r.floor
	if p.GoOn {
		after = max(after, r.done)
	}
	return schema.Look{
		Stream: schema.Stream(r.stream), FromSlot: r.from, ToSlot: r.to, Exclude: p.Exclude, After: after,
		Rested: r.rest.seq, RestedXID: r.rest.xid, Open: r.rest.open, Identity: r.identity,
	}
}

// Peek tells for each look whether its reader may find something to read now. It costs much less than the reads: one
// short statement for all of them. Where it says no there was nothing.
func (s *Store) Peek(ctx context.Context, looks []schema.Look) (found []bool, err error) {
	if len(looks) == 0 {
		return nil, nil
	}
	var streams []string
	var after, exclude []int64
	var from, to []int
	for _, l := range looks {
		streams, after = append(streams, string(l.Stream)), append(after, max(l.After, l.Rested))
		from, to = append(from, l.FromSlot), append(to, l.ToSlot)
		exclude = append(exclude, l.Exclude...)
	}
	if exclude == nil {
		exclude = []int64{} // NULL would exclude all
	}
	var identity, now string
	err = pgxRunner{s.pool}.run(ctx, byIndex, statement{
		sql: sqlPeek, args: []any{streams, after, from, to, exclude}, each: scan(&identity, &now, &found),
	})
	var at snapshot
	if err == nil {
		at, err = parseSnapshot(now)
	}
	if err != nil {
		return nil, s.failed("look for rows in outbox", err)
	}
	for i, l := range looks {
		found[i] = found[i] || identity != l.Identity || l.Rested > l.After && !slices.Equal(at.below(l.RestedXID), l.Open)
	}
	return found, nil
}

const sqlPeek = `
	SELECT coalesce(` + sqlIdentity + `, ''), pg_current_snapshot()::text,
	       ARRAY(SELECT EXISTS (
			SELECT FROM millbridge.outbox AS o
			 WHERE o.stream = w.stream AND o.seq > w.after AND o.slot BETWEEN w.low AND w.high
			   AND o.seq NOT IN (SELECT unnest($5::bigint[])) AND (o.order_lock IS NULL OR ` + sqlInFront + `))
		  FROM unnest($1::text[], $2::bigint[], $3::integer[], $4::integer[]) WITH ORDINALITY AS w(stream, after, low, high, n) ORDER BY n)`
