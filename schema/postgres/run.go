package postgres

import (
	"context"
	"database/sql"

	"github.com/jackc/pgx/v5"
)

// A rowSet is what pgx and database/sql rows have in common.
type rowSet interface {
	Next() bool
	Scan(dest ...any) error
	Err() error
}

// A statement is one step of a transaction; each, if set, reads one row of its answer.
type statement struct {
	sql  string
	args []any
	each func(rows rowSet) error
}

// runFunc is a runner's method, or [Store.atOnce].
type runFunc func(ctx context.Context, steps ...statement) error

// A runner runs statements one after the other in one transaction, with as few round trips as it can.
type runner interface {
	run(ctx context.Context, steps ...statement) error
}

// batchSender is a transaction, a connection or a pool. Outside of a transaction a batch is one by itself.
type batchSender interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// atOnce runs a whole transaction at READ COMMITTED in one round trip: at a higher level, which a session may have by
// default, those that come second to a row would fail. A transaction that fails costs its connection.
func (s *Store) atOnce(ctx context.Context, steps ...statement) error {
	all := append([]statement{{sql: `BEGIN ISOLATION LEVEL READ COMMITTED`}}, steps...)
	return pgxRunner{s.pool}.run(ctx, append(all, statement{sql: `COMMIT`})...)
}

// pgxRunner sends all statements in one round trip.
type pgxRunner struct{ to batchSender }

func (r pgxRunner) run(ctx context.Context, steps ...statement) error {
	if len(steps) == 1 { // costs less than a batch of one
		rows, err := r.to.Query(ctx, steps[0].sql, steps[0].args...)
		if err != nil {
			return err
		}
		defer rows.Close()
		return readAll(rows, steps[0].each)
	}
	b := &pgx.Batch{}
	for _, s := range steps {
		queue(b, s)
	}
	return r.to.SendBatch(ctx, b).Close()
}

func queue(b *pgx.Batch, s statement) {
	q := b.Queue(s.sql, s.args...)
	if s.each != nil {
		q.Query(func(rows pgx.Rows) error { return readAll(rows, s.each) })
	}
}

// sqlRunner runs statements in a database/sql transaction, one round trip each.
type sqlRunner struct{ tx *sql.Tx }

func (r sqlRunner) run(ctx context.Context, steps ...statement) error {
	for _, s := range steps {
		if err := r.one(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

func (r sqlRunner) one(ctx context.Context, s statement) error {
	if s.each == nil {
		_, err := r.tx.ExecContext(ctx, s.sql, s.args...)
		return err
	}
	rows, err := r.tx.QueryContext(ctx, s.sql, s.args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	return readAll(rows, s.each)
}

func readAll(rows rowSet, each func(rowSet) error) error {
	for rows.Next() {
		if each == nil {
			continue
		}
		if err := each(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// scan returns a reader of one row into dest.
func scan(dest ...any) func(rowSet) error {
	return func(rows rowSet) error { return rows.Scan(dest...) }
}

// durably makes the commit of the transaction it runs in wait until it is on disk, however the database is set. It
// never weakens a stronger setting. Whatever has to be true before the broker hears of it, or before a handler runs, is
// written with it: a crash that undoes an acked message's effect would lose the message.
var durably = statement{sql: `SELECT ` + setDurable}

const (
	setDurable = `set_config('synchronous_commit', CASE WHEN ` + weakCommit + ` THEN 'on' ELSE current_setting('synchronous_commit') END, true)`
	weakCommit = `current_setting('synchronous_commit') IN ('off', 'local', 'remote_write')`
)

// byIndex keeps the planner from reading the whole outbox. What it knows of a table that is empty most of the time says
// nothing about the moment when a million rows wait. The price it sees in a scan that has no alternative would make it
// compile the query, which takes a second. With nothing left to choose, one plan is as good for all parameters, and planning
// takes longer than to run it.
var byIndex = statement{sql: `SELECT ` + setByIndex}

const setByIndex = `set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),
	set_config('jit', 'off', true), set_config('plan_cache_mode', 'force_generic_plan', true)`

// durablyByIndex is both.
var durablyByIndex = statement{sql: `SELECT ` + setDurable + `, ` + setByIndex}
