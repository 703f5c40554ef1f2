package restore

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/schema"
)

// api calls the JetStream API.
func (w *world) api(subject string, body, answer any) {
	w.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		w.Fatal(err)
	}
	reply, err := w.js.Conn().Request("$JS.API."+subject, text, 20*time.Second)
	if err != nil {
		w.Fatal(err)
	}
	var fault struct {
		Error *struct{ Description string } `json:"error"`
	}
	if err := errors.Join(json.Unmarshal(reply.Data, &fault), json.Unmarshal(reply.Data, answer)); err != nil || fault.Error != nil {
		w.Fatalf("%s: %v %s", subject, err, reply.Data)
	}
}

// snapshot backs a stream up through the API; the returned function puts it back in place of the present one.
func (w *world) snapshot(name string) (restore func()) {
	w.Helper()
	nc := w.js.Conn()
	inbox := nats.NewInbox()
	sub, err := nc.SubscribeSync(inbox)
	if err != nil {
		w.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }() // fails only if the connection is closed
	var head struct {
		Config json.RawMessage `json:"config"`
		State  json.RawMessage `json:"state"`
	}
	w.api("STREAM.SNAPSHOT."+name, map[string]any{"deliver_subject": inbox, "no_consumers": true}, &head)
	var chunks [][]byte
	for {
		m, err := sub.NextMsg(20 * time.Second)
		if err != nil {
			w.Fatal(err)
		}
		if len(m.Data) == 0 {
			break
		}
		chunks = append(chunks, m.Data)
		if m.Reply != "" {
			if err := m.Respond(nil); err != nil {
				w.Fatal(err)
			}
		}
	}
	return func() {
		w.Helper()
		if err := w.js.DeleteStream(w.Context(), name); err != nil {
			w.Fatal(err)
		}
		var to struct {
			DeliverSubject string `json:"deliver_subject"`
		}
		w.api("STREAM.RESTORE."+name, head, &to)
		for _, chunk := range append(chunks, nil) {
			if _, err := nc.Request(to.DeliverSubject, chunk, 20*time.Second); err != nil {
				w.Fatal(err)
			}
		}
	}
}

// A stream comes back from an older state: what it has lost is counted and said, and nothing is sent twice.
func TestStream_restored_from_an_older_state(t *testing.T) {
	t.Parallel()
	w := first(t)
	kept := ids(w.rounds())
	jobs, events := w.snapshot("MB_JOBS"), w.snapshot("MB_EVENTS")
	restore := func() { jobs(); events() }
	lost := ids(w.publish(some(6)...))
	w.drain()
	waiting := ids(w.publish(some(2)...))
	restore()
	w.want(3, args("status"), "is stopped (stream_behind)", "millbridge repair")
	p := w.plan(3, "")
	missed := 0
	for _, line := range p.Plan {
		var shard string
		var n int
		if i := strings.Index(line, "the stream misses"); i >= 0 {
			if _, err := fmt.Sscanf(line, "Shard %s the stream misses %d messages", &shard, &n); err != nil {
				t.Errorf("%v in %q", err, line)
			}
			missed += n
		}
	}
	if missed != len(lost) {
		t.Errorf("%d messages are said to be lost, want %d: %q", missed, len(lost), p.Plan)
	}
	w.want(0, args("repair --ambiguous resend --apply"), "done")
	w.fine()
	more := ids(w.publish(some(3)...))
	w.drain()
	stored := w.stored()
	for _, set := range []map[string]bool{kept, waiting, more} {
		for id := range set {
			if stored[id] != 1 {
				t.Errorf("%s is stored %d times", id, stored[id])
			}
		}
	}
	for id := range lost {
		if stored[id] != 0 {
			t.Errorf("the lost %s is stored %d times", id, stored[id])
		}
	}
	if len(stored) != len(kept)+len(waiting)+len(more) {
		t.Errorf("%d are stored", len(stored))
	}
}

