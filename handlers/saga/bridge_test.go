package saga_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/handlers/saga"
	"github.com/millbridge/millbridge/internal/deadletters"
	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/router"
	"github.com/millbridge/millbridge/router/embedded"
	"github.com/millbridge/millbridge/schema"
	"github.com/millbridge/millbridge/schema/postgres"
)

const patience = time.Minute

// place is a store with a server, and the application's own table in it.
type place struct {
	store interface {
		router.Store
		deadletters.Store
		saga.Reader
		Sagas(ctx context.Context, f schema.SagaFilter) ([]schema.SagaRecord, error)
		SagaHistory(ctx context.Context, saga, id string) ([]schema.SagaEvent, error)
	}
	conn  *nats.Conn
	write func(c *saga.Context, note string) error // in the step's transaction
	notes func() int
}

const createNotes = "CREATE TABLE notes (note text)"

func onEmbedded(t *testing.T) place {
	in, err := embedded.Open(t.Context(), filepath.Join(t.TempDir(), "data"), embedded.Options{Logger: testkit.Logger(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := in.Close(); err != nil {
			t.Error(err)
		}
	})
	if _, err := in.DB.ExecContext(t.Context(), createNotes); err != nil {
		t.Fatal(err)
	}
	return place{
		store: in.Store, conn: in.Conn,
		write: func(c *saga.Context, note string) error {
			tx, err := handlers.Tx[*sql.Tx](c)
			if err != nil {
				return err
			}
			_, err = tx.ExecContext(c, "INSERT INTO notes VALUES (?)", note)
			return err
		},
		notes: func() (n int) {
			if err := in.DB.QueryRowContext(t.Context(), "SELECT count(*) FROM notes").Scan(&n); err != nil {
				t.Error(err)
			}
			return n
		},
	}
}

func onPostgres(t *testing.T) place {
	pool := testkit.Postgres(t)
	store := postgres.New(pool, postgres.Options{Logger: testkit.Logger(t)})
	t.Cleanup(store.Close)
	if _, err := pool.Exec(t.Context(), createNotes); err != nil {
		t.Fatal(err)
	}
	return place{
		store: store, conn: testkit.NATS(t).Conn(t),
		write: func(c *saga.Context, note string) error {
			tx, err := handlers.Tx[pgx.Tx](c)
			if err != nil {
				return err
			}
			_, err = tx.Exec(c, "INSERT INTO notes VALUES ($1)", note)
			return err
		},
		notes: func() (n int) {
			if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM notes").Scan(&n); err != nil {
				t.Error(err)
			}
			return n
		},
	}
}

type trip struct {
	City string `json:"city"`
	Room string `json:"room,omitempty"`
}

var (
	book   = schema.JobType[string]{Target: "hotel", Action: "book"}
	unbook = schema.JobType[string]{Target: "hotel", Action: "unbook"}
	greet  = schema.JobType[string]{Target: "hotel", Action: "greet"}
)

// A saga of four steps goes through everything that sagas do: rows of its own, a report, a signal, a time-out, a failure
// that leaves nothing behind, and an undo that is stuck until its dead letter is replayed.
func TestBridge_runs_a_saga(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(*testing.T) place{"embedded": onEmbedded, "postgres": onPostgres} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runTrips(t, open(t))
		})
	}
}

