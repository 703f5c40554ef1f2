package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/millbridge/millbridge/schema"
)

// accountsChunk is how many messages one statement looks up.
const accountsChunk = 5000

// Keep returns how long idempotency keys and finished inbox rows are kept.
func (s *Store) Keep() time.Duration { return s.keep }

// Settled notes that a message of the stream of jobs is done with although the inbox row of its key stands for another:
// a second message of the key, or one that has no key. Noting it again changes nothing.
func (s *Store) Settled(ctx context.Context, run schema.Run) error {
	err := pgxRunner{s.pool}.run(ctx, durably, statement{sql: `INSERT INTO millbridge.settled (stream_seq, message_id, handler)
		VALUES ($1::bigint, $2::text, $3::text) ON CONFLICT DO NOTHING`, args: []any{int64(run.Sequence), run.MessageID, run.Key.Handler}})
	return wrap("note message as settled", err)
}

// Accounts counts in one snapshot what became of the messages that this outbox has sent.
func (s *Store) Accounts(ctx context.Context, p schema.AccountsParams) (schema.Accounts, error) {
	a := schema.Accounts{
		Inbox: map[string]map[schema.InboxState]int64{}, Settled: map[string]int64{}, Pruned: map[string]int64{},
		Dropped: map[schema.Stream]int64{}, Accepted: map[schema.Stream]int64{},
	}
	tx, err := s.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return a, wrap("count accounts", err)
	}
	defer tx.Rollback(context.WithoutCancel(ctx)) //nolint:errcheck // nothing was written
	err = pgxRunner{tx}.run(ctx, append([]statement{
		{sql: `SELECT applied_at FROM millbridge.migrations WHERE version = 1`, each: func(rows rowSet) error {
			err := rows.Scan(&a.Created)
			a.Created = a.Created.UTC()
			return err
		}},
	}, countAccounts(&a, p.Until)...)...)
	for i := 0; i < len(p.InStream) && err == nil; i += accountsChunk {
		part := p.InStream[i:min(i+accountsChunk, len(p.InStream))]
		seqs, ids := make([]int64, len(part)), make([]string, len(part))
		for n, m := range part {
			seqs[n], ids[n] = int64(m.Sequence), m.MessageID
		}
		var both int64
		err = pgxRunner{tx}.run(ctx, byIndex, statement{
			sql: `SELECT count(*) FROM unnest($1::bigint[], $2::text[]) AS m(seq, id)
				WHERE EXISTS (SELECT FROM millbridge.inbox AS i WHERE i.message_id = m.id AND i.stream_seq = m.seq AND i.state <> 'running')
				   OR EXISTS (SELECT FROM millbridge.settled AS s WHERE s.stream_seq = m.seq)`,
			args: []any{seqs, ids}, each: scan(&both),
		})
		a.Overlap += both
	}
	return a, wrap("count accounts", err)
}

func countAccounts(a *schema.Accounts, until uint64) []statement {
	return []statement{
		{
			sql: `SELECT handler, state, count(*), count(*) FILTER (WHERE state <> 'running' AND stream_seq <= $1::bigint)
				FROM millbridge.inbox GROUP BY handler, state`,
			args: []any{int64(until)},
			each: func(rows rowSet) error {
				var handler, state string
				var n, settled int64
				if err := rows.Scan(&handler, &state, &n, &settled); err != nil {
					return err
				}
				if a.Inbox[handler] == nil {
					a.Inbox[handler] = map[schema.InboxState]int64{}
				}
				a.Inbox[handler][schema.InboxState(state)] = n
				a.Settled[handler] += settled
				return nil
			},
		},
		{
			sql: `SELECT handler, count(*) FILTER (WHERE stream_seq BETWEEN 1 AND $1::bigint), count(*) FILTER (WHERE stream_seq = 0)
				FROM millbridge.settled GROUP BY handler`,
			args: []any{int64(until)},
			each: func(rows rowSet) error {
				var handler string
				var settled, dropped int64
				if err := rows.Scan(&handler, &settled, &dropped); err != nil {
					return err
				}
				if settled > 0 {
					a.Settled[handler] += settled
				}
				if dropped > 0 {
					a.Dropped[schema.Stream(handler)] += dropped
				}
				return nil
			},
		},
		{
			sql: `SELECT what, name, n FROM millbridge.counts`,
			each: func(rows rowSet) error {
				var what, name string
				var n int64
				if err := rows.Scan(&what, &name, &n); err != nil {
					return err
				}
				switch what {
				case "pruned":
					a.Settled[name] += n
					a.Pruned[name] = n
				case "accepted":
					a.Accepted[schema.Stream(name)] = n
				default:
					return fmt.Errorf("unknown count %q", what)
				}
				return nil
			},
		},
	}
}