// A stream is deleted and made anew by hand, or emptied: it says so, and goes on when somebody accepts the loss.
func TestStream_recreated_or_emptied(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(w *world, s natsjs.Stream) error{
		"deleted": func(w *world, s natsjs.Stream) error {
			return w.js.DeleteStream(w.Context(), s.CachedInfo().Config.Name)
		},
		"recreated": func(w *world, s natsjs.Stream) error {
			cfg := s.CachedInfo().Config
			err := w.js.DeleteStream(w.Context(), cfg.Name)
			if err == nil {
				_, err = w.js.CreateStream(w.Context(), cfg)
			}
			return err
		},
		"emptied": func(w *world, s natsjs.Stream) error { return s.Purge(w.Context()) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := first(t)
			gone := ids(w.rounds())
			for _, stream := range []string{"MB_JOBS", "MB_EVENTS"} {
				s, err := w.js.Stream(t.Context(), stream)
				if err != nil {
					t.Fatal(err)
				}
				if err := lose(w, s); err != nil {
					t.Fatal(err)
				}
			}
			waiting := ids(w.publish(some(2)...))
			w.want(3, args("status"), "is stopped (stream_lost)", "millbridge repair --stream-recreated")
			w.plan(3, "").says(t, "MB_JOBS", "MB_EVENTS", "(--stream-recreated)")
			w.want(1, args("repair --apply"), "Try: decide with")
			w.want(0, args("repair --stream-recreated --ambiguous resend --apply"), "done")
			w.fine()
			w.drain()
			stored := w.stored()
			for id := range gone {
				if stored[id] != 0 {
					t.Errorf("%s is stored %d times", id, stored[id])
				}
			}
			for id := range waiting {
				if stored[id] != 1 {
					t.Errorf("%s is stored %d times", id, stored[id])
				}
			}
		})
	}
}

// A stranger writes to the subjects of all cursors. Status names it, and a repair finds the cursors again.
func TestStranger_writes_to_the_cursors(t *testing.T) {
	t.Parallel()
	w := first(t)
	w.rounds()
	for _, stream := range []string{"MB_JOBS", "MB_EVENTS"} {
		s, err := w.js.Stream(t.Context(), stream)
		if err != nil {
			t.Fatal(err)
		}
		info, err := s.Info(t.Context(), natsjs.WithSubjectFilter("mb.cursor.>"))
		if err != nil || len(info.State.Subjects) == 0 {
			t.Fatalf("%s has no cursors (%v)", stream, err)
		}
		for subject := range info.State.Subjects {
			if _, err := w.js.Publish(t.Context(), subject, []byte("x")); err != nil {
				t.Fatal(err)
			}
		}
	}
	waiting := ids(w.publish(some(2)...))
	w.want(3, args("status"), "is stopped (unreadable)", "written to the cursor's subject", "millbridge repair")
	w.plan(3, "").says(t, "is none", "is still there", "mb.cursor.jobs.", "mb.cursor.events.")
	w.want(0, args("repair --apply"), "done")
	w.fine()
	w.drain()
	if others := w.check(); len(others) > 0 {
		t.Errorf("the streams hold others: %v", others)
	}
	stored := w.stored()
	for id := range waiting {
		if stored[id] != 1 {
			t.Errorf("%s is stored %d times", id, stored[id])
		}
	}
}

// Two databases feed one stream. When one is gone for good, what is left of it is removed, and the other goes on.
func TestTwo_databases_and_one_is_forgotten(t *testing.T) {
	t.Parallel()
	a := first(t)
	b := newWorld(t, testkit.PostgresURL(testkit.Postgres(t)), a.nats)
	var ofB map[string]bool
	for range 3 {
		a.publish(some(3)...)
		ofB = ids(b.publish(some(3)...))
		a.drain()
		b.drain()
	}
	a.fine()
	b.fine()
	if others := a.check(); len(others) != 3*len(ofB) {
		t.Errorf("the other has %d in the streams, want %d", len(others), 3*len(ofB))
	}
	gone := strings.TrimPrefix(b.source(), schema.SourceOf(""))
	a.want(3, []string{"repair", "--forget", gone}, "mb.cursor.jobs."+gone, "mb.cursor.events."+gone, "is deleted")
	a.want(0, []string{"repair", "--forget", gone, "--apply"}, "done")
	a.want(0, []string{"repair", "--forget", gone, "--apply"}, "nothing to repair")
	a.publish(some(3)...)
	a.drain()
	a.fine()
	if others := a.check(); len(others) != 3*len(ofB) {
		t.Errorf("the other has %d in the streams, want %d", len(others), 3*len(ofB))
	}
	b.publish(some(1)...)
	b.run(args("run --drain")...)
	b.want(3, args("status"), "is stopped (stream_lost)", "millbridge repair --stream-recreated")
}

