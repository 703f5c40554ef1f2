package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/publishers"
	"github.com/millbridge/millbridge/publishers/jetstream"
	"github.com/millbridge/millbridge/router"
	"github.com/millbridge/millbridge/router/embedded"
	"github.com/millbridge/millbridge/schema"
)

func embeddedScenario() scenario {
	s := scenario{
		name: "embedded", title: "SQLite and NATS in the process, both syncing always, one writer", unit: "msg/s or tx/s", latency: true,
		contenders: []contender{
			{"drain: raw, atomic batches, no database", inProcess((*local).drainRaw)},
			{"drain", inProcess((*local).drain)},
			{"enqueue: no message", inProcess(func(l *local, ctx context.Context) (result, error) { return l.enqueue(ctx, 0) })},
			{"enqueue: 1 message a transaction", inProcess(func(l *local, ctx context.Context) (result, error) { return l.enqueue(ctx, 1) })},
			{"enqueue: 100 messages a transaction", inProcess(func(l *local, ctx context.Context) (result, error) { return l.enqueue(ctx, 100) })},
			{"consume: no inbox", inProcess(func(l *local, ctx context.Context) (result, error) { return l.consume(ctx, handlers.ModeNone) })},
			{"consume: lease (default)", inProcess(func(l *local, ctx context.Context) (result, error) { return l.consume(ctx, handlers.ModeLease) })},
			{"consume: transactional, inserts a row", inProcess(func(l *local, ctx context.Context) (result, error) { return l.consume(ctx, handlers.ModeTx) })},
			{"end to end: 1 message a transaction", through(1, 0, true)},
			{"end to end: 10 messages a transaction", through(10, 0, true)},
			{"end to end: 100 messages a transaction", through(100, 0, true)},
			{"latency: nudged, 200 a second", through(1, few, true)},
			{"latency: polling alone, 200 a second", through(1, few, false)},
		},
		bases: make(map[string]string),
	}
	for i, first := range []int{0, 0, 2, 2, 2, 5, 5, 5, 8, 8, 8} {
		s.bases[s.contenders[i].name] = s.contenders[first].name
	}
	return s
}

// local is a stage whose database and NATS server are in this process: their processor time is the client's.
type local struct {
	*stage
	in *embedded.Instance
}

func inProcess(do func(l *local, ctx context.Context) (result, error)) func(ctx context.Context, st *stage) (result, error) {
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
		own := *st
		own.conn = in.Conn
		if own.js, err = natsjs.New(in.Conn, natsjs.WithPublishAsyncMaxPending(4096)); err != nil {
			return result{}, err
		}
		return do(&local{&own, in}, ctx)
	}
}

// transaction writes a business row and its messages, if there are any.
func (l *local) transaction(nudge func()) transaction {
	outbox := publishers.NewOutbox(l.in.Store, publishers.Config{Nudge: nudge})
	return func(ctx context.Context, _ *writer, from, to int) error {
		tx, err := l.in.DB.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback() //nolint:errcheck // it has committed, or the error is known
		if err := localBusiness(ctx, tx, from); err != nil {
			return err
		}
		if from < to {
			if _, err := outbox.Publish(ctx, tx, envelopesOf(from, to, plain)...); err != nil {
				return err
			}
		}
		if err := tx.Commit(); err != nil {
			return err
		}
		outbox.Nudge()
		return nil
	}
}

func localBusiness(ctx context.Context, tx *sql.Tx, seq int) error {
	_, err := tx.ExecContext(ctx, "INSERT INTO business (customer, amount) VALUES (?, ?)", keyOf(seq), seq)
	return err
}

// messages is how many a drain has.
func (l *local) messages() int { return max(l.opts.messages/5, 1) }

func (l *local) drainRaw(ctx context.Context) (result, error) {
	if err := l.rawStream(ctx); err != nil {
		return result{}, err
	}
	n := l.messages()
	msgs, err := wires(n)
	if err != nil {
		return result{}, err
	}
	m := l.meter()
	err = l.publishAtomic(ctx, msgs)
	return m.stop(n), errors.Join(err, checkStream(ctx, l.js, jobStream, jobSubject, n, true))
}

func (l *local) drain(ctx context.Context) (result, error) {
	if err := jetstream.EnsureStreams(ctx, l.js, jetstream.StreamsConfig{}); err != nil {
		return result{}, err
	}
	n, tx := l.messages(), l.transaction(nil)
	for from := 0; from < n; from += 1000 {
		if err := tx(ctx, nil, from, min(from+1000, n)); err != nil {
			return result{}, err
		}
	}
	forwarder, err := jetstream.NewForwarder(jetstream.StoreOf(l.in.Store), l.conn, jetstream.ForwarderConfig{})
	if err != nil {
		return result{}, err
	}
	m := l.meter()
	tally, err := forwarder.Drain(ctx)
	r := m.stop(tally.Sent)
	return r, errors.Join(err, l.holds(ctx, "millbridge_outbox", 0), checkStream(ctx, l.js, jobStream, jobSubject, n, false))
}

