package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/internal/killpoint"
	"github.com/millbridge/millbridge/router"
	"github.com/millbridge/millbridge/schema"
)

// work handles messages until ctx ends.
func work(ctx context.Context, o options) error {
	j, err := openJournal(o.journal)
	if err != nil {
		return err
	}
	db, conn, err := openBridge(ctx, o)
	if err != nil {
		return err
	}
	defer db.close()
	defer conn.Close()
	cfg := router.Config{
		Store: db.router(), Conn: conn, NoForward: true, CloseTimeout: o.closeTimeout, AckWait: o.ackWait, Lease: o.lease, Logger: slog.Default(),
	}
	bridge, err := router.Open(ctx, cfg)
	for err != nil && ctx.Err() == nil {
		slog.Warn("not open yet", "error", err)
		<-time.After(100 * time.Millisecond)
		bridge, err = router.Open(ctx, cfg)
	}
	if err != nil {
		return err
	}
	w := &worker{o, j, db}
	policy := func(mode handlers.Mode) handlers.Policy {
		return handlers.Policy{
			Retry: schema.RetryPolicy{MaxAttempts: 3, Base: 50 * time.Millisecond, Factor: 2, Max: 200 * time.Millisecond},
			Mode:  mode, Concurrency: 6, MaxCrashes: 10000, // the suite kills all the time, which is no fault of a message
		}
	}
	ordered := policy(handlers.ModeTx)
	ordered.Ordered = true
	return errors.Join(
		bridge.Target(handlers.Target{Name: "till", Handler: w.noting("till", w.inTx("till")), Policy: policy(handlers.ModeTx)}),
		bridge.Target(handlers.Target{Name: "line", Handler: w.noting("line", w.inTx("line")), Policy: ordered}),
		bridge.Target(handlers.Target{Name: "mail", Handler: w.noting("mail", w.post), Policy: policy(handlers.ModeLease)}),
		bridge.Subscribe(handlers.Subscription{
			Name: "audit", Events: []string{"order.placed"}, Handler: w.noting("audit", w.inTx("audit")), Policy: policy(handlers.ModeTx),
			From: handlers.FromAll,
		}),
		bridge.Run(ctx))
}

type worker struct {
	o  options
	j  *journal
	db database
}

var errTold = errors.New("it was told to fail")

// noting does what the job's action says. It writes each failure of the handler down before the bridge hears of it; a
// handler that was stopped has not failed.
func (w *worker) noting(name string, handle func(ctx context.Context, id string, env schema.Envelope) error) handlers.Handler {
	return handlers.HandlerFunc(func(ctx context.Context, env schema.Envelope) (err error) {
		call, _ := handlers.CallFrom(ctx)
		id := env.ID
		if env.Replay != nil {
			id = env.Replay.Of
		}
		defer func() {
			v := recover()
			if v != nil || err != nil && ctx.Err() == nil {
				w.j.note("failed %s %s %d", name, id, call.Replay)
			}
			if v != nil {
				panic(v)
			}
		}()
		first := call.Attempt == 1 && call.Replay == 0
		switch {
		case env.Name == "once" && first, env.Name == "always" && call.Replay == 0:
			return errTold
		case env.Name == "never" && call.Replay == 0:
			return handlers.Permanent(errTold)
		case env.Name == "panics" && first:
			panic("it was told to panic")
		case env.Name == "slow":
			select {
			case <-time.After(2500 * time.Millisecond):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return handle(ctx, id, env)
	})
}

// inTx has its effect in the transaction that marks the key as done.
func (w *worker) inTx(name string) func(context.Context, string, schema.Envelope) error {
	return func(ctx context.Context, id string, env schema.Envelope) error {
		var out []schema.Envelope
		if env.Name == "more" {
			out = append(out, schema.NewEvent("job.handled", id))
		}
		return w.db.effect(ctx, name, id, out...)
	}
}

// post has its effect in a system that takes no part in transactions and honours the idempotency key.
func (w *worker) post(ctx context.Context, id string, env schema.Envelope) error {
	killpoint.At(killpoint.BeforeEffect)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.o.receiver+"/mail", strings.NewReader(env.Name))
	if err != nil {
		return err
	}
	req.Header.Set("Idempotency-Key", handlers.Key(ctx))
	req.Header.Set("Webhook-Id", id)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("answered %d", res.StatusCode)
	}
	killpoint.At(killpoint.AfterEffect)
	return nil
}
