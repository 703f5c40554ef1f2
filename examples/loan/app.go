package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/handlers/saga"
	"github.com/millbridge/millbridge/publishers"
	"github.com/millbridge/millbridge/router"
	"github.com/millbridge/millbridge/router/embedded"
	"github.com/millbridge/millbridge/schema"
)

// settings of an app; a zero pace is for nobody, the rest may be zero.
type settings struct {
	pace
	retry   schema.RetryPolicy
	ackWait time.Duration                           // how long what a killed process did is left alone
	crashes int                                     // in a row that a message may cost; 0 is the default
	wrap    func(t handlers.Target) handlers.Target // for tests: stands between the bridge and each target
}

// app is a library's loan desk: its database, and a bridge that runs the loans.
type app struct {
	in     *embedded.Instance
	bridge *router.Bridge
	loans  *saga.Definition[Loan]
}

func open(ctx context.Context, dir, townURL string, s settings) (*app, error) {
	in, err := embedded.Open(ctx, dir, embedded.Options{})
	if err != nil {
		return nil, err
	}
	a := &app{in: in, loans: newLoan(s.pace)}
	if err := a.prepare(ctx, townURL, s); err != nil {
		return nil, errors.Join(err, in.Close())
	}
	return a, nil
}

func (a *app) prepare(ctx context.Context, townURL string, s settings) (err error) {
	if _, err = a.in.DB.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS requests (id TEXT PRIMARY KEY, patron TEXT, title TEXT);
		CREATE TABLE IF NOT EXISTS letters (patron TEXT, text TEXT)`); err != nil {
		return err
	}
	if a.bridge, err = router.Open(ctx, router.Config{Store: a.in.Store, Conn: a.in.Conn, AckWait: s.ackWait}); err != nil {
		return err
	}
	policy := handlers.Policy{Retry: s.retry, MaxCrashes: s.crashes}
	others, err := targets(townURL, policy)
	if err != nil {
		return err
	}
	for _, t := range append(others, a.loans.Target(policy)) {
		if s.wrap != nil {
			t = s.wrap(t)
		}
		if err := a.bridge.Target(t); err != nil {
			return err
		}
	}
	return nil
}

// borrow notes a patron's request and starts its loan, in one transaction. Doing it again changes nothing.
func (a *app) borrow(ctx context.Context, id string, l Loan) error {
	outbox := publishers.NewOutbox(a.in.Store, publishers.Config{Nudge: a.bridge.Nudge})
	tx, err := a.in.DB.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // after a commit there is nothing to roll back
	if _, err := tx.ExecContext(ctx, `INSERT OR IGNORE INTO requests VALUES (?, ?, ?)`, id, l.Patron, l.Title); err != nil {
		return err
	}
	if _, err := outbox.Publish(ctx, tx, a.loans.Start(id, l, schema.WithActor(l.Patron))); err != nil {
		return err
	}
	return tx.Commit()
}

// tell is what the desk does when the parcel arrives, and when the patron brings the book back. Doing it again changes
// nothing.
func (a *app) tell(ctx context.Context, id, signal string, args any) error {
	_, err := a.bridge.Publish(ctx, a.loans.Signal(id, signal, args, schema.WithKey(signal+"/"+id)))
	return err
}

// letters returns the texts of the letters so far.
func (a *app) letters(ctx context.Context) (texts []string, err error) {
	rows, err := a.in.DB.QueryContext(ctx, `SELECT text FROM letters ORDER BY rowid`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			return nil, err
		}
		texts = append(texts, text)
	}
	return texts, rows.Err()
}

// until runs the bridge until the loan is as wanted.
func (a *app) until(ctx context.Context, id string, wanted func(saga.Saga[Loan]) bool) (loan saga.Saga[Loan], err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- a.bridge.Run(ctx) }()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case err := <-ended:
			return loan, fmt.Errorf("the bridge has ended: %w", err)
		case <-tick.C:
		}
		loan, err = a.loans.Load(ctx, a.in.Store, id)
		if errors.Is(err, schema.ErrNotFound) {
			continue
		}
		if err != nil || wanted(loan) {
			stop()
			return loan, errors.Join(err, <-ended)
		}
	}
}

func (a *app) close() error { return a.in.Close() }
