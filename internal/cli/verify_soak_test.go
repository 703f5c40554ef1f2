package cli_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/internal/ops"
	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/publishers/jetstream"
	"github.com/millbridge/millbridge/router"
	"github.com/millbridge/millbridge/schema"
	"github.com/millbridge/millbridge/schema/postgres"
)

// soakTime is how long a soak lasts: a few seconds, or what MILLBRIDGE_STRESS says.
func soakTime(t *testing.T) time.Duration {
	t.Helper()
	v := os.Getenv("MILLBRIDGE_STRESS")
	if v == "" {
		return 3 * time.Second
	}
	d, err := time.ParseDuration(v)
	if err != nil {
		t.Fatalf("MILLBRIDGE_STRESS: %v", err)
	}
	return d
}

// A soak is traffic of all kinds, through bridges that die all the time, under the eyes of verifications that must not
// raise an alarm.
type soak struct {
	*world
	ttl       time.Duration
	published atomic.Int64
	kills     atomic.Int64
	looks     atomic.Int64
	orders    atomic.Int64
}

// TestVerify_raises_no_false_alarm runs for a few seconds; MILLBRIDGE_STRESS=10m makes it longer.
func TestVerify_raises_no_false_alarm(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		s := &soak{world: w, ttl: 7 * 24 * time.Hour}
		if w.pool == nil {
			s.ttl = 3 * time.Second // events expire while it goes on
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var group sync.WaitGroup
		group.Go(func() {
			defer cancel()
			<-time.After(soakTime(t))
			for limit := time.Now().Add(time.Minute); s.published.Load()*s.looks.Load() == 0 && time.Now().Before(limit); {
				<-time.After(50 * time.Millisecond) // a machine that has much else to do
			}
		})
		for range 2 {
			group.Go(func() { s.verifyLoop(ctx, t) })
			group.Go(func() { s.trade(ctx, t) })
			group.Go(func() { s.bridges(ctx, t) })
		}
		group.Go(func() { s.operate(ctx, t) })
		group.Wait()
		t.Logf("%d published, %d bridges killed, %d letters replayed or dropped, %d verifications without an alarm",
			s.published.Load(), s.kills.Load(), s.orders.Load(), s.looks.Load())
		if s.published.Load() == 0 || s.looks.Load() == 0 {
			t.Error("nothing was published, or nobody looked: this shows nothing")
		}

		last, stop := context.WithCancel(context.WithoutCancel(t.Context()))
		calm := make(chan struct{})
		go func() { defer close(calm); s.bridgeOnce(last, t, time.Hour) }()
		defer func() { stop(); <-calm }()
		testkit.Eventually(t, 4*time.Minute, func() error {
			v, err := s.service().Verify(t.Context(), ops.VerifyOptions{})
			if err != nil || !v.OK {
				return fmt.Errorf("%w: %+v", err, v)
			}
			for _, a := range v.Streams {
				if a.Pending > 0 {
					return fmt.Errorf("not sent yet: %+v", a)
				}
			}
			t.Logf("at the end: %+v %+v", v.Streams, v.Dead)
			return nil
		})
	})
}

func (s *soak) service() *ops.Service {
	return ops.New(s.store, s.js, ops.Config{EventTTL: s.ttl})
}

func (s *soak) verifyLoop(ctx context.Context, t *testing.T) {
	for ctx.Err() == nil {
		v, err := s.service().Verify(ctx, ops.VerifyOptions{})
		switch {
		case ctx.Err() != nil:
		case err != nil:
			t.Errorf("verify: %v", err)
		case !v.OK:
			t.Errorf("a false alarm: %+v", v)
		default:
			s.looks.Add(1)
		}
		pause(ctx, 50*time.Millisecond)
	}
}

func pause(ctx context.Context, most time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(rand.N(most)):
	}
}

