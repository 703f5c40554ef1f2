package cli_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/internal/ops"
	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/router"
	"github.com/millbridge/millbridge/schema"
)

// verify runs the command and returns what it says.
func (w *world) verify(t *testing.T, args ...string) ops.Verification {
	t.Helper()
	r := w.run(t, append([]string{"verify", "--json"}, args...)...)
	var v ops.Verification
	if err := json.Unmarshal([]byte(r.stdout), &v); err != nil {
		t.Fatalf("%v in %s", err, r)
	}
	if (r.code == 3) != !v.OK || r.code != 0 && r.code != 3 || v.OK != (v.Unaccounted == 0) || v.OK != (len(v.Findings) == 0) {
		t.Errorf("exit code and findings differ: %s", r)
	}
	return v
}

// accounted expects that nothing is missing.
func (w *world) accounted(t *testing.T, when string) ops.Verification {
	t.Helper()
	v := w.verify(t)
	if !v.OK {
		t.Errorf("%s: %+v", when, v)
	}
	return v
}

// Letters of two messages with one id are two, each with its own row in the inbox.
func TestVerify_messages_with_one_id(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		for _, tenant := range []string{"a", "b"} {
			w.die(t, "crm", "error: "+tenant, schema.WithID("order-7"), schema.WithTenant(tenant))
		}
		if v := w.accounted(t, "dead"); v.Dead.Letters != 2 {
			t.Errorf("%d letters: %+v", v.Dead.Letters, v.Dead)
		}
		if n := len(w.must(t, "poison", "list", "--json").objects(t)); n != 2 {
			t.Errorf("%d are listed", n)
		}
		w.must(t, "poison", "drop", "--tenant", "b", "--yes")
		if v := w.accounted(t, "one is dropped"); v.Dead.Letters != 1 {
			t.Errorf("%d letters: %+v", v.Dead.Letters, v.Dead)
		}
	})
}

func streamOf(t *testing.T, v ops.Verification, stream schema.Stream) ops.StreamAccount {
	t.Helper()
	i := slices.IndexFunc(v.Streams, func(s ops.StreamAccount) bool { return s.Stream == stream })
	if i < 0 {
		t.Fatalf("no stream %s in %+v", stream, v)
	}
	return v.Streams[i]
}

func handlerOf(v ops.Verification, name string) ops.HandlerAccount {
	i := slices.IndexFunc(v.Handlers, func(h ops.HandlerAccount) bool { return h.Name == name })
	if i < 0 {
		return ops.HandlerAccount{}
	}
	return v.Handlers[i]
}

// found expects exactly these findings, as "kind id handler count".
func found(t *testing.T, what string, v ops.Verification, want ...string) {
	t.Helper()
	var have []string
	for _, f := range v.Findings {
		have = append(have, fmt.Sprintf("%s %s %s %d", f.Kind, f.ID, f.Handler, f.Count))
	}
	slices.Sort(have)
	slices.Sort(want)
	if !slices.Equal(have, want) {
		t.Errorf("%s: found %q, want %q in %+v", what, have, want, v)
	}
}

// served runs a target "crm" and a subscription "audit" on all orders.
func (w *world) served(t *testing.T) (crm, audit *faulty) {
	t.Helper()
	crm, audit = newFaulty(), newFaulty()
	w.bridgeWith(t, func(b *router.Bridge) error {
		return errors.Join(
			b.Target(handlers.Target{Name: "crm", Handler: crm, Policy: quick(2)}),
			b.Subscribe(handlers.Subscription{Name: "audit", Events: []string{"order.*"}, Handler: audit, Policy: quick(2), From: handlers.FromAll}))
	})
	return crm, audit
}

// until waits until a verification finds everything and says what it should.
func (w *world) until(t *testing.T, what string, ok func(v ops.Verification) bool) ops.Verification {
	t.Helper()
	var v ops.Verification
	testkit.Eventually(t, patience(20), func() error {
		if v = w.verify(t); !v.OK || !ok(v) {
			return fmt.Errorf("%s: %+v", what, v)
		}
		return nil
	})
	return v
}

