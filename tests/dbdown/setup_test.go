package dbdown

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/internal/deadletters"
	"github.com/millbridge/millbridge/internal/ops"
	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/internal/testkit/proof"
	"github.com/millbridge/millbridge/publishers/jetstream"
	"github.com/millbridge/millbridge/router"
	"github.com/millbridge/millbridge/schema"
	"github.com/millbridge/millbridge/schema/postgres"
)

// logger keeps what is worth knowing when a test fails; a line for each message is not.
func logger(t *testing.T) *slog.Logger {
	t.Helper()
	return slog.New(warnings{testkit.Logger(t).Handler()})
}

type warnings struct{ slog.Handler }

func (warnings) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }

func (h warnings) WithAttrs(attrs []slog.Attr) slog.Handler {
	return warnings{h.Handler.WithAttrs(attrs)}
}

// times is how often a fault is applied.
func times(short, many int) int {
	if long {
		return many
	}
	return short
}

// pause is a moment chosen at random, up to most.
func pause(most time.Duration) { <-time.After(rand.N(most)) }

// world is an application with its database, and a bridge at work in the same process.
type world struct {
	t       *testing.T
	book    *proof.Book
	pg      *postgres.Store // nil on SQLite
	conn    *nats.Conn
	js      natsjs.JetStream
	bridge  *router.Bridge
	ops     *ops.Service
	letters *deadletters.Box

	// publish commits messages with an entry in the book, in a transaction of the application.
	publish func(ctx context.Context, envs ...schema.Envelope) error
	// effect notes in the handler's transaction what it has done.
	effect func(ctx context.Context, handler, key, id string) error
	// enter notes effects in a transaction of its own.
	enter func(effects []proof.Effect) error
	// used counts inbox records with attempts or errors, and rows that are parked.
	used func() (int, error)
	// committed lists the ids in the book by stream.
	committed func(stream schema.Stream) ([]string, error)
	// large has a target of its own, and needs so many bytes of the database for each job; nil where there is none.
	large func(ctx context.Context, bytes int) error

	stop      func()
	producers sync.WaitGroup
	failed    atomic.Int64 // publishing transactions
	again     atomic.Int64 // messages that were handled at their second attempt

	mu     sync.Mutex
	leased []proof.Effect // of the handler in lease mode, whose system does not take part in transactions
	seen   map[string]chan struct{}
}

// store is what a world needs of a database.
type store interface {
	router.Store
	ops.Store
}

// once is a policy without a second attempt: one that an outage used up would be the end of the message.
var once = schema.RetryPolicy{MaxAttempts: 1, Base: time.Millisecond, Factor: 1}

// start opens the bridge and runs it until the test ends.
func (w *world) start(st store, leases bool, repair *jetstream.Repairer, edits ...func(*router.Config)) {
	t := w.t
	t.Helper()
	w.seen = make(map[string]chan struct{})
	var err error
	if w.js, err = natsjs.New(w.conn); err != nil {
		t.Fatal(err)
	}
	w.letters = deadletters.New(w.js, schema.Subjects{}, 0)
	cfg := router.Config{Store: st, Conn: w.conn, Logger: logger(t), Heartbeat: time.Second, CloseTimeout: 10 * time.Second}
	for _, edit := range edits {
		edit(&cfg)
	}
	if w.bridge, err = router.Open(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	inTx := handlers.Policy{Mode: handlers.ModeTx, Retry: once}
	lease := handlers.Policy{Retry: once}
	handle := func(name string) handlers.Handler {
		return handlers.HandlerFunc(func(ctx context.Context, env schema.Envelope) error {
			if err := w.effect(ctx, name, env.IdempotencyKey(), env.ID); err != nil {
				return err
			}
			w.saw(env.ID)
			return nil
		})
	}
	err = errors.Join(
		w.bridge.Target(handlers.Target{Name: "tx", Handler: handle("tx"), Policy: inTx}),
		w.bridge.Target(handlers.Target{Name: "lease", Policy: lease, Handler: handlers.HandlerFunc(func(_ context.Context, env schema.Envelope) error {
			w.mu.Lock()
			w.leased = append(w.leased, proof.Effect{Handler: "lease", Key: env.IdempotencyKey(), ID: env.ID})
			w.mu.Unlock()
			w.saw(env.ID)
			return nil
		})}),
		w.bridge.Target(handlers.Target{
			Name: "again", Policy: handlers.Policy{Mode: handlers.ModeTx, Retry: schema.RetryPolicy{MaxAttempts: 3, Base: 300 * time.Millisecond, Factor: 1}},
			Handler: handlers.HandlerFunc(func(ctx context.Context, env schema.Envelope) error {
				if handlers.Attempt(ctx) == 1 {
					return errors.New("not at the first attempt")
				}
				if err := w.effect(ctx, "again", env.IdempotencyKey(), env.ID); err != nil {
					return err
				}
				w.again.Add(1)
				return nil
			}),
		}),
		w.bridge.Subscribe(handlers.Subscription{Name: "sub", Events: []string{"happened"}, Handler: handle("sub"), Policy: inTx}),
	)
	if w.large != nil {
		err = errors.Join(err, w.bridge.Target(handlers.Target{
			Name: "large", Policy: inTx,
			Handler: handlers.HandlerFunc(func(ctx context.Context, env schema.Envelope) error {
				var bytes int
				if err := json.Unmarshal(env.Payload, &bytes); err != nil {
					return err
				}
				if err := w.large(ctx, bytes); err != nil {
					return err
				}
				return w.effect(ctx, "large", env.IdempotencyKey(), env.ID)
			}),
		}))
	}
	if err != nil {
		t.Fatal(err)
	}
	w.ops = ops.New(st, w.js, ops.Config{Leases: leases, Repair: repair})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.bridge.Run(ctx) }()
	var closed sync.Once
	w.stop = func() {
		closed.Do(func() {
			cancel()
			if err := <-ended; err != nil {
				t.Errorf("run: %v", err)
			}
		})
	}
	t.Cleanup(w.stop)
}

