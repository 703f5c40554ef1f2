package inprocess_test

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/handlers/handlertest"
	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/router/inprocess"
	"github.com/millbridge/millbridge/schema"
	"github.com/millbridge/millbridge/schema/sqlite"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type queue = inprocess.Queue[struct{}]

var errDown = errors.New("the other side is down")

// newQueue returns a queue on a clock that is moved.
func newQueue(t *testing.T, cfg inprocess.Config) (*queue, *handlertest.Clock) {
	t.Helper()
	clock := handlertest.NewClock(time.Time{})
	cfg.Clock = clock
	if cfg.Logger == nil {
		cfg.Logger = testkit.Logger(t)
	}
	return inprocess.New[struct{}](cfg), clock
}

// seen collects what handlers got.
type seen struct {
	mu    sync.Mutex
	envs  []schema.Envelope
	calls []handlers.Call
}

func (s *seen) add(ctx context.Context, env schema.Envelope) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	call, _ := handlers.CallFrom(ctx)
	s.envs, s.calls = append(s.envs, env), append(s.calls, call)
	return len(s.envs)
}

func (s *seen) names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := make([]string, len(s.envs))
	for i, e := range s.envs {
		names[i] = e.Name
	}
	return names
}

func (s *seen) Handle(ctx context.Context, env schema.Envelope) error {
	s.add(ctx, env)
	return nil
}

// target adds a target with one function for all actions.
func target(t *testing.T, q *queue, name string, policy handlers.Policy, fn func(ctx context.Context, env schema.Envelope) error) {
	t.Helper()
	if err := q.Target(handlers.Target{Name: name, Handler: handlers.HandlerFunc(fn), Policy: policy}); err != nil {
		t.Fatal(err)
	}
}

func publish(t *testing.T, q *queue, envs ...schema.Envelope) []schema.Receipt {
	t.Helper()
	receipts, err := q.PublishAlone(t.Context(), envs...)
	if err != nil {
		t.Fatal(err)
	}
	return receipts
}

func job(action string, opts ...schema.Option) schema.Envelope {
	return schema.NewJob("mailer", action, nil, opts...)
}

func wantTally(t *testing.T, got, want inprocess.Tally) {
	t.Helper()
	if got != want {
		t.Errorf("tally is %+v, want %+v", got, want)
	}
}

// openSQLite returns a database with its store.
func openSQLite(t *testing.T) (*sql.DB, *sqlite.Store) {
	t.Helper()
	write, read := testkit.SQLite(t)
	store := sqlite.New(write, read, sqlite.Options{Logger: testkit.Logger(t)})
	t.Cleanup(store.Close)
	if _, _, err := store.MigrateUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	return write, store
}
