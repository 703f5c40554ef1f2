package router_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/router"
	"github.com/millbridge/millbridge/schema"
)

// Messages that wait for their next attempt take no place from others, however many they are.
func TestC02_failing_messages_do_not_freeze_a_target(t *testing.T) {
	for _, mode := range []handlers.Mode{handlers.ModeLease, handlers.ModeTx, handlers.ModeNone} {
		t.Run(mode.String(), func(t *testing.T) {
			onBoth(t, func(t *testing.T, b *bench) {
				bridge := b.open()
				policy := handlers.Policy{Retry: schema.RetryPolicy{MaxAttempts: 3, Base: time.Hour, Factor: 1}, Concurrency: 2, Mode: mode}
				var bad, good calls
				b.target(bridge, "billing", policy, func(_ context.Context, env schema.Envelope) error {
					if env.Name == "bad" {
						bad.add(env)
						return errFlaky
					}
					good.add(env)
					return nil
				})
				var jobs []schema.Envelope
				for range 30 {
					jobs = append(jobs, schema.NewJob("billing", "bad", nil))
				}
				b.publish(bridge, append(jobs, schema.NewJob("billing", "good", nil))...)
				b.run(bridge)
				b.eventually(bad.reaches(30))
				b.eventually(good.reaches(1))
				b.publish(bridge, schema.NewJob("billing", "good", nil))
				b.eventually(good.reaches(2))
				b.restartNATS() // the waits survive a restart of the server
				b.publish(bridge, schema.NewJob("billing", "good", nil))
				b.eventually(good.reaches(3))
				if n := bad.count(); n != 30 || len(b.letters()) != 0 {
					t.Errorf("%d failing calls, %d letters", n, len(b.letters()))
				}
			})
		})
	}
}

// As many handlers run as the policy allows, over all consumers of a subscription.
func TestConcurrency_is_used_and_bounded(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		const limit = 3
		bridge := b.open()
		policy := quick(2)
		policy.Concurrency = limit
		var mu sync.Mutex
		running, most := 0, 0
		var broken atomic.Bool
		broken.Store(true)
		var seen calls
		err := bridge.Subscribe(handlers.Subscription{Name: "stats", Events: []string{">"}, Policy: policy, Handler: handlers.HandlerFunc(
			func(_ context.Context, env schema.Envelope) error {
				if broken.Load() {
					return handlers.Permanent(errFlaky)
				}
				mu.Lock()
				running++
				most = max(most, running)
				mu.Unlock()
				wait(50 * time.Millisecond)
				mu.Lock()
				running--
				mu.Unlock()
				seen.add(env)
				return nil
			})})
		if err != nil {
			t.Fatal(err)
		}
		events := func(n int) {
			var envs []schema.Envelope
			for range n {
				envs = append(envs, schema.NewEvent("order.placed", nil))
			}
			b.publish(bridge, envs...)
		}
		b.run(bridge)
		b.healthy(bridge)
		events(10)
		letters := b.awaitLetters(10)
		broken.Store(false)
		events(10)
		for _, l := range letters {
			if err := b.operator().Replay(t.Context(), l); err != nil {
				t.Fatal(err)
			}
		}
		b.eventually(seen.reaches(20))
		mu.Lock()
		defer mu.Unlock()
		if most != limit {
			t.Errorf("%d handlers ran at the same time, want %d", most, limit)
		}
	})
}

// Handlers of a target begin no faster than its rate.
func TestRate(t *testing.T) {
	t.Parallel()
	b := onSQLite(t)
	bridge := b.open()
	policy := quick(1)
	policy.Rate = 20
	var seen calls
	b.target(bridge, "slow", policy, func(_ context.Context, env schema.Envelope) error { seen.add(env); return nil })
	var jobs []schema.Envelope
	for range 21 {
		jobs = append(jobs, schema.NewJob("slow", "x", nil))
	}
	b.publish(bridge, jobs...)
	b.run(bridge)
	b.eventually(seen.reaches(21))
	at := seen.times()
	if d := at[20].Sub(at[0]); d < 900*time.Millisecond {
		t.Errorf("21 handlers began within %v, want a second", d)
	}
}