// Accept adds n to the differences of a stream that an operator has accepted.
func (s *Store) Accept(ctx context.Context, stream schema.Stream, n int64) error {
	_, err := s.pool.Exec(ctx, `INSERT INTO millbridge.counts AS c (what, name, n) VALUES ('accepted', $1::text, $2::bigint)
		ON CONFLICT (what, name) DO UPDATE SET n = c.n + excluded.n`, string(stream), n)
	return wrap("accept difference", err)
}

// Unplaced returns those of the messages of which the database has no trace: no row, no inbox record, no note.
func (s *Store) Unplaced(ctx context.Context, messageIDs []string) ([]string, error) {
	rowIDs := make([]string, len(messageIDs))
	for i, id := range messageIDs {
		rowIDs[i] = schema.RowID(id).String()
	}
	rows, err := s.pool.Query(ctx, `
		SELECT m.id FROM unnest($1::text[], $2::text[]::uuid[]) AS m(id, row)
		 WHERE NOT EXISTS (SELECT FROM millbridge.inbox AS i WHERE i.message_id = m.id)
		   AND NOT EXISTS (SELECT FROM millbridge.scheduled AS r WHERE r.id = m.row)
		   AND NOT EXISTS (SELECT FROM millbridge.parked AS r WHERE r.id = m.row)
		   AND NOT EXISTS (SELECT FROM millbridge.settled AS s WHERE s.message_id IN (m.id, m.row::text))
		   AND m.row NOT IN (SELECT id FROM millbridge.outbox)`, messageIDs, rowIDs)
	if err != nil {
		return nil, wrap("look for messages", err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return list, wrap("look for messages", err)
}

// DeadRecords lists inbox rows of messages that were given up, by hash.
func (s *Store) DeadRecords(ctx context.Context, after []byte, limit int) ([]schema.DeadRecord, error) {
	if after == nil {
		after = []byte{} // nil would be NULL
	}
	var list []schema.DeadRecord
	err := pgxRunner{s.pool}.run(ctx, statement{
		sql: `SELECT hash, handler, message_id, replay, coalesce(stream_seq, 0) FROM millbridge.inbox
			WHERE state = 'dead' AND since = 'infinity' AND hash > $1::bytea ORDER BY hash LIMIT $2::bigint`,
		args: []any{after, limit},
		each: func(rows rowSet) error {
			var d schema.DeadRecord
			var hash []byte
			var seq int64
			err := rows.Scan(&hash, &d.Handler, &d.MessageID, &d.Replay, &seq)
			copy(d.Hash[:], hash)
			d.Sequence = uint64(seq)
			list = append(list, d)
			return err
		},
	})
	return list, wrap("list dead keys", err)
}

// PublishedKeys lists explicit idempotency keys, by hash.
func (s *Store) PublishedKeys(ctx context.Context, after []byte, limit int) ([]schema.PublishedKey, error) {
	if after == nil {
		after = []byte{} // nil would be NULL
	}
	var list []schema.PublishedKey
	err := pgxRunner{s.pool}.run(ctx, statement{
		sql:  `SELECT hash, message_id, created_at FROM millbridge.keys WHERE hash > $1::bytea ORDER BY hash LIMIT $2::bigint`,
		args: []any{after, limit},
		each: func(rows rowSet) error {
			var k schema.PublishedKey
			err := rows.Scan(&k.Hash, &k.MessageID, &k.At)
			k.At = k.At.UTC()
			list = append(list, k)
			return err
		},
	})
	return list, wrap("list keys", err)
}

// KnownKeys returns those of the inbox keys, by hash, that the inbox has a row for.
func (s *Store) KnownKeys(ctx context.Context, hashes [][32]byte) (map[[32]byte]bool, error) {
	args := make([][]byte, len(hashes))
	for i := range hashes {
		args[i] = hashes[i][:]
	}
	known := make(map[[32]byte]bool, len(hashes))
	err := pgxRunner{s.pool}.run(ctx, statement{
		sql: `SELECT hash FROM millbridge.inbox WHERE hash = ANY ($1::bytea[])`, args: []any{args},
		each: func(rows rowSet) error {
			var hash []byte
			err := rows.Scan(&hash)
			if err == nil && len(hash) == 32 {
				known[[32]byte(hash)] = true
			}
			return err
		},
	})
	return known, wrap("look up keys", err)
}