// saw tells a probe that its message was handled.
func (w *world) saw(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c := w.seen[id]; c != nil {
		close(c)
		delete(w.seen, id)
	}
}

// produce publishes from n goroutines until the returned function is called. What fails must be worth another try.
func (w *world) produce(n int, every time.Duration) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	for p := range n {
		w.producers.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				order := schema.WithOrderingKey(fmt.Sprint("k", p%2, "-", i%3))
				envs := []schema.Envelope{
					schema.NewJob("tx", "do", i, order), schema.NewEvent("happened", i, order), schema.NewJob("lease", "do", i),
				}
				if i%7 == 0 {
					envs = append(envs, schema.NewJob("tx", "later", i, schema.WithDelay(20*time.Millisecond)))
				}
				call, done := context.WithTimeout(context.Background(), 20*time.Second)
				err := w.publish(call, envs...)
				done()
				if err != nil {
					w.failed.Add(1)
					if schema.KindOf(err) != schema.Temporary {
						w.t.Errorf("publishing failed for good: %v", err)
					}
				}
				<-time.After(every/2 + rand.N(every))
			}
		})
	}
	stop = func() {
		cancel()
		w.producers.Wait()
	}
	w.t.Cleanup(stop) // of a test that fails on its way
	return stop
}

// recovers publishes a message to each handler until they are handled, and returns how long that took.
func (w *world) recovers(limit time.Duration) time.Duration {
	w.t.Helper()
	limit *= 3 // a machine may have other things to do as well
	began := time.Now()
	for _, env := range []schema.Envelope{schema.NewJob("tx", "probe", nil), schema.NewJob("lease", "probe", nil)} {
		seen := make(chan struct{})
		w.mu.Lock()
		w.seen[env.ID] = seen
		w.mu.Unlock()
		testkit.Eventually(w.t, limit, func() error {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			return w.publish(ctx, env)
		})
		select {
		case <-seen:
		case <-time.After(limit):
			w.t.Fatalf("a message is not handled within %v: %q", limit, w.bridge.Health(w.t.Context()).Problems)
		}
	}
	w.t.Logf("back within %v", time.Since(began).Round(10*time.Millisecond))
	return time.Since(began)
}

// says waits until the bridge's health and an operator's status say so, or the one that is named.
func (w *world) says(limit time.Duration, where, text string) {
	w.t.Helper()
	testkit.Eventually(w.t, limit, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
		defer cancel()
		if where != "status" {
			if got := strings.Join(w.bridge.Health(ctx).Problems, "\n"); !strings.Contains(got, text) {
				return fmt.Errorf("health lacks %q: %s", text, got)
			}
		}
		if where != "health" {
			if got := strings.Join(w.ops.Status(ctx).Reasons, "\n"); !strings.Contains(got, text) {
				return fmt.Errorf("status lacks %q: %s", text, got)
			}
		}
		return nil
	})
}

