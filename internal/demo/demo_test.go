package demo_test

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/millbridge/millbridge/internal/demo"
	"github.com/millbridge/millbridge/internal/embedded"
	"github.com/millbridge/millbridge/internal/testkit"
)

// TestDemo_balances_and_an_independent_count_agrees counts once more, with plain SQL and a plain NATS client.
func TestDemo_balances_and_an_independent_count_agrees(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		orders int
		seed   uint64
	}{{10, 1}, {1, 5}, {60, 99}} {
		t.Run(fmt.Sprintf("orders %d seed %d", c.orders, c.seed), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			var lines []demo.Line
			report, err := demo.Run(t.Context(), demo.Config{
				Dir: dir, Orders: c.orders, Seed: c.seed, Logger: testkit.Logger(t), Tell: func(l demo.Line) { lines = append(lines, l) },
			})
			if err != nil {
				t.Fatal(err)
			}
			if !report.OK() || report.Tried != c.orders || report.Replayed == "" {
				t.Fatalf("report: %+v", report)
			}
			checkStory(t, c.orders, lines)

			in, err := embedded.Open(t.Context(), dir, embedded.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer in.Close()
			db, js := in.DB.Read, testkit.JetStream(t, in.Conn())
			committed := count(t, db, "SELECT count(*) FROM shop_orders")
			archived := count(t, db, "SELECT count(*) FROM millbridge_inbox WHERE handler = 'archive'")
			for what, got := range map[string]int64{
				"rolled back":    int64(c.orders) - int64(report.RolledBack),
				"paid":           count(t, db, "SELECT count(*) FROM shop_payments"),
				"paid sum":       committed + count(t, db, "SELECT sum(cents) FROM shop_orders") - count(t, db, "SELECT sum(cents) FROM shop_payments"),
				"charged":        count(t, db, "SELECT count(*) FROM millbridge_inbox WHERE handler = 'billing' AND state = 'done'"),
				"mailed":         count(t, db, "SELECT count(*) FROM millbridge_inbox WHERE handler = 'mail' AND state = 'done'"),
				"shipped":        count(t, db, "SELECT count(*) FROM millbridge_inbox WHERE handler = 'shipping' AND state = 'done'"),
				"order.placed":   messages(t, js, "MB_EVENTS", "mb.events.internal.order.placed"),
				"invoice.paid":   messages(t, js, "MB_EVENTS", "mb.events.public.invoice.paid"),
				"reported":       count(t, db, "SELECT count(*) FROM millbridge_inbox WHERE handler = 'reports' AND state = 'done'") / 2,
				"jobs sent":      (count(t, db, "SELECT sum(total) FROM millbridge_shards WHERE stream = 'jobs'") - archived - 1) / 3,
				"events sent":    count(t, db, "SELECT sum(total) FROM millbridge_shards WHERE stream = 'events'") / 2,
				"nothing waits":  committed + count(t, db, "SELECT (SELECT count(*) FROM millbridge_outbox) + (SELECT count(*) FROM millbridge_parked)"),
				"no jobs stay":   committed + messages(t, js, "MB_JOBS", "mb.jobs.>") + messages(t, js, "MB_JOBS", "mb.replay.>"),
				"letters + mark": committed + messages(t, js, "MB_DEAD", "mb.dead.jobs.archive.*.0") - archived,
				"archive dead":   committed + archived - 1 - count(t, db, "SELECT count(*) FROM millbridge_inbox WHERE handler = 'archive' AND state = 'dead'"),
				"replayed":       committed - 1 + count(t, db, "SELECT count(*) FROM millbridge_inbox WHERE handler = 'archive' AND state = 'done' AND replay = 1"),
			} {
				if got != committed {
					t.Errorf("%s: %d, want %d", what, got, committed)
				}
			}
			if report.Books.Orders != committed || report.Tally.SentJobs != count(t, db, "SELECT sum(total) FROM millbridge_shards WHERE stream = 'jobs'") {
				t.Errorf("the report says %+v", report)
			}
		})
	}
}

// checkStory finds every kind of line in a story that tells of each step, and none but the narrator's in a long one.
func checkStory(t *testing.T, orders int, lines []demo.Line) {
	t.Helper()
	moods := map[demo.Mood]int{}
	var all strings.Builder
	for _, l := range lines {
		moods[l.Mood]++
		fmt.Fprintln(&all, l)
	}
	switch {
	case orders > 30 && len(moods) > 1:
		t.Errorf("a long story tells of steps:\n%s", &all)
	case orders == 10:
		for _, mood := range []demo.Mood{demo.Say, demo.Sold, demo.Undo, demo.Done, demo.Again, demo.Dead} {
			if moods[mood] == 0 {
				t.Errorf("the story has nothing of the kind %q:\n%s", mood, &all)
			}
		}
		for _, want := range []string{"signature checked", "receipt sent at attempt", "into the poison queue", "stored"} {
			if !strings.Contains(all.String(), want) {
				t.Errorf("the story lacks %q:\n%s", want, &all)
			}
		}
	}
}

func count(t *testing.T, db *sql.DB, query string) int64 {
	t.Helper()
	var n sql.NullInt64
	if err := db.QueryRowContext(t.Context(), query).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n.Int64
}

func messages(t *testing.T, js natsjs.JetStream, stream, filter string) int64 {
	t.Helper()
	s, err := js.Stream(t.Context(), stream)
	if err != nil {
		t.Fatal(err)
	}
	info, err := s.Info(t.Context(), natsjs.WithSubjectFilter(filter))
	if err != nil {
		t.Fatal(err)
	}
	var n int64
	for _, c := range info.State.Subjects {
		n += int64(c)
	}
	return n
}

func TestDemo_the_same_seed_gives_the_same_orders(t *testing.T) {
	t.Parallel()
	placed := func(seed uint64) string {
		var all strings.Builder
		_, err := demo.Run(t.Context(), demo.Config{Dir: filepath.Join(t.TempDir(), "data"), Orders: 5, Seed: seed, Tell: func(l demo.Line) {
			if l.Mood == demo.Sold || l.Mood == demo.Undo {
				fmt.Fprintln(&all, l.Order, l.Text)
			}
		}})
		if err != nil {
			t.Fatal(err)
		}
		return all.String()
	}
	a, b, other := placed(3), placed(3), placed(4)
	if a != b || a == other || strings.Count(a, "\n") != 5 {
		t.Errorf("seed 3:\n%s\nagain:\n%s\nseed 4:\n%s", a, b, other)
	}
}