// trade publishes jobs and events: with and without keys, some twice, in order, for later.
func (s *soak) trade(ctx context.Context, t *testing.T) {
	for i := 0; ctx.Err() == nil; i++ {
		if list, err := s.store.Backlogs(ctx); err == nil && waiting(list) > 200 {
			pause(ctx, 100*time.Millisecond) // bridges that die send little on a busy machine
			continue
		}
		var envs []schema.Envelope
		for n := range rand.IntN(20) + 1 {
			opts := []schema.Option{schema.WithOrderingKey(fmt.Sprint("order-", rand.IntN(20)))}
			switch rand.IntN(4) {
			case 0:
				opts = []schema.Option{schema.WithKey(fmt.Sprint("key-", rand.IntN(50), "-", i))}
			case 1:
				opts = []schema.Option{schema.WithDelay(rand.N(time.Second))}
			}
			if rand.IntN(3) == 0 {
				envs = append(envs, schema.NewEvent("order.placed", map[string]int{"n": n % 2}, opts...))
			} else {
				envs = append(envs, schema.NewJob([]string{"crm", "tx"}[rand.IntN(2)], "x", map[string]int{"n": 1}, opts...))
			}
		}
		err := s.store.Unit(ctx, func(u schema.Unit) error {
			_, err := u.Append(ctx, envs)
			if rand.IntN(10) == 0 {
				return errors.Join(err, errRolledBack)
			}
			return err
		})
		switch {
		case err == nil:
			s.published.Add(int64(len(envs)))
		case ctx.Err() == nil && !errors.Is(err, errRolledBack) && !errors.Is(err, schema.ErrKeyReused) && schema.KindOf(err) == schema.Permanent:
			t.Errorf("publish: %v", err)
		}
		pause(ctx, 20*time.Millisecond)
	}
}

func waiting(list []schema.Backlog) (n int64) {
	for _, b := range list {
		n += b.Rows
	}
	return n
}

var errRolledBack = errors.New("rolled back on purpose")

// bridges lets one bridge after the other live for a while and die.
func (s *soak) bridges(ctx context.Context, t *testing.T) {
	for ctx.Err() == nil {
		s.bridgeOnce(ctx, t, time.Second+rand.N(4*time.Second))
		s.kills.Add(1)
	}
}

// bridgeOnce runs a bridge on connections of its own and cuts them in the midst of its work.
func (s *soak) bridgeOnce(ctx context.Context, t *testing.T, life time.Duration) {
	opts := s.js.Conn().Opts
	opts.ClosedCB, opts.AsyncErrorCB, opts.DisconnectedErrCB = nil, nil, nil
	for _, set := range jetstream.ConnectOptions() {
		if err := set(&opts); err != nil {
			t.Error(err)
			return
		}
	}
	nc, err := opts.Connect()
	if err != nil {
		t.Error(err)
		return
	}
	defer nc.Close()
	store := router.Store(s.store)
	if s.pool != nil {
		pool, err := pgxpool.New(ctx, testkit.PostgresURL(s.pool))
		if err != nil {
			t.Error(err)
			return
		}
		defer pool.Close()
		own := postgres.New(pool, postgres.Options{})
		defer own.Close()
		store = own
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	b, err := router.Open(ctx, router.Config{
		Store: store, Conn: nc, CloseTimeout: time.Second, AckWait: time.Second, Lease: time.Second, Heartbeat: 200 * time.Millisecond,
		Forwarder: jetstream.ForwarderConfig{Lease: time.Second, AckTimeout: 200 * time.Millisecond, RetryMax: 100 * time.Millisecond, StopTimeout: time.Second, EventTTL: s.ttl},
	})
	if err != nil {
		return // a forwarder that dies may have it
	}
	err = errors.Join(
		b.Target(handlers.Target{Name: "crm", Handler: handlers.HandlerFunc(moody), Policy: quick(3)}),
		b.Target(handlers.Target{Name: "tx", Handler: handlers.HandlerFunc(moody), Policy: handlers.Policy{Mode: handlers.ModeTx, Retry: quick(3).Retry}}),
		b.Subscribe(handlers.Subscription{Name: "audit", Events: []string{"order.*"}, Handler: handlers.HandlerFunc(moody), Policy: quick(3), From: handlers.FromAll}))
	if err != nil {
		t.Error(err)
		return
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		b.Run(ctx) //nolint:errcheck // it is killed
	}()
	select {
	case <-time.After(life):
		nc.Close() // it cannot even say goodbye
	case <-ctx.Done():
	}
	cancel()
	<-ended
}

// moody succeeds most of the time.
func moody(context.Context, schema.Envelope) error {
	switch rand.IntN(30) {
	case 0:
		return handlers.Permanent(errors.New("never"))
	case 1, 2:
		return errors.New("not now")
	}
	return nil
}

// operate replays and drops letters.
func (s *soak) operate(ctx context.Context, t *testing.T) {
	for ctx.Err() == nil {
		pause(ctx, 500*time.Millisecond)
		order := ops.Order{Action: ops.Replay, Rate: 100, Query: ops.PoisonQuery{Target: []string{"crm", "tx", "audit"}[rand.IntN(3)]}}
		if rand.IntN(3) == 0 {
			order.Action = ops.Drop
		}
		out, err := s.service().Act(ctx, order, func(ops.PoisonItem, error) {})
		s.orders.Add(int64(out.Done))
		if err != nil && ctx.Err() == nil {
			t.Errorf("%s: %v", order.Action, err)
		}
	}
}
