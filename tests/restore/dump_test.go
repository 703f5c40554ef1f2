package restore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/internal/testkit/pgserver"
	"github.com/millbridge/millbridge/schema"
)

// tool runs a program of PostgreSQL's.
func tool(t *testing.T, name string, args ...string) []byte {
	t.Helper()
	bin, _, err := pgserver.Find()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(bin, name)
	if _, err := os.Stat(path); err != nil {
		if path, err = exec.LookPath(name); err != nil {
			t.Fatalf("%s is not installed: it comes with PostgreSQL (Debian: apt-get install postgresql)", name)
		}
	}
	cmd := exec.CommandContext(t.Context(), path, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v\n%s", name, err, &errs)
	}
	return out.Bytes()
}

// dump backs a database up as it is now; the returned function restores it into a new database of a server.
func (w *world) dump() (restore func(admin, name string) *world) {
	w.Helper()
	file := filepath.Join(w.TempDir(), "dump")
	tool(w.T, "pg_dump", "--format=custom", "--file="+file, w.url)
	return func(admin, name string) *world {
		w.Helper()
		conn, err := pgx.Connect(w.Context(), admin)
		if err != nil {
			w.Fatal(err)
		}
		defer conn.Close(w.Context())
		if _, err := conn.Exec(w.Context(), "CREATE DATABASE "+name); err != nil {
			w.Fatal(err)
		}
		u, err := url.Parse(admin)
		if err != nil {
			w.Fatal(err)
		}
		u.Path = "/" + name
		tool(w.T, "pg_restore", "--exit-on-error", "--dbname="+u.String(), file)
		return newWorld(w.T, u.String(), w.nats)
	}
}

// value asks a database for one number.
func (w *world) value(query string) (n int64) {
	w.Helper()
	if err := w.pool.QueryRow(w.Context(), query).Scan(&n); err != nil {
		w.Fatal(err)
	}
	return n
}

// The database comes back from a dump on a new server, which counts its transactions from the start, whose sequences are
// behind what was sent and which knows nothing of what happened since.
func TestDump_into_a_fresh_server(t *testing.T) {
	t.Parallel()
	server, err := pgserver.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	old := first(t)
	old.rounds()
	pending := old.publish(some(10)...)
	soon := old.publish(schema.NewJob("crm", "soon", 1, schema.WithDelay(time.Hour), schema.WithOrderingKey("one shard")))[0]
	later := old.publish(schema.NewJob("crm", "later", 1, schema.WithDelay(48*time.Hour), schema.WithOrderingKey("one shard")))[0]
	restore := old.dump()

	if _, err := old.pool.Exec(t.Context(), `UPDATE millbridge.scheduled SET due_at = now() WHERE due_at < now() + interval '2 hours'`); err != nil {
		t.Fatal(err)
	}
	old.drain()
	forgotten := ids(old.rounds())
	old.checkBut(nil, later.ID)
	handled := old.handle("plain", 60) // the 40 sent before the dump, the ten that wait in it, some after it
	seq := old.value(`SELECT last_value FROM millbridge.outbox_seq`)
	before := old.stored()

	w := restore(server.URL(), "restored")
	if now := w.value(`SELECT last_value FROM millbridge.outbox_seq`); now >= seq {
		t.Errorf("the sequence is at %d and was at %d", now, seq)
	}
	stop := w.bridge()
	w.want(3, args("status"), "is stopped (clone)", "millbridge repair")
	fresh := ids(w.publish(some(10)...)) // with numbers that were given before
	p := w.plan(3, "")
	p.says(t, "this one becomes its owner", "waiting rows may have been sent", "choose whether to resend or to park", "of 2 scheduled messages the stream has 1")
	if after := w.stored(); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("%d messages are stored, before the repair there were %d", len(after), len(before))
	}
	unsure := make(map[string]bool)
	for _, row := range p.Rows {
		unsure[row.ID] = true
		if !handled[row.ID] && !fresh[row.ID] { // the new ones came within a minute of the cursor, as clocks go
			t.Errorf("%s is in doubt", row.ID)
		}
	}
	for _, e := range pending {
		if handled[e.ID] && !unsure[e.ID] {
			t.Errorf("%s was handled and is not in doubt", e.ID)
		}
	}
	w.want(1, args("repair --apply"), "Try: decide with")
	w.want(0, args("repair --ambiguous resend --apply"), "done")
	w.fine()
	testkit.Eventually(t, time.Minute, func() error {
		if n := w.value(`SELECT count(*) FROM millbridge.outbox`); n > 0 {
			return fmt.Errorf("%d rows wait", n)
		}
		return nil
	})
	stop()
	after := w.stored()
	for _, e := range append(pending, soon) {
		if want := 1; after[e.ID] != want {
			t.Errorf("%s %s is stored %d times (handled before: %v)", e.Subject(), e.ID, after[e.ID], handled[e.ID])
		}
	}
	for id := range fresh {
		if after[id] != 1 {
			t.Errorf("the new %s is stored %d times", id, after[id])
		}
	}
	if n := w.value(`SELECT count(*) FROM millbridge.scheduled`); n != 1 || after[later.ID] != 0 {
		t.Errorf("%d messages are scheduled", n)
	}
	for _, id := range w.checkBut(handled, later.ID) {
		if !forgotten[id] {
			t.Errorf("%s is stored and was never committed", id)
		}
	}
}

