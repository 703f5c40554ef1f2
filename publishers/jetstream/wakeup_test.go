package jetstream

import (
	"bytes"
	"testing"
	"time"

	"github.com/millbridge/millbridge/schema"
)

// wakeUp says when a row must have left that nobody has told the forwarder of: one poll, and what the machine needs.
const wakeUp = 2 * time.Second

// A wake-up that never arrives, because the connection that would bring it is being made anew, costs one poll.
func TestC29_wake_up_is_lost(t *testing.T) {
	t.Parallel()
	databases(t, func(t *testing.T, open func(testing.TB) *database) {
		db, b := open(t), openBroker(t)
		nc := b.Conn(t)
		f := newForwarder(t, db, nc, quick(t))
		start(t, f)
		db.mustPublish(t, jobs(0, 1)...)
		wantSent(t, f, 1)

		if err := nc.ForceReconnect(); err != nil {
			t.Fatal(err)
		}
		// Committed in the gap; whoever was to be told is not there, and nothing more is sent.
		begin := time.Now()
		db.mustPublish(t, jobs(1, 1)...)
		wantSent(t, f, 2)
		if d := time.Since(begin); d > wakeUp {
			t.Errorf("it took %v until the row was sent", d)
		}

		// The same with everything in place and no wake-up at all.
		begin = time.Now()
		db.mustPublish(t, jobs(2, 1)...)
		wantSent(t, f, 3)
		if d := time.Since(begin); d > wakeUp {
			t.Errorf("without a wake-up it took %v until the row was sent", d)
		}
	})
}

// A wake-up carries nothing, however large the message is that it is for.
func TestC29_wake_up_carries_nothing(t *testing.T) {
	t.Parallel()
	databases(t, func(t *testing.T, open func(testing.TB) *database) {
		db, b := open(t), openBroker(t)
		f := newForwarder(t, db, b.nc, quick(t))
		start(t, f)
		nudges, err := b.nc.SubscribeSync(NudgeSubject(schema.Subjects{}))
		if err != nil {
			t.Fatal(err)
		}
		large := schema.NewJob("crm", "sync", bytes.Repeat([]byte("x"), schema.DefaultPayload))
		db.mustPublish(t, large)
		if err := b.Conn(t).Publish(NudgeSubject(schema.Subjects{}), nil); err != nil {
			t.Fatal(err)
		}
		wantSent(t, f, 1)
		m, err := nudges.NextMsg(10 * time.Second)
		if err != nil || len(m.Data) != 0 {
			t.Errorf("wake-up %v, %v; want one without data", m, err)
		}
		wantStored(t, b, "MB_JOBS", []schema.Envelope{large})
		if db.prefix == "millbridge." {
			// PostgreSQL's own way would abort the writer's transaction at 8,000 bytes; nobody listens to it or uses it.
			if err := db.exec(`DO $$ BEGIN ASSERT pg_notification_queue_usage() = 0; END $$`); err != nil {
				t.Error(err)
			}
		}
	})
}
