package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/millbridge/millbridge/schema"
)

// Keep returns how long idempotency keys and finished inbox rows are kept.
func (s *Store) Keep() time.Duration { return s.opts.Keep }

// Settled notes that a message of the stream of jobs is done with although the inbox row of its key stands for another:
// a second message of the key, or one that has no key. Noting it again changes nothing.
func (s *Store) Settled(ctx context.Context, run schema.Run) error {
	return s.update(ctx, "note message as settled", func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO millbridge_settled (message_id, stream_seq, handler, settled_at)
			VALUES (?,?,?,?) ON CONFLICT DO NOTHING`, run.MessageID, int64(run.Sequence), run.Key.Handler, s.now())
		return err
	})
}

// Accounts counts in one snapshot what became of the messages that this outbox has sent.
func (s *Store) Accounts(ctx context.Context, p schema.AccountsParams) (schema.Accounts, error) {
	a := schema.Accounts{
		Inbox: map[string]map[schema.InboxState]int64{}, Settled: map[string]int64{}, Pruned: map[string]int64{},
		Dropped: map[schema.Stream]int64{}, Accepted: map[schema.Stream]int64{},
	}
	tx, err := s.read.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return a, wrap("count accounts", err)
	}
	defer tx.Rollback() //nolint:errcheck // nothing was written
	err = countAccounts(ctx, tx, &a, p.Until)
	for part := range slices.Chunk(p.InStream, chunk) {
		if err != nil {
			break
		}
		args := make([]any, 0, 2*len(part))
		for _, m := range part {
			args = append(args, int64(m.Sequence), m.MessageID)
		}
		var both int64
		err = tx.QueryRowContext(ctx, `WITH m (seq, id) AS (VALUES (?,?)`+strings.Repeat(",(?,?)", len(part)-1)+`)
			SELECT count(*) FROM m
			 WHERE EXISTS (SELECT 1 FROM millbridge_inbox AS i WHERE i.message_id = m.id AND i.stream_seq = m.seq AND i.state <> 'running')
			    OR EXISTS (SELECT 1 FROM millbridge_settled AS s WHERE s.stream_seq = m.seq)`, args...).Scan(&both)
		a.Overlap += both
	}
	return a, wrap("count accounts", err)
}

type accountRow struct {
	what, name string
	n, settled int64
}

func scanAccount(rows *sql.Rows, r *accountRow) error {
	return rows.Scan(&r.what, &r.name, &r.n, &r.settled)
}

func countAccounts(ctx context.Context, tx *sql.Tx, a *schema.Accounts, until uint64) error {
	var created int64
	if err := tx.QueryRowContext(ctx, "SELECT applied_at FROM millbridge_migrations WHERE version = 1").Scan(&created); err != nil {
		return err
	}
	a.Created = at(created)
	inbox, err := collect(ctx, tx, scanAccount, `SELECT state, handler, count(*), count(*) FILTER (WHERE state <> 'running' AND stream_seq BETWEEN 1 AND ?)
		FROM millbridge_inbox GROUP BY handler, state`, int64(until))
	if err != nil {
		return err
	}
	for _, r := range inbox {
		if a.Inbox[r.name] == nil {
			a.Inbox[r.name] = map[schema.InboxState]int64{}
		}
		a.Inbox[r.name][schema.InboxState(r.what)] = r.n
		a.Settled[r.name] += r.settled
	}
	settled, err := collect(ctx, tx, scanAccount, `SELECT '', handler, count(*) FILTER (WHERE stream_seq = 0), count(*) FILTER (WHERE stream_seq BETWEEN 1 AND ?)
		FROM millbridge_settled GROUP BY handler`, int64(until))
	if err != nil {
		return err
	}
	for _, r := range settled {
		if r.settled > 0 {
			a.Settled[r.name] += r.settled
		}
		if r.n > 0 {
			a.Dropped[schema.Stream(r.name)] += r.n
		}
	}
	counts, err := collect(ctx, tx, scanAccount, "SELECT what, name, n, 0 FROM millbridge_counts")
	if err != nil {
		return err
	}
	for _, r := range counts {
		switch r.what {
		case "pruned":
			a.Settled[r.name] += r.n
			a.Pruned[r.name] = r.n
		case "accepted":
			a.Accepted[schema.Stream(r.name)] = r.n
		default:
			return fmt.Errorf("unknown count %q", r.what)
		}
	}
	return nil
}

// Accept adds n to the differences of a stream that an operator has accepted.
func (s *Store) Accept(ctx context.Context, stream schema.Stream, n int64) error {
	return s.update(ctx, "accept difference", func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO millbridge_counts (what, name, n) VALUES ('accepted', ?, ?)
			ON CONFLICT (what, name) DO UPDATE SET n = n + excluded.n`, string(stream), n)
		return err
	})
}