// PostgreSQL goes away, with all its connections, and comes back.
func TestC17_postgres_goes_away(t *testing.T) {
	t.Parallel()
	b := onPostgres(t)
	bridge := b.open()
	var seen calls
	b.target(bridge, "billing", quick(3), func(_ context.Context, env schema.Envelope) error { seen.add(env); return nil })
	stop := b.run(bridge)
	b.publish(bridge, schema.NewJob("billing", "before", nil))
	b.eventually(seen.reaches(1))
	b.healthy(bridge)

	admin := b.adminConn()
	name := b.postgres.Config().ConnConfig.Database
	mustExec := func(query string) {
		t.Helper()
		if _, err := admin.Exec(t.Context(), query); err != nil {
			t.Fatal(err)
		}
	}
	mustExec(fmt.Sprintf("ALTER DATABASE %q ALLOW_CONNECTIONS false", name))
	mustExec(fmt.Sprintf("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '%s'", name))
	// A job that is in the stream already meets an inbox that is away.
	away := &nats.Msg{Subject: "mb.jobs.billing.while-away", Header: nats.Header{schema.HeaderID: {"away-1"}}}
	if _, err := b.js.PublishMsg(t.Context(), away); err != nil {
		t.Fatal(err)
	}
	b.unhealthy(bridge, patience, "billing: ")
	b.unhealthy(bridge, patience, "forwarder: ")
	if n := seen.count(); n != 1 {
		t.Errorf("%d calls while the database is away", n)
	}
	mustExec(fmt.Sprintf("ALTER DATABASE %q ALLOW_CONNECTIONS true", name))
	b.eventually(seen.reaches(2))
	b.eventually(func() error {
		_, err := bridge.Publish(t.Context(), schema.NewJob("billing", "after", nil))
		return err
	})
	b.eventually(seen.reaches(3))
	b.awaitNoJobs()
	b.healthy(bridge)
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// adminConn connects to another database of the test's server.
func (b *bench) adminConn() *pgx.Conn {
	b.Helper()
	u, err := url.Parse(b.dsn)
	if err != nil {
		b.Fatal(err)
	}
	u.Path = "/postgres"
	conn, err := pgx.Connect(b.Context(), u.String())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// On a cluster whose leaders change, messages are handled, die and are replayed all the same.
func TestBridge_on_a_cluster(t *testing.T) {
	t.Parallel()
	b := onPostgres(t)
	cluster := testkit.Cluster(t, 3)
	b.conn = cluster.Conn(t)
	b.js = cluster.JetStream(t)
	bridge := b.open(func(c *router.Config) { c.Replicas = 3 })
	var seen calls
	var repaired atomic.Bool
	b.target(bridge, "billing", quick(2), func(_ context.Context, env schema.Envelope) error {
		seen.add(env)
		if repaired.Load() || env.Name == "good" {
			return nil
		}
		return errFlaky
	})
	b.run(bridge)
	for i := range 5 {
		b.publish(bridge, schema.NewJob("billing", "good", nil), schema.NewJob("billing", "bad", nil))
		for _, stream := range []string{"MB_JOBS", "MB_DEAD"} {
			if err := cluster.StepDown(stream); err != nil {
				t.Logf("step down of %s: %v", stream, err)
			}
		}
		var letters int
		b.eventually(func() error {
			all, _, err := b.box().List(t.Context(), listAll)
			if letters = len(all); err == nil && letters < i+1 {
				err = fmt.Errorf("%d letters", letters)
			}
			return err
		})
	}
	repaired.Store(true)
	for _, l := range b.letters() {
		b.eventually(func() error {
			if err := b.operator().Replay(t.Context(), l); !errors.Is(err, schema.ErrAlreadyReplayed) {
				return err
			}
			return nil // the answer of the first try was lost
		})
	}
	b.eventually(seen.reaches(20)) // 5 good, 5 bad twice, 5 replays
	b.awaitNoJobs()
	ran := map[string]int{}
	for _, env := range seen.all() {
		if env.Name == "good" || env.Replay != nil {
			ran[env.IdempotencyKey()]++
		}
	}
	for key, n := range ran {
		if n != 1 {
			t.Errorf("message %s succeeded %d times", key, n)
		}
	}
	if letters := b.letters(); len(ran) != 10 || len(letters) != 5 || len(open(letters)) != 0 {
		t.Errorf("%d messages succeeded, %d letters, %d open", len(ran), len(letters), len(open(letters)))
	}
}
