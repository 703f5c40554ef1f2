package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/publishers"
	"github.com/millbridge/millbridge/router"
	"github.com/millbridge/millbridge/router/embedded"
)

func embeddedScenario() scenario {
	return scenario{
		name: "embedded", title: "SQLite and NATS in the process, both syncing always: one writer commits until the last message is handled",
		unit: "msg/s", base: "1 message a transaction", latency: true,
		contenders: []contender{
			{"1 message a transaction", inProcess(1)},
			{"10 messages a transaction", inProcess(10)},
			{"100 messages a transaction", inProcess(100)},
		},
	}
}

// inProcess uses nothing of the stage but its meter: processor time of both servers is the client's.
func inProcess(perTx int) func(ctx context.Context, st *stage) (result, error) {
	return func(ctx context.Context, st *stage) (r result, err error) {
		dir, err := os.MkdirTemp("", "millbridge-bench-")
		if err != nil {
			return result{}, err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
		in, err := embedded.Open(ctx, filepath.Join(dir, "data"), embedded.Options{})
		if err != nil {
			return result{}, err
		}
		defer func() { err = errors.Join(err, in.Close()) }()
		if _, err := in.DB.ExecContext(ctx, "CREATE TABLE business (id INTEGER PRIMARY KEY, customer TEXT NOT NULL, amount INTEGER NOT NULL)"); err != nil {
			return result{}, err
		}
		t := newTracker(-1)
		policy := handlers.Policy{Concurrency: concurrency, Mode: handlers.ModeLease}
		bridge, err := st.startBridge(ctx, router.Config{Store: in.Store, Conn: in.Conn}, policy, handle(t.saw))
		if err != nil {
			return result{}, err
		}
		outbox := publishers.NewOutbox(in.Store, publishers.Config{Nudge: bridge.Nudge})
		tx := func(ctx context.Context, _ *writer, from, to int) error {
			tx, err := in.DB.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			defer tx.Rollback() //nolint:errcheck // it has committed, or the error is known
			if _, err := tx.ExecContext(ctx, "INSERT INTO business (customer, amount) VALUES (?, ?)", keyOf(from), from); err != nil {
				return err
			}
			if _, err := outbox.Publish(ctx, tx, envelopesOf(from, to, plain)...); err != nil {
				return err
			}
			if err := tx.Commit(); err != nil {
				return err
			}
			outbox.Nudge()
			return nil
		}
		m := st.meter()
		n, err := write(ctx, []*writer{{}}, 0, perTx, st.opts.window, tx, t)
		if err == nil {
			t.expect(n)
			err = t.await(ctx)
		}
		r = m.stop(n)
		r.Latency = t.latency()
		err = errors.Join(err, bridge.close(), t.fault(false))
		return r, errors.Join(err, embeddedHandled(ctx, in.DB, n))
	}
}

// embeddedHandled proves that no row waits and that each message was handled once.
func embeddedHandled(ctx context.Context, db *sql.DB, want int) error {
	var waiting, done int
	if err := db.QueryRowContext(ctx, "SELECT (SELECT count(*) FROM millbridge_outbox), (SELECT count(*) FROM millbridge_inbox WHERE state = 'done')").
		Scan(&waiting, &done); err != nil {
		return err
	}
	if waiting != 0 || done != want {
		return fmt.Errorf("%d rows are still in the outbox, %d of %d messages are done", waiting, done, want)
	}
	return nil
}