// A shard that is idle for longer than everything is kept goes on afterwards, also when the server was restarted.
func TestIdle_for_longer_than_everything_is_kept(t *testing.T) {
	t.Parallel()
	w := first(t)
	const ttl = "--set=events_ttl=1s"
	w.publish(append(some(5), schema.NewEvent("keyed", 1, schema.WithKey("once")))...)
	w.want(0, args("run --drain "+ttl))
	w.handle("plain", 5)
	w.handle("ordered", 5)
	events, err := w.js.Stream(t.Context(), "MB_EVENTS")
	if err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, time.Minute, func() error {
		info, err := events.Info(t.Context(), natsjs.WithSubjectFilter("mb.events.>"))
		if err == nil && len(info.State.Subjects) > 0 {
			err = fmt.Errorf("%v are still there", info.State.Subjects)
		}
		return err
	})
	// Everything in the database becomes a year older.
	for _, query := range []string{
		`UPDATE millbridge.owners SET acquired_at = acquired_at - interval '1 year'`,
		`UPDATE millbridge.shards SET updated_at = updated_at - interval '1 year'`,
		`UPDATE millbridge.keys SET created_at = created_at - interval '1 year'`,
	} {
		if tag, err := w.pool.Exec(t.Context(), query); err != nil || tag.RowsAffected() == 0 {
			t.Fatalf("%s: %v, %v", query, tag, err)
		}
	}
	w.want(0, args("run --drain "+ttl)) // the upkeep forgets what is old
	for range 2 {
		w.nats.Restart()
		testkit.Eventually(t, time.Minute, func() error { return w.js.Conn().FlushTimeout(time.Second) })
	}
	w.fine()
	fresh := ids(w.publish(some(5)...))
	w.want(0, args("run --drain"))
	stored := w.stored()
	for id := range fresh {
		if stored[id] != 1 {
			t.Errorf("%s is stored %d times", id, stored[id])
		}
	}
	w.fine()
}

// A repair that is killed is run again, and ends right.
func TestRepair_killed_and_run_again(t *testing.T) {
	t.Parallel()
	w := first(t)
	w.rounds()
	waiting := w.publish(some(8)...)
	restore := w.dump()
	w.drain()
	forgotten := ids(w.rounds())
	handled := w.handle("plain", 48)
	c := w.copied(restore)
	// The copy takes the place of the original.
	start := func(arguments string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), os.Args[0], append(args(arguments), c.flags()...)...)
		cmd.Env = append(os.Environ(), runMain+"=1")
		return cmd
	}
	begin := time.Now()
	if err := start("repair").Run(); err == nil {
		t.Fatal("no repair is needed")
	}
	looking := time.Since(begin)
	kills := 0
	for i := range 5 {
		cmd := start("repair --ambiguous resend --apply")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		timer := time.AfterFunc(looking*time.Duration(4+3*i)/10, func() { _ = cmd.Process.Kill() }) // it may have ended
		err := cmd.Wait()
		timer.Stop()
		if err == nil {
			break
		}
		if cmd.ProcessState.ExitCode() >= 0 {
			t.Fatalf("the repair ended by itself: %v", err)
		}
		kills++
		if _, err := c.pool.Exec(t.Context(), `UPDATE millbridge.shards SET lease_until = '-infinity'`); err != nil {
			t.Fatal(err)
		}
	}
	if t.Logf("killed %d times", kills); kills == 0 {
		t.Error("no repair was killed: this shows nothing")
	}
	c.want(0, args("repair --ambiguous resend --apply"))
	c.fine()
	c.drain()
	stored := c.stored()
	for _, e := range waiting {
		if stored[e.ID] != 1 {
			t.Errorf("%s is stored %d times (handled before: %v)", e.ID, stored[e.ID], handled[e.ID])
		}
	}
	for id, n := range stored {
		if n != 1 {
			t.Errorf("%s is stored %d times", id, n)
		}
	}
	for id := range forgotten {
		if !handled[id] && stored[id] != 1 {
			t.Errorf("%s is stored %d times", id, stored[id])
		}
	}
}
