package sqlite

import (
	"context"
	"database/sql"
	"math"
	"time"

	"github.com/millbridge/millbridge/schema"
)

const inboxColumns = `handler, state, message_id, body_hash, attempts, deliveries, replay, cause, last_error,
	coalesce(lease_owner, ''), lease_until, next_try, updated_at, stream_seq`

func scanInbox(rows *sql.Rows, r *schema.InboxRow) error {
	var body []byte
	var lease, next, updated int64
	err := rows.Scan(&r.Key.Handler, &r.State, &r.MessageID, &body, &r.Attempts, &r.Deliveries, &r.Replay, &r.Cause, &r.LastError,
		&r.LeaseOwner, &lease, &next, &updated, &r.Sequence)
	copy(r.BodyHash[:], body)
	r.LeaseUntil, r.NextTry, r.UpdatedAt = at(lease), at(next), at(updated)
	return err
}

// lookup returns the row of a key; ok is false if there is none.
func lookup(ctx context.Context, q queryer, hash [32]byte) (row schema.InboxRow, ok bool, err error) {
	found, err := collect(ctx, q, scanInbox, "SELECT "+inboxColumns+" FROM millbridge_inbox WHERE key_hash = ?", hash[:])
	if err != nil || len(found) == 0 {
		return schema.InboxRow{}, false, err
	}
	return found[0], true, nil
}

const sqlInsertInbox = `INSERT INTO millbridge_inbox (key_hash, handler, state, message_id, body_hash, attempts, deliveries, replay,
		cause, last_error, lease_owner, lease_until, next_try, updated_at, since, stream_seq)
	VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?) ON CONFLICT (key_hash) DO NOTHING`

func (s *Store) insertRow(ctx context.Context, tx *sql.Tx, hash [32]byte, r schema.InboxRow) (bool, error) {
	n, err := s.affectedHot(ctx, tx, sqlInsertInbox, hash[:], r.Key.Handler, string(r.State), r.MessageID, r.BodyHash[:], r.Attempts, int64(r.Deliveries), r.Replay,
		string(r.Cause), r.LastError, leaseOwner(r), nanos(r.LeaseUntil), nanos(r.NextTry), nanos(r.UpdatedAt), since(r), int64(r.Sequence))
	return n > 0, err
}

func updateRow(ctx context.Context, tx *sql.Tx, hash [32]byte, r schema.InboxRow) error {
	_, err := tx.ExecContext(ctx, `UPDATE millbridge_inbox SET state = ?, message_id = ?, body_hash = ?, attempts = ?, deliveries = ?, replay = ?,
			cause = ?, last_error = ?, lease_owner = ?, lease_until = ?, next_try = ?, updated_at = ?, since = ?, stream_seq = ? WHERE key_hash = ?`,
		string(r.State), r.MessageID, r.BodyHash[:], r.Attempts, int64(r.Deliveries), r.Replay,
		string(r.Cause), r.LastError, leaseOwner(r), nanos(r.LeaseUntil), nanos(r.NextTry), nanos(r.UpdatedAt), since(r), int64(r.Sequence), hash[:])
	return err
}

// since is from when on a row's age counts: never while it is dead.
func since(r schema.InboxRow) int64 {
	if r.State == schema.InboxDead {
		return math.MaxInt64
	}
	return nanos(r.UpdatedAt)
}

func leaseOwner(r schema.InboxRow) any {
	if r.LeaseOwner == "" {
		return nil
	}
	return r.LeaseOwner
}

func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

// Done records that a claimed run has handled its message.
func (s *Store) Done(ctx context.Context, run schema.Run) error {
	return s.update(ctx, "record message as done", func(tx *sql.Tx) error { return s.done(ctx, tx, run) })
}

const sqlDone = `UPDATE millbridge_inbox SET state = 'done', lease_owner = NULL, lease_until = 0, next_try = 0, updated_at = ?
	WHERE key_hash = ? AND state = 'running' AND lease_owner = ? AND replay = ?`

func (s *Store) done(ctx context.Context, tx *sql.Tx, run schema.Run) error {
	hash := run.Key.Hash()
	n, err := s.affectedHot(ctx, tx, sqlDone, s.now(), hash[:], run.Owner, run.Replay)
	if err == nil && n == 0 {
		return leaseLost()
	}
	return err
}

// Free ends the lease of a run that is stopped before its end and records nothing else.
func (s *Store) Free(ctx context.Context, run schema.Run) error {
	hash := run.Key.Hash()
	return s.update(ctx, "free message", func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `UPDATE millbridge_inbox SET lease_owner = NULL, lease_until = 0
			WHERE key_hash = ? AND state = 'running' AND lease_owner = ?`, hash[:], run.Owner)
		return err
	})
}