// checkBut is check where some messages were handled before, which only the test knows, and one is scheduled.
func (w *world) checkBut(handled map[string]bool, scheduled string) (others []string) {
	w.Helper()
	report, err := w.book.Check(w.Context(), w.js, schema.Subjects{})
	if err != nil {
		w.Fatal(err)
	}
	report.Lost = slices.DeleteFunc(report.Lost, func(id string) bool { return handled[id] })
	others, report.Invented = report.Invented, nil
	if faults := report.Faults(true); len(faults) > 0 || report.Waiting != 1 {
		w.Errorf("%s: %v (scheduled %s)", report, faults, scheduled)
	}
	return others
}

// A copy on the same server takes the place of the original.
func TestCopy_that_replaces_the_original(t *testing.T) {
	t.Parallel()
	old := first(t)
	old.publish(some(5)...)
	old.drain()
	old.publish(some(5)...)
	w := old.copied(old.dump())
	w.want(3, args("status"), "is stopped (clone)", "millbridge repair", "--as-clone")
	if r := w.run(args("run --drain")...); r.code != 1 || !strings.Contains(r.stderr, "millbridge repair") {
		t.Errorf("draining a copy: %s", r)
	}
	w.want(3, args("repair"), "The original must not run any more")
	w.want(0, args("repair --apply"), "done")
	w.fine()
	w.publish(some(5)...)
	w.drain()
	if others := w.check(); len(others) > 0 {
		t.Errorf("never committed: %v", others)
	}
	// Somebody starts the original after all: the fence keeps it out, and it says so.
	w.publish(some(1)...)
	w.drain()
	old.run(args("run --drain")...)
	old.want(3, args("status"), "is stopped (", "millbridge repair")
	if others := w.check(); len(others) > 0 {
		t.Errorf("the original sent %v", others)
	}
}

// copied restores a dump beside the original.
func (w *world) copied(restore func(admin, name string) *world) *world {
	w.Helper()
	u, err := url.Parse(w.url)
	if err != nil {
		w.Fatal(err)
	}
	name := strings.TrimPrefix(u.Path, "/") + "_copy"
	u.Path = "/postgres"
	w.Cleanup(func() {
		ctx := context.WithoutCancel(w.Context())
		conn, err := pgx.Connect(ctx, u.String())
		if err == nil {
			_, err = conn.Exec(ctx, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)")
			err = errors.Join(err, conn.Close(ctx))
		}
		if err != nil {
			w.Error(err)
		}
	})
	return restore(u.String(), name)
}

// A copy lives on beside the original, and both feed the same streams at once.
func TestCopy_that_lives_on_beside_the_original(t *testing.T) {
	t.Parallel()
	a := first(t)
	a.publish(some(5)...)
	a.drain()
	waiting := a.publish(some(3)...)
	b := a.copied(a.dump())
	p := b.plan(3, "--as-clone")
	p.says(t, "gets an outbox id of its own", "the original sends them too")
	if len(p.Rows) != len(waiting) {
		t.Errorf("%d rows are in doubt, want %d", len(p.Rows), len(waiting))
	}
	b.want(0, args("repair --as-clone --ambiguous park --apply"), "done")
	b.fine()
	a.fine()
	stopA, stopB := a.bridge(), b.bridge()
	ofA, ofB := map[string]bool{}, map[string]bool{}
	for range 10 {
		for id := range ids(a.publish(some(3)...)) {
			ofA[id] = true
		}
		// The parked rows hold back what follows them under their ordering key, so the copy has keys of its own.
		var envs []schema.Envelope
		for i := range 6 {
			envs = append(envs, schema.NewJob("crm", "ordered", i, schema.WithOrderingKey("two"), schema.WithKey(fmt.Sprint("k", len(ofB)+i))),
				schema.NewEvent("paid", i, schema.WithOrderingKey("two")))
		}
		for id := range ids(b.publish(envs...)) {
			ofB[id] = true
		}
	}
	for _, w := range []*world{a, b} {
		testkit.Eventually(t, time.Minute, func() error {
			if n := w.value(`SELECT count(*) FROM millbridge.outbox`); n > 0 {
				return fmt.Errorf("%d rows wait", n)
			}
			return nil
		})
	}
	stopA()
	stopB()
	for _, id := range a.check() {
		if !ofB[id] {
			t.Errorf("%s was never committed", id)
		}
	}
	report, err := b.book.Check(t.Context(), b.js, schema.Subjects{})
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Lost)+len(report.Doubled)+len(report.Reordered) > 0 || len(report.Both) != len(waiting) {
		t.Errorf("of the copy: %+v", report)
	}
	for _, id := range report.Invented {
		if !ofA[id] {
			t.Errorf("%s was never committed", id)
		}
	}
	sources := map[string]int{}
	for id, source := range a.sources() {
		if want := ofB[id]; want == (source == a.source()) {
			t.Errorf("%s comes from %s", id, source)
		}
		sources[source]++
	}
	if len(sources) != 2 || sources[b.source()] != len(ofB) {
		t.Errorf("sources: %v", sources)
	}
}
