package cli_test

import (
	"testing"
	"time"

	"github.com/millbridge/millbridge/internal/ops"
	"github.com/millbridge/millbridge/schema"
	"github.com/millbridge/millbridge/schema/postgres"
	"github.com/millbridge/millbridge/schema/sqlite"
)

// The mark of a letter stays for longer than the row that it is about, however long the inbox keeps its rows.
func TestTombstone_outlives_the_inbox_row(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		const keep = 90 * 24 * time.Hour
		env := w.die(t, "crm", "error: no")
		var store ops.Store
		if w.pool != nil {
			store = postgres.New(w.pool, postgres.Options{Keep: keep})
		} else {
			s := sqlite.New(w.db, w.db, sqlite.Options{Keep: keep})
			t.Cleanup(s.Close)
			store = s
		}
		out, err := ops.New(store, w.js, ops.Config{Subjects: w.subjects}).Act(t.Context(), ops.Order{Action: ops.Drop}, func(_ ops.PoisonItem, err error) {
			if err != nil {
				t.Error(err)
			}
		})
		if err != nil || out.Done != 1 {
			t.Fatalf("%+v, %v", out, err)
		}
		stream, err := w.js.Stream(t.Context(), w.subjects.DeadStreamName())
		if err != nil {
			t.Fatal(err)
		}
		msg, err := stream.GetLastMsgForSubject(t.Context(), w.subjects.Dead(schema.Jobs, "crm", env.ID, 0))
		if err != nil {
			t.Fatal(err)
		}
		if ttl, err := time.ParseDuration(msg.Header.Get("Nats-TTL")); err != nil || ttl <= keep {
			t.Errorf("the mark stays for %v, %v; the row for %v", ttl, err, keep)
		}
	})
}
