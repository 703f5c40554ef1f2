package brokerdown

import (
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/publishers/jetstream"
	"github.com/millbridge/millbridge/schema"
)

var errStill = errors.New("not yet")

// Consumers are deleted while they work. They are made again where they were: no job is lost, no event is left out.
func TestConsumer_deleted(t *testing.T) {
	t.Parallel()
	server := testkit.NATS(t)
	w := open(t, setting{servers: []string{server.URL()}})
	w.again(t, times(3, 50), func(i int) {
		for _, c := range []struct{ stream, name string }{
			{"MB_JOBS", "books"}, {"MB_JOBS", "crm"}, {"MB_JOBS", "till"}, {"MB_EVENTS", "audit"}, {"MB_JOBS", "audit"},
		} {
			if err := w.js.DeleteConsumer(t.Context(), c.stream, c.name); err != nil {
				t.Error(err)
			}
		}
	})
	w.finish(t)
}

// The guard of the cursors is deleted: it is made again, or the bridge says that it is missing.
func TestGuard_deleted(t *testing.T) {
	t.Parallel()
	onlyLong(t)
	server := testkit.NATS(t)
	w := open(t, setting{servers: []string{server.URL()}})
	w.again(t, 1, func(i int) {
		if err := w.js.DeleteConsumer(t.Context(), "MB_JOBS", jetstream.GuardName); err != nil {
			t.Fatal(err)
		}
		w.statusSays(t, "consumer mb-cursor-guard of stream MB_JOBS is missing")
		testkit.Eventually(t, patience, func() error {
			_, err := w.js.Consumer(t.Context(), "MB_JOBS", jetstream.GuardName)
			return err
		})
	})
	w.finish(t)
}

// A stream is deleted. The bridge says so and sends nothing into another one of the same name, until an operator has
// accepted the loss; then it goes on, and nothing is lost but what the stream held.
func TestStream_deleted(t *testing.T) {
	t.Parallel()
	onlyLong(t)
	for _, stream := range schema.Streams {
		for _, how := range []string{"deleted", "recreated", "purged"} {
			t.Run(fmt.Sprintf("%s_%s", stream, how), func(t *testing.T) {
				t.Parallel()
				server := testkit.NATS(t)
				w := open(t, setting{servers: []string{server.URL()}})
				w.recovers(t)
				name := schema.Subjects{}.StreamName(stream)
				switch how {
				case "purged":
					s, err := w.js.Stream(t.Context(), name)
					if err == nil {
						err = s.Purge(t.Context())
					}
					if err != nil {
						t.Fatal(err)
					}
				default:
					if err := w.js.DeleteStream(t.Context(), name); err != nil {
						t.Fatal(err)
					}
				}
				switch how {
				case "deleted":
					w.sender.says(t, "the stream is missing")
					w.statusSays(t, "stream "+name+" is missing")
				case "recreated": // as a bridge does that starts
					if err := jetstream.EnsureStreams(t.Context(), w.js, jetstream.StreamsConfig{}); err != nil {
						t.Fatal(err)
					}
				}
				if how != "deleted" {
					w.sender.says(t, "stream_lost")
				}
				w.statusSays(t, "stream_lost")
				waiting := w.waiting(t)
				w.repair(t, jetstream.RepairOptions{StreamRecreated: true, Ambiguous: jetstream.Resend})
				w.recovers(t)
				w.traffic.stop(t)
				w.mayBeLost = func(id string) bool { return !waiting[id] && w.streamOf(id) == stream }
				w.empty(t)
				report := w.check(t)
				t.Logf("%v", report)
			})
		}
	}
}

// repair does what `millbridge repair` does, once the shards are free.
func (w *world) repair(t *testing.T, opts jetstream.RepairOptions) {
	t.Helper()
	testkit.Eventually(t, patience, func() error {
		plan, err := w.repairer.Plan(t.Context(), opts)
		if err != nil {
			return err
		}
		if len(plan.Lines) == 0 {
			return errors.New("there is nothing to repair")
		}
		if err := w.repairer.Apply(t.Context(), plan); err != nil {
			return err
		}
		for _, line := range plan.Lines {
			t.Log(line)
		}
		return nil
	})
}

// waiting returns the messages that are in the outbox.
func (w *world) waiting(t *testing.T) map[string]bool {
	t.Helper()
	rows, err := w.pool.Query(t.Context(), `SELECT id::text FROM millbridge.outbox`)
	if err != nil {
		t.Fatal(err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	set := make(map[string]bool)
	for _, id := range ids {
		set[id] = true
	}
	return set
}

func (w *world) streamOf(id string) schema.Stream {
	if w.traffic.of[id][0] == "audit" {
		return schema.Events
	}
	return schema.Jobs
}

// empty waits until nothing is in motion, and forgets what is lost and may be.
func (w *world) empty(t *testing.T) {
	t.Helper()
	testkit.Eventually(t, patience, func() error {
		if rows := len(w.waiting(t)); rows > 0 {
			return fmt.Errorf("%d rows wait", rows)
		}
		s := w.ops.Status(t.Context())
		if !s.OK {
			return fmt.Errorf("status says %q", s.Reasons)
		}
		for _, c := range s.Consumers {
			if c.Waiting > 0 || c.InFlight > 0 {
				return fmt.Errorf("%s has %d messages waiting, %d in flight", c.Name, c.Waiting, c.InFlight)
			}
		}
		return nil
	})
	report, err := w.book.Check(t.Context(), w.js, schema.Subjects{})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range report.Lost {
		if w.mayBeLost(id) {
			w.traffic.drop(id)
		}
	}
}