func runTrips(t *testing.T, p place) {
	keep := func(note string) func(*saga.Context, trip) (saga.Result[trip], error) {
		return func(c *saga.Context, s trip) (saga.Result[trip], error) { return saga.Next(s, note), p.write(c, note) }
	}
	trips := saga.New(
		"trip",
		saga.Step[trip]{Name: "note", Do: keep("noted"), Undo: keep("note taken back")},
		saga.Step[trip]{
			Name: "hotel",
			Do: func(c *saga.Context, s trip) (saga.Result[trip], error) {
				return saga.Next(s, "a room for "+c.Actor, saga.Ask(book, s.City), saga.Tell(greet, s.City)), nil
			},
			OnReport: func(_ *saga.Context, s trip, out schema.Outcome) (_ saga.Result[trip], err error) {
				s.Room, err = saga.Answer[string](out)
				return saga.Next(s, "room "+s.Room), err
			},
			Undo: func(c *saga.Context, s trip) (saga.Result[trip], error) {
				return saga.Next(s, c.Reason, saga.Ask(unbook, s.Room)), nil
			},
		},
		saga.Step[trip]{
			Name: "wait", Await: "go", Timeout: 300 * time.Millisecond,
			Do: func(_ *saga.Context, s trip) (saga.Result[trip], error) { return saga.Next(s, "until it begins"), nil },
		},
		saga.Step[trip]{
			Name: "go",
			Do: func(c *saga.Context, s trip) (saga.Result[trip], error) {
				if err := p.write(c, "half"); err != nil {
					return saga.Result[trip]{}, err
				}
				if s.City == "Atlantis" {
					return saga.Result[trip]{}, saga.Fail("it is not there")
				}
				return saga.Next(s, "have fun"), nil
			},
		},
		saga.OnSignal("go", func(_ *saga.Context, s trip, _ struct{}) (saga.Result[trip], error) { return saga.Next(s, ""), nil }),
	)
	var open atomic.Bool
	var hotel handlers.Actions
	handlers.OnJob(&hotel, book, func(ctx context.Context, city, _ string) error { return handlers.Report(ctx, "1 in "+city) })
	handlers.OnJob(&hotel, unbook, func(context.Context, string, string) error {
		if !open.Load() {
			return handlers.Permanent(errors.New("nobody answers"))
		}
		return nil
	})
	handlers.OnJob(&hotel, greet, func(context.Context, string, string) error { return nil })
	bridge, err := router.Open(t.Context(), router.Config{Store: p.store, Conn: p.conn, Logger: testkit.Logger(t)})
	if err != nil {
		t.Fatal(err)
	}
	policy := handlers.Policy{Retry: schema.CappedBackoff(50*time.Millisecond, 2, time.Second, 100)}
	for _, target := range []handlers.Target{trips.Target(policy), {Name: "hotel", Handler: &hotel, Policy: policy}} {
		if err := bridge.Target(target); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- bridge.Run(ctx) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	publish := func(envs ...schema.Envelope) {
		if _, err := bridge.Publish(ctx, envs...); err != nil {
			t.Fatal(err)
		}
	}
	become := func(id string, want schema.SagaStatus) saga.Saga[trip] {
		t.Helper()
		var got saga.Saga[trip]
		testkit.Eventually(t, patience, func() (err error) {
			if got, err = trips.Load(ctx, p.store, id); err == nil && got.Status != want {
				err = fmt.Errorf("trip/%s is %s at %s, waits for %q, reason %q", id, got.Status, got.Step, got.Waits, got.Reason)
			}
			return err
		})
		return got
	}

	start := trips.Start("rome", trip{City: "Rome"}, schema.WithActor("ada"))
	publish(start, trips.Signal("rome", "go", struct{}{}))
	publish(trips.Start("rome", trip{City: "Rome"}, schema.WithActor("ada"))) // twice is once
	publish(trips.Start("late", trip{City: "Oslo"}), trips.Start("nowhere", trip{City: "Atlantis"}), trips.Signal("nowhere", "go", struct{}{}))

	if got := become("rome", schema.SagaDone); got.State != (trip{"Rome", "1 in Rome"}) {
		t.Errorf("the state is %+v", got.State)
	}
	for _, id := range []string{"late", "nowhere"} {
		become(id, schema.SagaStuck)
	}
	open.Store(true)
	js, err := jetstream.New(p.conn)
	if err != nil {
		t.Fatal(err)
	}
	box := deadletters.New(js, schema.Subjects{}, 0)
	letters, _, err := box.List(ctx, deadletters.Filter{})
	if err != nil || len(letters) != 2 {
		t.Fatalf("%d dead letters, %v; want one for each saga that is stuck", len(letters), err)
	}
	operator := &deadletters.Operator{Store: p.store, Letters: box}
	for _, l := range letters {
		if err := operator.Replay(ctx, l); err != nil {
			t.Fatal(err)
		}
	}
	bridge.Nudge()
	if got := become("late", schema.SagaCompensated); got.Reason != "no answer within 300ms" {
		t.Errorf("late failed: %s", got.Reason)
	}
	if got := become("nowhere", schema.SagaCompensated); got.Reason != "it is not there" {
		t.Errorf("nowhere failed: %s", got.Reason)
	}
	events, err := p.store.SagaHistory(ctx, "trip", "rome")
	if err != nil || len(events) < 3 || events[2].Rationale != "a room for ada" {
		t.Errorf("the ledger of rome: %+v, %v", events, err)
	}
	if events, err = p.store.SagaHistory(ctx, "trip", "nowhere"); err != nil {
		t.Fatal(err)
	}
	var ledger []string
	for _, ev := range events {
		ledger = append(ledger, ev.Step+" "+ev.Kind)
	}
	undone := []string{"go failed", "hotel undoing", "hotel stuck", "hotel undone", "note undone"}
	if len(ledger) < 5 || !slices.Equal(ledger[len(ledger)-5:], undone) {
		t.Errorf("the ledger says %q", ledger)
	}
	if n := p.notes(); n != 3+1+2 { // noted by all, half by rome alone, taken back by two
		t.Errorf("the application has %d notes", n)
	}
	if list, err := p.store.Sagas(ctx, schema.SagaFilter{Status: schema.SagaCompensated}); err != nil || len(list) != 2 {
		t.Errorf("%d sagas are compensated, %v", len(list), err)
	}
}
