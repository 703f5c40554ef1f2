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
		w.served(t)
		for _, c := range consumers {
			if err := w.js.DeleteConsumer(t.Context(), c.stream, c.name); err != nil {
				t.Error(err)
			}
		}
	})
	w.finish(t)
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