// TestVerify_finds_a_message_in_every_state takes messages through all that can become of them.
func TestVerify_finds_a_message_in_every_state(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		if v := w.accounted(t, "nothing published"); v.Outbox == "" || len(v.Streams) != 2 {
			t.Errorf("nothing published: %+v", v)
		}
		for i := range 4 {
			w.must(t, "publish", "job", "crm", "x", "--key", fmt.Sprint("job-", i))
			w.must(t, "publish", "event", "order.placed", "--key", fmt.Sprint("event-", i))
		}
		w.must(t, "publish", "job", "erp", "x", "--due", "1h")
		v := w.accounted(t, "published")
		if jobs, events := streamOf(t, v, schema.Jobs), streamOf(t, v, schema.Events); jobs.Pending != 4 || jobs.Scheduled != 1 || events.Pending != 4 || jobs.Sent != 0 {
			t.Errorf("published: %+v", v)
		}
		w.park(t, "too large")
		parked, err := w.store.ListParked(t.Context(), schema.RowFilter{})
		if err != nil || len(parked) != 1 {
			t.Fatal(parked, err)
		}
		w.forward(t)
		v = w.accounted(t, "sent")
		if jobs, events := streamOf(t, v, schema.Jobs), streamOf(t, v, schema.Events); jobs.Sent != 3 || jobs.InStream != 3 || jobs.Parked != 1 || events.Sent != 4 || events.InStream != 4 {
			t.Errorf("sent: %+v", v)
		}
		w.must(t, "poison", "drop", parked[0].ID.String())
		foreign := nats.NewMsg("mb.jobs.crm.x")
		foreign.Header.Set("mb-version", "99")
		if _, err := w.js.PublishMsg(t.Context(), foreign); err != nil {
			t.Fatal(err)
		}
		crm, audit := w.served(t)
		w.given(t, 8)
		v = w.until(t, "all dead", func(v ops.Verification) bool { return v.Dead.Letters == 8 })
		if jobs := streamOf(t, v, schema.Jobs); jobs.Dropped != 1 || jobs.Settled != 3 || jobs.InStream != 0 || handlerOf(v, "crm").Dead != 3 || handlerOf(v, "audit").Dead != 4 {
			t.Errorf("all dead: %+v", v)
		}
		crm.repair("job-3")
		audit.repair("event-3")
		w.run(t, "poison", "replay", "--all", "--yes") // the foreign message cannot be
		w.given(t, 3)                                  // that one, and those that died again
		v = w.until(t, "replayed", func(v ops.Verification) bool {
			return streamOf(t, v, schema.Jobs).InStream == 0 && streamOf(t, v, schema.Jobs).Pending == 0 && handlerOf(v, "audit").Done == 3
		})
		if crm, audit := handlerOf(v, "crm"), handlerOf(v, "audit"); crm.Replayed != 3 || audit.Replayed != 4 || audit.Dead != 1 || streamOf(t, v, schema.Jobs).Settled != 10 {
			t.Errorf("replayed: %+v", v)
		}
		w.must(t, "poison", "drop", "--target", "audit")
		if v = w.accounted(t, "dropped"); handlerOf(v, "audit").Dropped != 1 {
			t.Errorf("dropped: %+v", v)
		}
		crm.repair()
		w.must(t, "publish", "job", "crm", "x", "--key", "last")
		w.until(t, "another", func(v ops.Verification) bool { return streamOf(t, v, schema.Jobs).Settled == 11 })

		// Rows that are forgotten after their time are counted.
		w.age(t, 40*24*time.Hour)
		for {
			res, err := w.store.Tend(t.Context(), 1000)
			if err != nil {
				t.Fatal(err)
			}
			if !res.More {
				break
			}
		}
		v = w.accounted(t, "forgotten")
		if handlerOf(v, "crm").Forgotten < 4 || handlerOf(v, "crm").Done > 0 {
			t.Errorf("forgotten: %+v", v)
		}
		contains(t, w.must(t, "verify").stdout, "everything is accounted for", "FORGOTTEN")
	})
}

// age makes what is kept for a time older.
func (w *world) age(t *testing.T, by time.Duration) {
	t.Helper()
	for _, c := range [][3]string{{"inbox", "updated_at", "updated_at"}, {"inbox", "since", "since"}, {"settled", "settled_at", "settled_at"}, {"keys", "created_at", "used_at"}} {
		where := " WHERE handler = 'crm'" // events are as young as they are
		if c[0] == "keys" {
			where = ""
		}
		w.exec(t, "UPDATE millbridge."+c[0]+" SET "+c[1]+" = "+c[1]+" - $1::bigint * interval '1 microsecond'"+where,
			"UPDATE millbridge_"+c[0]+" SET "+c[2]+" = "+c[2]+" - ?1 * 1000"+where, by.Microseconds())
	}
}

