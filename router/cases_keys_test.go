package router_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/publishers"
	"github.com/millbridge/millbridge/router"
	"github.com/millbridge/millbridge/schema"
	"github.com/millbridge/millbridge/schema/postgres"
	"github.com/millbridge/millbridge/schema/sqlite"
)

// Keys are as wide as target, tenant and content say, for publishers and for handlers.
func TestC05_keys_are_neither_too_narrow_nor_too_wide(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		bridge := b.open()
		var seen calls
		for _, target := range []string{"a", "b", "c"} {
			b.target(bridge, target, quick(1), func(_ context.Context, env schema.Envelope) error { seen.add(env); return nil })
		}
		key := schema.WithKey("42")
		b.publish(bridge, schema.NewJob("a", "x", "1", key), schema.NewJob("b", "x", "1", key))
		b.publish(bridge, schema.NewJob("a", "x", "1", key, schema.WithTenant("t")))
		if _, err := bridge.Publish(t.Context(), schema.NewJob("a", "x", "2", key)); !errors.Is(err, schema.ErrKeyReused) {
			t.Errorf("another body: %v", err)
		}
		b.publish(bridge, schema.NewJob("a", "x", "same"), schema.NewJob("a", "x", "same")) // without a key they are two
		var mu sync.Mutex
		ids := map[string]bool{}
		fresh := 0
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				receipts, err := bridge.Publish(context.Background(), schema.NewJob("c", "x", "1", key))
				if err != nil {
					t.Errorf("one of twenty: %v", err)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				ids[receipts[0].ID] = true
				if !receipts[0].Existing {
					fresh++
				}
			})
		}
		wg.Wait()
		if len(ids) != 1 || fresh != 1 {
			t.Errorf("twenty publishers got %d ids, %d were new", len(ids), fresh)
		}
		tally, err := bridge.Drain(t.Context())
		if err != nil || tally.Handled != 6 || tally.Dead != 0 || seen.count() != 6 {
			t.Errorf("tally %+v, error %v, %d calls", tally, err, seen.count())
		}
	})
}

// A handler's own writes, its mark and its outgoing messages commit together or not at all.
func TestTx_business_rows_and_messages_commit_together(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.exec("CREATE TABLE effects (what integer)")
		bridge := b.open()
		policy := quick(5)
		policy.Mode = handlers.ModeTx
		var tries, followed calls
		publish := b.outbox(bridge)
		b.target(bridge, "saga", policy, func(ctx context.Context, env schema.Envelope) error {
			n := tries.add(env)
			if err := insertEffect(ctx, b.kind); err != nil {
				return err
			}
			if err := publish(ctx, schema.NewJob("next", "step", fmt.Sprint(n))); err != nil {
				return err
			}
			switch n {
			case 1:
				return errFlaky
			case 2:
				panic("out of paper")
			}
			return nil
		})
		b.target(bridge, "next", quick(1), func(_ context.Context, env schema.Envelope) error { followed.add(env); return nil })
		b.publish(bridge, schema.NewJob("saga", "begin", nil))
		b.run(bridge)
		b.eventually(followed.reaches(1))
		b.awaitNoJobs()
		if n := b.count("SELECT count(*) FROM effects"); n != 1 || tries.count() != 3 || followed.count() != 1 {
			t.Errorf("%d effects, %d tries, %d messages", n, tries.count(), followed.count())
		}
		if got := string(followed.all()[0].Payload); got != `"3"` {
			t.Errorf("the message is of try %s", got)
		}
	})
}

// outbox returns how a handler publishes in its transaction.
func (b *bench) outbox(bridge *router.Bridge) func(context.Context, ...schema.Envelope) error {
	cfg := publishers.Config{Nudge: bridge.Nudge}
	if b.kind == "sqlite" {
		out := publishers.NewOutbox(b.store.(*sqlite.Store), cfg)
		return func(ctx context.Context, envs ...schema.Envelope) error {
			tx, err := handlers.Tx[*sql.Tx](ctx)
			if err == nil {
				_, err = out.Publish(ctx, tx, envs...)
			}
			return err
		}
	}
	out := publishers.NewOutbox(b.store.(*postgres.Store), cfg)
	return func(ctx context.Context, envs ...schema.Envelope) error {
		tx, err := handlers.Tx[pgx.Tx](ctx)
		if err == nil {
			_, err = out.Publish(ctx, tx, envs...)
		}
		return err
	}
}

// A replayed message of a handler in a transaction completes once, too.
func TestTx_replay(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.exec("CREATE TABLE effects (what integer)")
		policy := quick(1)
		policy.Mode = handlers.ModeTx
		bridge := b.open()
		var seen calls
		b.target(bridge, "saga", policy, func(ctx context.Context, env schema.Envelope) error {
			if seen.add(env) == 1 {
				return handlers.Permanent(errFlaky)
			}
			if got := handlers.Attempt(ctx); got != 1 {
				t.Errorf("the replay begins with attempt %d", got)
			}
			return insertEffect(ctx, b.kind)
		})
		b.publish(bridge, schema.NewJob("saga", "begin", nil))
		b.run(bridge)
		if err := b.operator().Replay(t.Context(), b.awaitLetters(1)[0]); err != nil {
			t.Fatal(err)
		}
		b.eventually(seen.reaches(2))
		b.awaitNoJobs()
		if n := b.count("SELECT count(*) FROM effects"); n != 1 || seen.count() != 2 {
			t.Errorf("%d effects, %d calls", n, seen.count())
		}
	})
}