// Extend gives the runs of these owners that are still theirs another lease from now on, and returns those owners.
func (s *Store) Extend(ctx context.Context, runs []schema.Run, lease time.Duration) ([]string, error) {
	if len(runs) == 0 {
		return nil, nil
	}
	var held []string
	err := s.update(ctx, "extend leases", func(tx *sql.Tx) error {
		held = nil
		until := s.now() + lease.Nanoseconds()
		for _, run := range runs {
			hash := run.Key.Hash()
			n, err := affected(ctx, tx, `UPDATE millbridge_inbox SET lease_until = ? WHERE key_hash = ? AND lease_owner = ? AND state = 'running'`,
				until, hash[:], run.Owner)
			if err != nil {
				return err
			}
			if n > 0 {
				held = append(held, run.Owner)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return held, nil
}

// LookupInbox returns what the inbox knows about a key; ok is false if nothing.
func (s *Store) LookupInbox(ctx context.Context, key schema.InboxKey) (rec schema.InboxRecord, ok bool, err error) {
	found, ok, err := lookup(ctx, s.read, key.Hash())
	if err != nil || !ok {
		return schema.InboxRecord{}, false, wrap("look up inbox", err)
	}
	shown := s.shown(found)
	shown.Key = key
	return shown, true, nil
}

// InboxByMessage returns the records, one per handler, of the message that was published with this id.
func (s *Store) InboxByMessage(ctx context.Context, messageID string) ([]schema.InboxRecord, error) {
	found, err := collect(ctx, s.read, scanInbox, "SELECT "+inboxColumns+" FROM millbridge_inbox WHERE message_id = ? ORDER BY handler", messageID)
	if err != nil {
		return nil, wrap("look up inbox", err)
	}
	recs := make([]schema.InboxRecord, len(found))
	for i, r := range found {
		recs[i] = s.shown(r)
	}
	return recs, nil
}

// shown returns the record as others see it: a lease that has ended is nobody's.
func (s *Store) shown(r schema.InboxRow) schema.InboxRecord {
	if !r.LeaseUntil.After(s.clock()) {
		r.LeaseOwner = ""
	}
	return r.InboxRecord
}

// ResetForReplay prepares the record of a dead letter for its next delivery, in the transaction that publishes the
// replay: a fresh budget of attempts and the replay number from+1. It is false if the key is not dead at replay number
// from, which means that somebody was quicker. A key that was never handled here gets a record.
func (s *Store) ResetForReplay(ctx context.Context, tx *sql.Tx, key schema.InboxKey, from int) (bool, error) {
	hash, now := key.Hash(), s.now()
	// What the row knows of the life that has ended is kept beside it.
	_, err := tx.ExecContext(ctx, `INSERT INTO millbridge_settled (message_id, stream_seq, handler, settled_at)
		SELECT message_id, stream_seq, handler, ? FROM millbridge_inbox
		WHERE key_hash = ? AND state = 'dead' AND replay = ? AND stream_seq > 0 ON CONFLICT DO NOTHING`, now, hash[:], from)
	if err != nil {
		return false, wrap("reset inbox for replay", err)
	}
	n, err := affected(ctx, tx, `UPDATE millbridge_inbox SET state = 'running', replay = ?, attempts = 0, deliveries = 0, cause = '',
			lease_owner = NULL, lease_until = 0, next_try = 0, updated_at = ?, since = ?, stream_seq = 0
		WHERE key_hash = ? AND state = 'dead' AND replay = ?`, from+1, now, now, hash[:], from)
	if err != nil || n > 0 {
		return n > 0, wrap("reset inbox for replay", err)
	}
	row := schema.InboxRow{InboxRecord: schema.InboxRecord{Key: key, State: schema.InboxRunning, Replay: from + 1, UpdatedAt: at(now)}}
	written, err := s.insertRow(ctx, tx, hash, row)
	return written, wrap("reset inbox for replay", err)
}

// Drop turns a key that is dead at replay number from into a dropped one, in the transaction of the operator's command.
// It is false if somebody was quicker. A key that was never handled here gets a record.
func (s *Store) Drop(ctx context.Context, tx *sql.Tx, key schema.InboxKey, from int) (bool, error) {
	hash, now := key.Hash(), s.now()
	n, err := affected(ctx, tx, `UPDATE millbridge_inbox SET state = 'dropped', updated_at = ?, since = ?
		WHERE key_hash = ? AND state = 'dead' AND replay = ?`, now, now, hash[:], from)
	if err != nil || n > 0 {
		return n > 0, wrap("drop dead letter", err)
	}
	row := schema.InboxRow{InboxRecord: schema.InboxRecord{Key: key, State: schema.InboxDropped, Replay: from, UpdatedAt: at(now)}}
	written, err := s.insertRow(ctx, tx, hash, row)
	return written, wrap("drop dead letter", err)
}

// InboxCounts returns how many records each handler has in each state.
func (s *Store) InboxCounts(ctx context.Context) (map[string]map[schema.InboxState]int64, error) {
	type count struct {
		handler string
		state   schema.InboxState
		rows    int64
	}
	found, err := collect(ctx, s.read, func(rows *sql.Rows, c *count) error { return rows.Scan(&c.handler, &c.state, &c.rows) },
		"SELECT handler, state, rows FROM millbridge_inbox_counts WHERE rows > 0")
	if err != nil {
		return nil, wrap("count inbox", err)
	}
	counts := make(map[string]map[schema.InboxState]int64)
	for _, c := range found {
		if counts[c.handler] == nil {
			counts[c.handler] = make(map[schema.InboxState]int64)
		}
		counts[c.handler][c.state] = c.rows
	}
	return counts, nil
}