// exec changes the database behind everybody's back and expects that something changed.
func (w *world) exec(t *testing.T, postgres, sqlite string, args ...any) {
	t.Helper()
	if w.pool != nil {
		tag, err := w.pool.Exec(t.Context(), postgres, args...)
		if err != nil || tag.RowsAffected() == 0 {
			t.Fatal(tag, err)
		}
		return
	}
	res, err := w.db.ExecContext(t.Context(), sqlite, args...)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := res.RowsAffected(); n == 0 {
		t.Fatal(n, err)
	}
}

func (w *world) publish(t *testing.T, args ...string) string {
	t.Helper()
	return w.must(t, append([]string{"publish", "--json"}, args...)...).objects(t)[0]["id"].(string)
}

func (w *world) streamNamed(t *testing.T, name string) natsjs.Stream {
	t.Helper()
	s, err := w.js.Stream(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestVerify_names_what_is_missing breaks one thing after another behind everybody's back.
func TestVerify_names_what_is_missing(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		pending := w.publish(t, "job", "later", "x", "--key", "pending")
		w.exec(t, "DELETE FROM millbridge.outbox WHERE id = $1::text::uuid", "DELETE FROM millbridge_outbox WHERE hex(id) = upper(replace(?1, '-', ''))", pending)
		found(t, "a row that was never sent is gone", w.verify(t), "missing "+pending+"  1")
		w.exec(t, "DELETE FROM millbridge.keys", "DELETE FROM millbridge_keys")
		w.accounted(t, "its key is gone too")

		lost := w.publish(t, "job", "later", "x", "--key", "lost")
		w.publish(t, "job", "later", "x")
		event := w.publish(t, "event", "other.thing")
		w.forward(t)
		w.accounted(t, "sent")
		jobs, events := w.streamNamed(t, "MB_JOBS"), w.streamNamed(t, "MB_EVENTS")
		if err := jobs.DeleteMsg(t.Context(), w.sequence(t, jobs, "mb.jobs.>", lost)); err != nil {
			t.Fatal(err)
		}
		v := w.verify(t)
		found(t, "a job is gone from the stream", v, "total   1", "missing "+lost+"  1")
		if v.Unaccounted != 1 || streamOf(t, v, schema.Jobs).Unaccounted != 1 {
			t.Errorf("one job is missing: %+v", v)
		}
		r := w.run(t, "verify", "--accept")
		if r.code != 0 {
			t.Errorf("accept: %s", r)
		}
		w.accounted(t, "accepted")

		copied, err := events.GetMsg(t.Context(), w.sequence(t, events, "mb.events.>", event))
		if err != nil {
			t.Fatal(err)
		}
		again := w.republish(t, copied)
		found(t, "an event is there twice", w.verify(t), "doubled "+event+"  1")
		w.publish(t, "event", "other.thing") // the copy comes before its cursor
		w.forward(t)
		found(t, "an event is there twice, before the cut", w.verify(t), "total   -1", "doubled "+event+"  1")
		if err := events.DeleteMsg(t.Context(), again); err != nil {
			t.Fatal(err)
		}
		last := w.publish(t, "event", "other.thing", "--key", "last")
		w.forward(t)
		w.accounted(t, "the copy is gone")
		if err := events.DeleteMsg(t.Context(), w.sequence(t, events, "mb.events.>", last)); err != nil {
			t.Fatal(err)
		}
		found(t, "an event is gone", w.verify(t), "total   1", "missing "+last+"  1")
		w.must(t, "verify", "--accept")
	})
}

// republish stores a copy of a message and returns its sequence.
func (w *world) republish(t *testing.T, m *natsjs.RawStreamMsg) uint64 {
	t.Helper()
	msg := nats.NewMsg(m.Subject)
	msg.Data = m.Data
	for name, values := range m.Header {
		if !strings.HasPrefix(name, "Nats-") {
			msg.Header[name] = values
		}
	}
	ack, err := w.js.PublishMsg(t.Context(), msg)
	if err != nil {
		t.Fatal(err)
	}
	return ack.Sequence
}

