package dbdown

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/internal/testkit/pgserver"
	"github.com/millbridge/millbridge/publishers/jetstream"
	"github.com/millbridge/millbridge/schema"
)

// either is the URL with both servers, of which the one that takes writes is used.
func either(t *testing.T, a, b *pgserver.Server) string {
	t.Helper()
	ua, err := url.Parse(a.URL())
	if err != nil {
		t.Fatal(err)
	}
	ub, err := url.Parse(b.URL())
	if err != nil {
		t.Fatal(err)
	}
	return strings.Replace(a.URL(), ua.Host, ua.Host+","+ub.Host, 1) + "&target_session_attrs=read-write&connect_timeout=5"
}

// follow makes a standby; with synchronous, no commit is confirmed that it does not have.
func follow(t *testing.T, primary *pgserver.Server, synchronous bool) *pgserver.Server {
	t.Helper()
	standby, err := primary.Standby(pgserver.Options{Settings: "hot_standby = on"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := standby.Stop(); err != nil {
			t.Error(err)
		}
	})
	conn, err := pgx.Connect(t.Context(), primary.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	want := "async"
	if synchronous {
		want = "sync"
		for _, statement := range []string{`ALTER SYSTEM SET synchronous_standby_names = '*'`, `SELECT pg_reload_conf()`} {
			if _, err := conn.Exec(t.Context(), statement); err != nil {
				t.Fatal(err)
			}
		}
	}
	testkit.Eventually(t, time.Minute, func() error {
		var state string
		err := conn.QueryRow(t.Context(), `SELECT sync_state FROM pg_stat_replication WHERE state = 'streaming'`).Scan(&state)
		if err == nil && state != want {
			err = fmt.Errorf("the standby is %s", state)
		}
		return err
	})
	return standby
}

// The primary is killed and its synchronous standby takes its place: nothing is lost, and nobody has to do anything.
func TestPostgres_fails_over_to_a_synchronous_standby(t *testing.T) {
	t.Parallel()
	primary := server(t, pgserver.Options{})
	standby := follow(t, primary, true)
	shared := pool(t, either(t, primary, standby), nil)
	w := onPostgres(t, shared, pool(t, either(t, primary, standby), nil), pace())
	stop := w.produce(3, 10*time.Millisecond)
	pause(3 * time.Second)
	if err := primary.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := standby.Promote(); err != nil {
		t.Fatal(err)
	}
	back := w.recovers(2 * time.Minute)
	pause(time.Second)
	stop()
	w.well(3 * time.Minute)
	w.settled(3 * time.Minute)
	took(t, "fail-over", []time.Duration{back})
}

// repaired repairs what is stopped until the outbox is empty and nothing is wrong any more.
func (w *world) repaired(r *jetstream.Repairer, limit time.Duration) (lines []string) {
	w.t.Helper()
	testkit.Eventually(w.t, limit, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		plan, err := r.Plan(ctx, jetstream.RepairOptions{Ambiguous: jetstream.Resend})
		if err != nil {
			return err
		}
		if len(plan.Lines) > 0 {
			if err := r.Apply(ctx, plan); err != nil {
				return fmt.Errorf("%q: %w", plan.Lines, err)
			}
			lines = append(lines, plan.Lines...)
			return fmt.Errorf("repaired %q", plan.Lines)
		}
		if p := w.ops.Status(ctx).Reasons; len(p) > 0 {
			return fmt.Errorf("%q", p)
		}
		report, err := w.book.Check(ctx, w.js, schema.Subjects{})
		if err == nil && report.Waiting > 0 {
			err = fmt.Errorf("%v", report)
		}
		return err
	})
	return lines
}