// enqueue commits as fast as one writer can.
func (l *local) enqueue(ctx context.Context, perTx int) (result, error) {
	step, tx := max(perTx, 1), l.transaction(nil)
	if perTx == 0 {
		with := tx
		tx = func(ctx context.Context, w *writer, from, _ int) error { return with(ctx, w, from, from) }
	}
	m := l.meter()
	n, err := write(ctx, []*writer{{}}, 0, step, l.opts.window, tx, nil)
	r := m.stop(n / step)
	return r, errors.Join(err, l.holds(ctx, "business", r.Messages), l.holds(ctx, "millbridge_outbox", r.Messages*perTx))
}

// consume handles what waits in the stream.
func (l *local) consume(ctx context.Context, mode handlers.Mode) (result, error) {
	if err := jetstream.EnsureStreams(ctx, l.js, jetstream.StreamsConfig{}); err != nil {
		return result{}, err
	}
	n := l.opts.transactions()
	if mode == handlers.ModeNone {
		n = l.messages()
	}
	if err := l.fill(ctx, n); err != nil {
		return result{}, err
	}
	t := newTracker(n)
	h := handle(t.saw)
	if mode == handlers.ModeTx {
		h = func(ctx context.Context, e schema.Envelope) error {
			tx, err := handlers.Tx[*sql.Tx](ctx)
			if err != nil {
				return err
			}
			if err := localBusiness(ctx, tx, seqOf(e.Payload)); err != nil {
				return err
			}
			t.saw(e.Payload)
			return nil
		}
	}
	m := l.meter()
	bridge, err := l.startBridge(ctx, router.Config{Store: l.in.Store, NoForward: true}, handlers.Policy{Concurrency: concurrency, Mode: mode}, h)
	if err != nil {
		return result{}, err
	}
	err = t.await(ctx)
	r := m.stop(n)
	settled := checkSettled(ctx, l.js, jobStream, jobSubject)
	err = errors.Join(err, settled, bridge.close(), t.fault(false))
	switch mode {
	case handlers.ModeTx:
		err = errors.Join(err, l.holds(ctx, "business", n), l.handledOnce(ctx, n))
	case handlers.ModeLease:
		err = errors.Join(err, l.handledOnce(ctx, n))
	}
	return r, err
}

// through lets one writer commit at a rate, or as fast as it can if that is 0, until the last message is handled.
func through(perTx, perSecond int, nudged bool) func(ctx context.Context, st *stage) (result, error) {
	return inProcess(func(l *local, ctx context.Context) (result, error) {
		t := newTracker(-1)
		bridge, err := l.startBridge(ctx, router.Config{Store: l.in.Store}, handlers.Policy{Concurrency: concurrency}, handle(t.saw))
		if err != nil {
			return result{}, err
		}
		var nudge func()
		if nudged {
			nudge = bridge.Nudge
		}
		m, n, warm, all := l.meter(), 0, 0, []*writer{{}}
		if perSecond > 0 {
			n, err = paced(ctx, all, perSecond, steadyWindows*l.opts.window, l.transaction(nudge), t)
			warm = n / steadyWindows
		} else {
			n, err = write(ctx, all, 0, perTx, l.opts.window, l.transaction(nudge), t)
		}
		if err == nil {
			t.expect(n)
			err = t.await(ctx)
		}
		r := m.stop(n)
		r.Latency = t.latency(warm)
		settled := checkSettled(ctx, l.js, jobStream, jobSubject)
		err = errors.Join(err, settled, bridge.close(), t.fault(false))
		return r, errors.Join(err, l.holds(ctx, "millbridge_outbox", 0), l.handledOnce(ctx, n))
	})
}

// holds counts the rows of a table.
func (l *local) holds(ctx context.Context, table string, want int) error {
	var n int
	if err := l.in.DB.QueryRowContext(ctx, "SELECT count(*) FROM "+table).Scan(&n); err != nil {
		return err
	}
	if n != want {
		return fmt.Errorf("%s has %d rows, want %d", table, n, want)
	}
	return nil
}

// handledOnce counts the keys in the inbox.
func (l *local) handledOnce(ctx context.Context, want int) error {
	return l.holds(ctx, "millbridge_inbox WHERE state = 'done'", want)
}
