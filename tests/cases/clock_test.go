package cases

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	_ "time/tzdata" // zones on machines that have none

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/internal/cli"
	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/schema"
)

// onKolkata runs test on both stores; PostgreSQL lives in India.
func onKolkata(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	t.Parallel()
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		admin := testkit.Postgres(t)
		name := admin.Config().ConnConfig.Database
		if _, err := admin.Exec(t.Context(), `ALTER DATABASE `+pgx.Identifier{name}.Sanitize()+` SET timezone = 'Asia/Kolkata'`); err != nil {
			t.Fatal(err)
		}
		// Sessions that a pooler has kept know nothing of it.
		direct, err := pgxpool.New(t.Context(), testkit.DirectPostgresURL(t, admin))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(direct.Close)
		w := onPool(t, smallPool(t, direct, 10))
		var zone string
		if err := w.pg.QueryRow(t.Context(), `SHOW timezone`).Scan(&zone); err != nil || zone != "Asia/Kolkata" {
			t.Fatalf("the database's zone is %s, %v", zone, err)
		}
		test(t, w)
	})
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		test(t, onSQLite(t))
	})
}

// Publishers whose clocks are five minutes off, a process in New York and a database in India: what is to be handled in
// six seconds is handled in six seconds.
func TestC33_due_in_every_zone(t *testing.T) {
	onKolkata(t, func(t *testing.T, w *world) {
		newYork, err := time.LoadLocation("America/New_York")
		if err != nil {
			t.Fatal(err)
		}
		p := w.launch(t, processSpec{Name: "new-york", Lease: lease, Targets: []string{"a"}}, "TZ=America/New_York")
		ready := schema.NewJob("a", "ready", nil)
		w.publish(t, ready)
		p.says(t, "handled a "+ready.ID)

		const wait = 6 * time.Second
		began := time.Now()
		jobs := make(map[string]string)
		for name, opts := range map[string][]schema.Option{
			"delay":                  {schema.WithDelay(wait)},
			"delay, clock is ahead":  {schema.WithDelay(wait), schema.WithTime(began.Add(5 * time.Minute))},
			"delay, clock is behind": {schema.WithDelay(wait), schema.WithTime(began.Add(-5 * time.Minute).In(newYork))},
			"time in UTC":            {schema.WithDueAt(began.Add(wait).UTC())},
			"time in New York":       {schema.WithDueAt(began.Add(wait).In(newYork))},
			"time in India":          {schema.WithDueAt(began.Add(wait).In(time.FixedZone("", 5*3600+1800)))},
		} {
			job := schema.NewJob("a", "later", nil, opts...)
			w.publish(t, job)
			jobs[job.ID] = name
			if due := w.due(t, job.ID).Sub(began); due < wait-time.Millisecond || due > wait+time.Since(began) {
				t.Errorf("%s: due in %v, want %v", name, due, wait)
			}
		}
		seen := make(map[string]bool)
		testkit.Eventually(t, time.Minute, func() error {
			out := p.output()
			for id, name := range jobs {
				if !seen[id] && strings.Contains(out, "handled a "+id) {
					seen[id] = true
					if d := time.Since(began); d < wait-100*time.Millisecond { // how late is up to the machine
						t.Errorf("%s: handled after %v, want %v", name, d, wait)
					}
				}
			}
			if len(seen) < len(jobs) {
				return fmt.Errorf("%d of %d are handled", len(seen), len(jobs))
			}
			return nil
		})
	})
}

