package cases

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/router"
	"github.com/millbridge/millbridge/schema"
	"github.com/millbridge/millbridge/schema/postgres"
	"github.com/millbridge/millbridge/schema/sqlite"
)

// number is how many of something a test uses.
func number(usual, full int) int {
	if long {
		return full
	}
	return usual
}

// keeping makes the store forget what is finished after so long.
func (w *world) keeping(t *testing.T, keep time.Duration) {
	t.Helper()
	if w.pg != nil {
		s := postgres.New(w.pg, postgres.Options{Logger: testkit.Logger(t), Keep: keep})
		t.Cleanup(s.Close)
		w.store = s
		return
	}
	s := sqlite.New(w.write, w.read, sqlite.Options{Logger: testkit.Logger(t), Keep: keep})
	t.Cleanup(s.Close)
	w.store = s
}

// exec runs a statement for the store that the test is on.
func (w *world) exec(t *testing.T, onPostgres, onSQLite string, args ...any) {
	t.Helper()
	var err error
	if w.pg != nil {
		_, err = w.pg.Exec(t.Context(), onPostgres, args...)
	} else {
		_, err = w.write.ExecContext(t.Context(), onSQLite, args...)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// count runs a query that counts.
func (w *world) count(t *testing.T, onPostgres, onSQLite string) (n int) {
	t.Helper()
	var err error
	if w.pg != nil {
		err = w.pg.QueryRow(t.Context(), onPostgres).Scan(&n)
	} else {
		err = w.read.QueryRowContext(t.Context(), onSQLite).Scan(&n)
	}
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// spoil puts a row into the outbox that nobody can send.
func (w *world) spoil(t *testing.T, payload string) {
	t.Helper()
	id := schema.NewUUID(time.Now())
	w.exec(t, `INSERT INTO millbridge.outbox (id, slot, stream, subject, header, payload) VALUES ($1::uuid, 7, 'jobs', 'jobs.a.do', '\x0001', $2)`,
		`INSERT INTO millbridge_outbox (id, slot, stream, subject, created_at, header, payload) VALUES (unhex(replace(?, '-', '')), 7, 'jobs', 'jobs.a.do', unixepoch() * 1000000000, x'0001', ?)`,
		id.String(), []byte(payload))
}

// replicas runs so many bridges. On SQLite, where one process has the file, the others do the upkeep only.
func (w *world) replicas(t *testing.T, n int, edit func(*router.Config), targets ...handlers.Target) {
	t.Helper()
	run(t, w.openWith(t, edit, targets...))
	for range n - 1 {
		if w.pg != nil {
			run(t, w.openWith(t, func(c *router.Config) {
				edit(c)
				c.Conn = w.nats.Conn(t)
			}, targets...))
			continue
		}
		ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
		var tender sync.WaitGroup
		tender.Go(func() {
			for ctx.Err() == nil {
				if _, err := w.store.Tend(ctx, 500); err != nil && ctx.Err() == nil {
					t.Errorf("tend: %v", err)
				}
				select {
				case <-time.After(50 * time.Millisecond):
				case <-ctx.Done():
				}
			}
		})
		t.Cleanup(func() {
			stop()
			tender.Wait()
		})
	}
}

// ledger sums what the ledger says was sent to a stream.
func (w *world) ledger(t *testing.T, stream schema.Stream) (total int64) {
	t.Helper()
	shards, err := w.store.Shards(t.Context(), stream)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range shards {
		total += s.Total
	}
	return total
}

func (w *world) inbox(t *testing.T) (done, dead int64) {
	t.Helper()
	counts, err := w.store.(interface {
		InboxCounts(ctx context.Context) (map[string]map[schema.InboxState]int64, error)
	}).InboxCounts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, states := range counts {
		done += states[schema.InboxDone]
		dead += states[schema.InboxDead]
	}
	return done, dead
}

// stored counts the messages that match filter in a stream.
func (w *world) stored(t *testing.T, stream, filter string) (n int) {
	t.Helper()
	s, err := testkit.JetStream(t, w.conn).Stream(t.Context(), stream)
	if err != nil {
		t.Fatal(err)
	}
	info, err := s.Info(t.Context(), jetstream.WithSubjectFilter(filter))
	if err != nil {
		t.Fatal(err)
	}
	for _, count := range info.State.Subjects {
		n += int(count)
	}
	return n
}

// Everything is older than it is kept, the broker is down, and three replicas clean up: what waits and what was given
// up stays, what was handled goes.
func TestC30_retention_while_the_broker_is_down(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		const keep = 500 * time.Millisecond
		w.keeping(t, keep)
		r := &recorder{}
		refuse := handlers.HandlerFunc(func(context.Context, schema.Envelope) error { return handlers.Permanent(errors.New("no")) })
		edit := func(c *router.Config) { c.Forwarder.TendEvery = 20 * time.Millisecond }
		w.replicas(t, 3, edit, handlers.Target{Name: "a", Handler: r}, handlers.Target{Name: "bad", Handler: refuse})
		some := func(target string, n int) (envs []schema.Envelope) {
			for range n {
				envs = append(envs, schema.NewJob(target, "do", nil, schema.WithKey(schema.NewID())))
			}
			return envs
		}
		sent, poison := some("a", 10), some("bad", 3)
		w.publish(t, append(sent, poison...)...)
		for range 4 {
			w.publish(t, schema.NewEvent("happened", nil))
		}
		for i := range 3 {
			w.spoil(t, fmt.Sprint("whole ", i))
		}
		arrives(t, r, 20*time.Second, sent...)
		w.settled(t, "a")
		w.settled(t, "bad")
		testkit.Eventually(t, 2*time.Minute, func() error {
			parked, err := w.parked()
			if err == nil && (len(parked) != 3 || len(w.dead(t)) != 3) {
				err = fmt.Errorf("%d parked, %d dead letters", len(parked), len(w.dead(t)))
			}
			return err
		})

		w.nats.Stop()
		pending := some("a", 10)
		w.publish(t, pending...)
		later := schema.NewJob("a", "later", nil, schema.WithDueAt(time.Now().Add(time.Hour)))
		w.publish(t, later)
		end := time.After(10 * keep)
		var lastError error
		for waiting := true; waiting; {
			select {
			case <-end:
				waiting = false
			case <-time.After(50 * time.Millisecond):
			}
			rows, err := w.rows()
			if err != nil || len(rows) != len(pending) {
				lastError = fmt.Errorf("%d rows wait (%w), want %d", len(rows), err, len(pending))
			}
		}
		if lastError != nil {
			t.Error(lastError)
		}
		parked, err := w.parked()
		if err != nil || len(parked) != 3 || len(parked[0].Payload) != len("whole 0") {
			t.Errorf("parked %v, %v", parked, err)
		}
		if done, dead := w.inbox(t); done != 0 || dead != 3 {
			t.Errorf("the inbox has %d done and %d dead, want none and 3", done, dead)
		}
		if n := w.count(t, `SELECT count(*) FROM millbridge.keys`, `SELECT count(*) FROM millbridge_keys`); n != 0 {
			t.Errorf("%d idempotency keys are kept", n)
		}
		if n := w.count(t, `SELECT count(*) FROM millbridge.scheduled`, `SELECT count(*) FROM millbridge_scheduled`); n != 1 {
			t.Errorf("%d messages wait for their time, want 1", n)
		}

		w.nats.Restart()
		arrives(t, r, 30*time.Second, append(sent, pending...)...)
		w.settled(t, "a")
		if got := len(r.all()); got != 20 {
			t.Errorf("%d jobs were handled, want 20", got)
		}
		if n := len(w.dead(t)); n != 3 {
			t.Errorf("%d dead letters, want 3", n)
		}
		if parked, err := w.parked(); err != nil || len(parked) != 3 {
			t.Errorf("%d parked rows, %v", len(parked), err)
		}
		// What left the outbox is what was sent.
		if jobs, ev := w.ledger(t, schema.Jobs), w.ledger(t, schema.Events); jobs != 23 || ev != 4 {
			t.Errorf("the ledger counts %d jobs and %d events, want 23 and 4", jobs, ev)
		}
		if jobs, ev, dead := w.stored(t, "MB_JOBS", "mb.jobs.>"), w.stored(t, "MB_EVENTS", "mb.events.>"), w.stored(t, "MB_DEAD", "mb.dead.>"); jobs != 0 || ev != 4 || dead != 3 {
			t.Errorf("the streams hold %d jobs, %d events and %d letters, want 0, 4 and 3", jobs, ev, dead)
		}
	})
}

// A long history goes in small steps, by three replicas at once, beside a transaction that stays open: publishing is
// not slower for it, and what waits or was given up stays.
func TestC30_long_history(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		n := number(10_000, 1_000_000)
		w.exec(t, `INSERT INTO millbridge.inbox (hash, body_hash, updated_at, since, state, handler, message_id)
			SELECT decode(lpad(to_hex(g), 64, '0'), 'hex'), '', now() - interval '60 days', CASE WHEN g <= 3 THEN 'infinity' ELSE now() - interval '60 days' END, CASE WHEN g <= 3 THEN 'dead' ELSE 'done' END, 'old', 'm' || g FROM generate_series(1, $1::integer) AS g`,
			`WITH RECURSIVE s(g) AS (SELECT 1 UNION ALL SELECT g + 1 FROM s WHERE g < ?)
			INSERT INTO millbridge_inbox (key_hash, handler, state, message_id, body_hash, updated_at, since)
			SELECT randomblob(32), 'old', CASE WHEN g <= 3 THEN 'dead' ELSE 'done' END, 'm' || g, x'', (unixepoch() - 60 * 86400) * 1000000000,
				CASE WHEN g <= 3 THEN 9223372036854775807 ELSE (unixepoch() - 60 * 86400) * 1000000000 END FROM s`, n)
		w.exec(t, `INSERT INTO millbridge.keys (hash, body_hash, call, created_at, message_id)
			SELECT decode(lpad(to_hex(g), 64, '0'), 'hex'), '', gen_random_uuid(), now() - interval '60 days', 'm' || g FROM generate_series(1, $1::integer) AS g`,
			`WITH RECURSIVE s(g) AS (SELECT 1 UNION ALL SELECT g + 1 FROM s WHERE g < ?)
			INSERT INTO millbridge_keys (key_hash, message_id, body_hash, used_at)
			SELECT randomblob(32), 'm' || g, x'', (unixepoch() - 60 * 86400) * 1000000000 FROM s`, n)
		if w.pg != nil {
			old, err := w.pg.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = old.Rollback(context.WithoutCancel(t.Context())) }()
			if _, err := old.Exec(t.Context(), `SELECT count(*) FROM orders`); err != nil {
				t.Fatal(err)
			}
		}
		// The upkeep is slow to publishing only if it holds what publishing needs.
		publish := func() time.Duration {
			began := time.Now()
			w.publish(t, schema.NewJob("a", "do", nil, schema.WithKey(schema.NewID()), schema.WithOrderingKey("k")))
			return time.Since(began)
		}
		var before, during []time.Duration
		for range 50 {
			before = append(before, publish())
		}
		r := &recorder{}
		began := time.Now()
		w.replicas(t, 3, func(*router.Config) {}, handlers.Target{Name: "a", Handler: r})
		left := func() int {
			return w.count(t, `SELECT (SELECT count(*) FROM millbridge.inbox WHERE handler = 'old') + (SELECT count(*) FROM millbridge.keys WHERE message_id LIKE 'm%')`,
				`SELECT (SELECT count(*) FROM millbridge_inbox WHERE handler = 'old') + (SELECT count(*) FROM millbridge_keys WHERE message_id LIKE 'm%')`)
		}
		limit := 2*time.Minute + time.Duration(n)*time.Millisecond // for a slow machine: how fast it goes is logged below
		for left() > 3 && time.Since(began) < limit {
			during = append(during, publish())
		}
		if n := left(); n != 3 {
			t.Fatalf("%d old records are left after %v, want the 3 dead ones", n, time.Since(began))
		}
		t.Logf("%d records in %v; publishing took %v before, %v meanwhile, %v at most", 2*n, time.Since(began).Round(time.Millisecond), median(before), median(during), slices.Max(during))
		if m := median(during); m > 10*median(before)+50*time.Millisecond {
			t.Errorf("publishing took %v meanwhile, %v before", m, median(before))
		}
		if most := percentile(during, 99); most > 5*time.Second { // the promise is 1 s, the machine may be busy
			t.Errorf("publishing took %v for one in a hundred", most)
		}
		if _, dead := w.inbox(t); dead != 3 {
			t.Errorf("%d dead records, want 3", dead)
		}
		testkit.Eventually(t, 2*time.Minute, func() error {
			if got := len(r.all()); got != len(before)+len(during) {
				return fmt.Errorf("%d handled, want %d", got, len(before)+len(during))
			}
			return nil
		})
	})
}

func median(d []time.Duration) time.Duration { return percentile(d, 50) }

func percentile(d []time.Duration, p int) time.Duration {
	d = slices.Clone(d)
	slices.Sort(d)
	return d[len(d)*p/100]
}

// One step of the upkeep deletes no more than its limit, however much there is.
func TestC30_steps_are_bounded(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.keeping(t, time.Millisecond)
		for range 25 {
			w.publish(t, schema.NewJob("a", "do", nil, schema.WithKey(schema.NewID())))
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-t.Context().Done():
		}
		keys := func() int {
			return w.count(t, `SELECT count(*) FROM millbridge.keys`, `SELECT count(*) FROM millbridge_keys`)
		}
		for _, want := range []int{15, 5, 0} {
			res, err := w.store.Tend(t.Context(), 10)
			if err != nil {
				t.Fatal(err)
			}
			if n := keys(); n != want || res.More != (want > 0) {
				t.Errorf("%d keys are left (%+v), want %d", n, res, want)
			}
		}
		if rows, err := w.rows(); err != nil || len(rows) != 25 {
			t.Errorf("%d rows wait (%v), want 25", len(rows), err)
		}
	})
}