// sequence finds a message by its id.
func (w *world) sequence(t *testing.T, s natsjs.Stream, filter, id string) uint64 {
	t.Helper()
	for seq := uint64(1); ; seq++ {
		m, err := s.GetMsg(t.Context(), seq, natsjs.WithGetMsgSubject(filter))
		if err != nil {
			t.Fatal(id, err)
		}
		if seq = m.Sequence; m.Header.Get(schema.HeaderID) == id {
			return seq
		}
	}
}

// TestVerify_names_what_the_inbox_has_lost deletes rows of handled messages and letters.
func TestVerify_names_what_the_inbox_has_lost(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		crm, audit := w.served(t)
		crm.repair("bad-1", "bad-2")
		audit.repair()
		job, event := w.publish(t, "job", "crm", "x", "--key", "good"), w.publish(t, "event", "order.placed")
		bad1, bad2 := w.publish(t, "job", "crm", "x", "--key", "bad-1"), w.publish(t, "job", "crm", "x", "--key", "bad-2")
		w.given(t, 2)
		w.until(t, "settled", func(v ops.Verification) bool {
			return handlerOf(v, "crm").Done == 1 && handlerOf(v, "audit").Done == 1 && streamOf(t, v, schema.Jobs).InStream == 0 && handlerOf(v, "audit").InFlight == 0
		})
		forget := func(id string) {
			w.exec(t, "DELETE FROM millbridge.inbox WHERE message_id = $1", "DELETE FROM millbridge_inbox WHERE message_id = ?1", id)
		}
		forget(event)
		found(t, "the row of an event", w.verify(t), "unhandled "+event+" audit 1")
		forget(job)
		found(t, "the row of a job", w.verify(t), "unhandled "+event+" audit 1", "total   1", "missing "+job+"  1")
		if r := w.run(t, "verify", "--accept"); r.code != 3 || !strings.Contains(r.stderr, "accepted a difference of 1") {
			t.Errorf("the event that was passed by stays: %s", r)
		}
		w.exec(t, "DELETE FROM millbridge.keys WHERE message_id = $1", "DELETE FROM millbridge_keys WHERE message_id = ?1", job)
		events := w.streamNamed(t, "MB_EVENTS")
		if err := events.DeleteMsg(t.Context(), w.sequence(t, events, "mb.events.>", event)); err != nil {
			t.Fatal(err)
		}
		w.must(t, "verify", "--accept")
		w.publish(t, "event", "order.placed")
		w.until(t, "another event", func(v ops.Verification) bool { return handlerOf(v, "audit").Done == 1 })

		forget(bad1)
		found(t, "the row of a dead letter", w.verify(t), "no_record "+bad1+" crm 1", "total   1")
		dead := w.streamNamed(t, "MB_DEAD")
		if err := dead.Purge(t.Context()); err != nil {
			t.Fatal(err)
		}
		found(t, "all letters", w.verify(t), "no_letter "+bad2+" crm 1", "total   1", "missing "+bad1+"  1")
	})
}

// TestVerify_notices_a_changed_order swaps two messages of an ordering key in the stream.
func TestVerify_notices_a_changed_order(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		a := schema.NewJob("later", "x", nil, schema.WithOrderingKey("k"))
		w.bridgeWith(t, func(b *router.Bridge) error {
			_, err := b.Publish(t.Context(), a, schema.NewJob("later", "x", nil, schema.WithOrderingKey("k")))
			return err
		})
		w.until(t, "sent", func(v ops.Verification) bool { return streamOf(t, v, schema.Jobs).Sent == 2 })
		jobs := w.streamNamed(t, "MB_JOBS")
		move := func(id string) {
			seq := w.sequence(t, jobs, "mb.jobs.>", id)
			m, err := jobs.GetMsg(t.Context(), seq)
			if err != nil {
				t.Fatal(err)
			}
			if err := jobs.DeleteMsg(t.Context(), seq); err != nil {
				t.Fatal(err)
			}
			w.republish(t, m)
		}
		move(a.ID) // behind the other, and behind the cursor
		found(t, "swapped", w.verify(t), "out_of_order "+a.ID+"  1", "total   1")
	})
}