// Unplaced returns those of the messages of which the database has no trace: no row, no inbox record, no note.
func (s *Store) Unplaced(ctx context.Context, messageIDs []string) ([]string, error) {
	var missing []string
	for part := range slices.Chunk(messageIDs, chunk) {
		args := make([]any, 0, 3*len(part))
		for _, id := range part {
			row := schema.RowID(id)
			args = append(args, id, row[:], row.String())
		}
		list, err := collect(ctx, s.read, func(rows *sql.Rows, id *string) error { return rows.Scan(id) },
			`WITH m (id, row, row_text) AS (VALUES (?,?,?)`+strings.Repeat(",(?,?,?)", len(part)-1)+`)
			SELECT m.id FROM m
			 WHERE NOT EXISTS (SELECT 1 FROM millbridge_inbox AS i WHERE i.message_id = m.id)
			   AND NOT EXISTS (SELECT 1 FROM millbridge_scheduled AS r WHERE r.id = m.row)
			   AND NOT EXISTS (SELECT 1 FROM millbridge_parked AS r WHERE r.id = m.row)
			   AND NOT EXISTS (SELECT 1 FROM millbridge_settled AS s WHERE s.message_id IN (m.id, m.row_text))
			   AND m.row NOT IN (SELECT id FROM millbridge_outbox)`, args...)
		if err != nil {
			return nil, wrap("look for messages", err)
		}
		missing = append(missing, list...)
	}
	return missing, nil
}

// DeadRecords lists inbox rows of messages that were given up, by hash.
func (s *Store) DeadRecords(ctx context.Context, after []byte, limit int) ([]schema.DeadRecord, error) {
	if after == nil {
		after = []byte{} // nil would be NULL
	}
	list, err := collect(ctx, s.read, func(rows *sql.Rows, d *schema.DeadRecord) error {
		var hash []byte
		err := rows.Scan(&hash, &d.Handler, &d.MessageID, &d.Replay, &d.Sequence)
		copy(d.Hash[:], hash)
		return err
	}, `SELECT key_hash, handler, message_id, replay, stream_seq FROM millbridge_inbox
		WHERE state = 'dead' AND key_hash > ? ORDER BY key_hash LIMIT ?`, after, limit)
	return list, wrap("list dead keys", err)
}

// PublishedKeys lists explicit idempotency keys, by hash.
func (s *Store) PublishedKeys(ctx context.Context, after []byte, limit int) ([]schema.PublishedKey, error) {
	if after == nil {
		after = []byte{} // nil would be NULL
	}
	list, err := collect(ctx, s.read, func(rows *sql.Rows, k *schema.PublishedKey) error {
		var used int64
		err := rows.Scan(&k.Hash, &k.MessageID, &used)
		k.At = at(used)
		return err
	}, `SELECT key_hash, message_id, used_at FROM millbridge_keys WHERE key_hash > ? ORDER BY key_hash LIMIT ?`, after, limit)
	return list, wrap("list keys", err)
}

// KnownKeys returns those of the inbox keys, by hash, that the inbox has a row for.
func (s *Store) KnownKeys(ctx context.Context, hashes [][32]byte) (map[[32]byte]bool, error) {
	known := make(map[[32]byte]bool, len(hashes))
	for part := range slices.Chunk(hashes, chunk) {
		args := make([]any, len(part))
		for i := range part {
			args[i] = part[i][:]
		}
		found, err := collect(ctx, s.read, scanHash, `SELECT key_hash FROM millbridge_inbox WHERE key_hash IN (?`+
			strings.Repeat(",?", len(part)-1)+`)`, args...)
		if err != nil {
			return nil, wrap("look up keys", err)
		}
		for _, hash := range found {
			known[hash] = true
		}
	}
	return known, nil
}