func (w *world) scheduled(t *testing.T) []schema.ScheduledRow {
	t.Helper()
	rows, err := w.store.(interface {
		ListScheduled(ctx context.Context, f schema.RowFilter) ([]schema.ScheduledRow, error)
	}).ListScheduled(t.Context(), schema.RowFilter{})
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// due is when a message that waits for its time will be moved to the outbox, by the database's clock, which is that of
// this machine.
func (w *world) due(t *testing.T, id string) time.Time {
	t.Helper()
	for _, r := range w.scheduled(t) {
		if r.ID.String() == id {
			return r.DueAt
		}
	}
	t.Fatalf("message %s does not wait", id)
	return time.Time{}
}

// The hour that New York has twice: two times that read alike are an hour apart, wherever they are looked at.
func TestC33_hour_that_comes_twice(t *testing.T) {
	onKolkata(t, func(t *testing.T, w *world) {
		newYork, err := time.LoadLocation("America/New_York")
		if err != nil {
			t.Fatal(err)
		}
		summer := time.Date(2051, 11, 5, 1, 30, 0, 0, newYork) // the first of the two
		winter := summer.Add(time.Hour)
		if summer.Format(time.DateTime) != winter.Format(time.DateTime) {
			t.Fatalf("%v and %v are not the hour that comes twice", summer, winter)
		}
		w.publish(t, schema.NewJob("a", "summer", nil, schema.WithDueAt(summer)), schema.NewJob("a", "winter", nil, schema.WithDueAt(winter)))
		rows := w.scheduled(t)
		if len(rows) != 2 {
			t.Fatalf("%d rows", len(rows))
		}
		for _, r := range rows {
			want := winter
			if strings.HasSuffix(r.Subject, ".summer") {
				want = summer
			}
			if !r.DueAt.Equal(want) {
				t.Errorf("%s is due at %v, want %v", r.Subject, r.DueAt, want)
			}
		}
		if w.dsn == "" {
			return
		}
		for _, format := range [][]string{{"--json"}, nil} { // for programs and for people
			var out, errs bytes.Buffer
			args := append([]string{"outbox", "list", "--status", "scheduled", "--database-url", w.dsn, "--nats-url", w.nats.URL()}, format...)
			code := cli.Main(t.Context(), args, cli.Env{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs, Now: time.Now, Getenv: func(string) string { return "" }})
			if code != 0 {
				t.Fatalf("exit code %d: %s", code, errs.String())
			}
			for _, at := range []time.Time{summer, winter} {
				if text := at.UTC().Format(time.RFC3339); !strings.Contains(out.String(), text) && !strings.Contains(out.String(), strings.Replace(text, "T", " ", 1)) {
					t.Errorf("%s is not printed with its zone:\n%s", text, out.String())
				}
			}
		}
	})
}

// arguments remembers what statements are given.
type arguments struct {
	mu  sync.Mutex
	all []any
	sql []string
}

func (a *arguments) add(sql string, args []any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, arg := range args {
		a.all, a.sql = append(a.all, arg), append(a.sql, sql)
	}
}

func (a *arguments) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	a.add(d.SQL, d.Args)
	return ctx
}

func (*arguments) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (a *arguments) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}

func (a *arguments) TraceBatchQuery(_ context.Context, _ *pgx.Conn, d pgx.TraceBatchQueryData) {
	a.add(d.SQL, d.Args)
}

func (*arguments) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// A replica whose clock is five minutes ahead would take over leases that live, if it told anybody its time. None does:
// in the whole life of a message no statement is given the time of the process.
func TestC33_no_clock_but_the_databases(t *testing.T) {
	t.Parallel()
	trace := &arguments{}
	cfg := testkit.Postgres(t).Config()
	cfg.ConnConfig.Tracer = trace
	pool, err := pgxpool.NewWithConfig(context.WithoutCancel(t.Context()), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	w := onPool(t, pool)
	var mu sync.Mutex
	calls := make(map[string]int)
	handler := handlers.HandlerFunc(func(_ context.Context, env schema.Envelope) error {
		mu.Lock()
		defer mu.Unlock()
		if calls[env.ID]++; calls[env.ID] == 1 {
			return handlers.RetryAfter(errors.New("not now"), 10*time.Millisecond)
		}
		if env.Name == "bad" {
			return errors.New("never")
		}
		return nil
	})
	policy := handlers.Policy{Retry: soon}
	inTx := policy
	inTx.Mode = handlers.ModeTx
	run(t, w.openWith(t, polls(10*time.Millisecond), handlers.Target{Name: "a", Handler: handler, Policy: policy}, handlers.Target{Name: "b", Handler: handler, Policy: inTx}))
	for _, name := range []string{"good", "bad"} {
		w.publish(t, schema.NewJob("a", name, nil, schema.WithKey("k"+name), schema.WithOrderingKey("o")), schema.NewJob("b", name, nil, schema.WithDelay(time.Second)))
	}
	testkit.Eventually(t, time.Minute, func() error {
		if n := len(w.dead(t)); n != 2 {
			return fmt.Errorf("%d dead letters", n)
		}
		return nil
	})
	w.settled(t, "a")
	w.settled(t, "b")
	trace.mu.Lock()
	defer trace.mu.Unlock()
	if len(trace.all) < 100 {
		t.Fatalf("only %d arguments were seen", len(trace.all))
	}
	for i, arg := range trace.all {
		if isTime(arg) {
			t.Errorf("%T %v is given to %s", arg, arg, trace.sql[i])
		}
	}
}

// isTime reports whether v is, or holds, a time of these days in a unit of PostgreSQL's or a longer one. (In nanoseconds
// a hash could look like one.)
func isTime(v any) bool {
	switch v := v.(type) {
	case time.Time, *time.Time, []time.Time:
		return true
	case int:
		return isTime(int64(v))
	case []int64:
		return slices.ContainsFunc(v, func(n int64) bool { return isTime(n) })
	case int64:
		for unit := time.Microsecond; unit <= time.Second; unit *= 1000 {
			now := time.Now().UnixNano() / int64(unit)
			if year := int64(365*24*time.Hour) / int64(unit); v > now-year && v < now+year {
				return true
			}
		}
	}
	return false
}