// well waits until health and status find nothing wrong.
func (w *world) well(limit time.Duration) {
	w.t.Helper()
	testkit.Eventually(w.t, limit, func() error {
		if p := w.bridge.Health(w.t.Context()).Problems; len(p) > 0 {
			return fmt.Errorf("health: %q", p)
		}
		if p := w.ops.Status(w.t.Context()).Reasons; len(p) > 0 {
			return fmt.Errorf("status: %q", p)
		}
		return nil
	})
}

// settled waits until all is sent and handled, and checks what has become of everything that was committed.
func (w *world) settled(limit time.Duration) {
	t := w.t
	t.Helper()
	var report proof.Report
	testkit.Eventually(t, limit, func() error {
		var err error
		if report, err = w.book.Check(t.Context(), w.js, schema.Subjects{}); err != nil {
			return err
		}
		if report.Waiting > 0 {
			return fmt.Errorf("%v: %q", report, w.bridge.Health(t.Context()).Problems)
		}
		info, err := w.js.Stream(t.Context(), "MB_JOBS")
		if err != nil {
			return err
		}
		state, err := info.Info(t.Context(), natsjs.WithSubjectFilter("mb.jobs.>"))
		if err != nil {
			return err
		}
		if n := len(state.State.Subjects); n > 0 {
			return fmt.Errorf("jobs are left: %v, %q", state.State.Subjects, w.bridge.Health(t.Context()).Problems)
		}
		events, err := w.committed(schema.Events)
		if err != nil {
			return err
		}
		effects, err := w.book.Effects(t.Context())
		if err != nil {
			return err
		}
		if _, missing := proof.EffectsOnce(effects, "sub", events); len(missing) > 0 {
			return fmt.Errorf("%d events are not handled: %v, %+v", len(missing), missing[:min(len(missing), 5)], w.bridge.Health(t.Context()).Handlers)
		}
		return nil
	})
	w.stop()
	w.enterLeased(t)
	report, err := w.book.Check(t.Context(), w.js, schema.Subjects{})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%v; %d transactions of the publishers failed", report, w.failed.Load())
	for _, f := range report.Faults(true) {
		t.Error(f)
	}
	effects, err := w.book.Effects(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, handler := range []string{"tx", "sub", "lease", "again", "large"} {
		doubled, _ := proof.EffectsOnce(effects, handler, nil)
		switch {
		case len(doubled) == 0:
		case handler == "lease" && !long:
			// The leases of the short form are shorter than an outage can be on a busy machine.
			t.Logf("%s had %d effects more than once", handler, len(doubled))
		default:
			t.Errorf("%s had %d effects more than once: %v", handler, len(doubled), doubled[:min(len(doubled), 5)])
		}
	}
	list, _, err := w.letters.List(t.Context(), deadletters.Filter{Tombstones: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range list {
		t.Errorf("dead letter of %s after %d attempts, %d deliveries: %s: %s", l.Handler, l.Attempts, l.Deliveries, l.Cause, l.Reason)
	}
	if n, err := w.used(); err != nil || n > 0 {
		t.Errorf("%d attempts were used up or rows parked, %v", n, err)
	}
	if report.Committed == 0 {
		t.Error("nothing was committed")
	}
}

// took tells how long recoveries took.
func took(t *testing.T, what string, all []time.Duration) {
	t.Helper()
	var sum, most time.Duration
	for _, d := range all {
		sum += d
		most = max(most, d)
	}
	if len(all) > 0 {
		t.Logf("%s: %d times, back after %v on average, %v at most", what, len(all), (sum / time.Duration(len(all))).Round(time.Millisecond), most.Round(time.Millisecond))
	}
}

func repairer(t *testing.T, s jetstream.RepairStore, conn *nats.Conn) *jetstream.Repairer {
	t.Helper()
	r, err := jetstream.NewRepairer(s, conn, jetstream.ForwarderConfig{}, jetstream.StreamsConfig{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// enterLeased enters the effects without transactions into the book.
func (w *world) enterLeased(t *testing.T) {
	t.Helper()
	w.mu.Lock()
	leased := w.leased
	w.leased = nil
	w.mu.Unlock()
	if err := w.enter(leased); err != nil {
		t.Fatal(err)
	}
}
