package cli_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/schema"
)

func TestPublish_then_look_at_it(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		first := w.must(t, "publish", "job", "crm", "contact.update", `{"note":"\u001b[31m"}`, "--key", "k-1", "--meta", "trace=a b", "--tenant", "acme", "--json").objects(t)[0]
		if first["existing"] != false {
			t.Errorf("got %v", first)
		}
		again := w.must(t, "publish", "job", "crm", "contact.update", `{"note":"\u001b[31m"}`, "--key", "k-1", "--tenant", "acme", "--json").objects(t)[0]
		if again["existing"] != true || again["id"] != first["id"] {
			t.Errorf("the same key again gives %v, first was %v", again, first)
		}
		r := w.run(t, "publish", "job", "crm", "contact.update", `{"other":1}`, "--key", "k-1", "--tenant", "acme")
		if r.code != 1 || !strings.Contains(r.stderr, "Try: use another --key for other content") {
			t.Errorf("another body with the same key: %s", r)
		}
		w.must(t, "publish", "event", "order.placed", "--due", "1h", "--public")

		rows := w.must(t, "outbox", "list", "--json").objects(t)
		if len(rows) != 1 || rows[0]["id"] != first["id"] || rows[0]["subject"] != "jobs.crm.contact.update" {
			t.Errorf("outbox list: %v", rows)
		}
		rows = w.must(t, "outbox", "list", "--status", "scheduled", "--for", "order.placed", "--json").objects(t)
		if len(rows) != 1 || rows[0]["subject"] != "events.public.order.placed" {
			t.Fatalf("outbox list --status scheduled: %v", rows)
		}
		due, err := time.Parse(time.RFC3339, rows[0]["due_at"].(string))
		if d := time.Until(due); err != nil || d < 58*time.Minute || d > time.Hour || !strings.HasSuffix(rows[0]["due_at"].(string), "Z") {
			t.Errorf("due_at = %v, %v", rows[0]["due_at"], err)
		}

		shown := w.must(t, "show", first["id"].(string))
		contains(t, shown.stdout, "target        crm", "action        contact.update", "key           k-1", "metadata      trace=a b", `"note": "\u001b[31m"`, "outbox jobs at ")
		if strings.Contains(shown.stdout, "\x1b") {
			t.Errorf("an escape character got through:\n%q", shown.stdout)
		}
		w.forward(t)
		found := w.must(t, "show", first["id"].(string), "--json").objects(t)[0]
		places := found["places"].([]any)
		if len(places) != 1 || places[0].(map[string]any)["at"] != "stream" || found["message"].(map[string]any)["payload"] != `{"note":"\u001b[31m"}` {
			t.Errorf("after forwarding: %v", found)
		}
	})
}

func TestPublish_payload_from_argument_file_and_stdin(t *testing.T) {
	t.Parallel()
	w := embeddedWorld(t)
	file := filepath.Join(t.TempDir(), "payload")
	if err := os.WriteFile(file, []byte("from a file\x00\xff"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args         []string
		stdin        string
		field, value string
	}{
		{[]string{`{"a":1}`}, "", "payload", `{"a":1}`},
		{[]string{"-"}, "from stdin", "payload", "from stdin"},
		{[]string{"--file", file}, "", "payload_base64", "ZnJvbSBhIGZpbGUA/w=="},
		{nil, "not read", "payload", ""},
	} {
		args := append(append([]string{"publish", "job", "crm", "x", "--json"}, c.args...), w.flags...)
		r := call(t, c.stdin, nil, args...)
		if r.code != 0 {
			t.Fatalf("%v: %s", c.args, r)
		}
		shown := w.must(t, "show", r.objects(t)[0]["id"].(string), "--json").objects(t)[0]
		if got := shown["message"].(map[string]any)[c.field]; got != c.value {
			t.Errorf("%v: %s = %q, want %q", c.args, c.field, got, c.value)
		}
	}
	r := w.run(t, "publish", "job", "crm", "x", "a", "--file", file)
	if r.code != 2 {
		t.Errorf("payload twice: %s", r)
	}
}

func TestPublish_refuses_what_cannot_be_delivered(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		r := w.run(t, "publish", "job", "Bad Target", "x y", "--key", strings.Repeat("k", 201), "--meta", "mb-x=1")
		if r.code != 1 {
			t.Fatal(r)
		}
		contains(t, r.stderr, `target: "Bad Target" must be`, `action: "x y" must be`, "key: too long in characters (length 201, limit 200)",
			"metadata[mb-x]", "Try: change the fields named above and publish again; nothing was written")
		if rows := w.must(t, "outbox", "list", "--json").objects(t); len(rows) != 0 {
			t.Errorf("something was written: %v", rows)
		}
	})
}

func TestErrors_of_files_do_not_blame_the_servers(t *testing.T) {
	t.Parallel()
	r := call(t, "", nil, "publish", "job", "crm", "x", "--file", filepath.Join(t.TempDir(), "nothing"))
	if r.code == 0 || !strings.Contains(r.stderr, "no such file") || strings.Contains(r.stderr, "NATS") {
		t.Errorf("%s", r)
	}
}

func TestUsage_errors_exit_with_2_and_a_hint(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"nonsense"},
		{"poison", "nonsense"},
		{"poison"},
		{"status", "x"},
		{"status", "--nonsense"},
		{"show"},
		{"publish", "job", "crm"},
		{"publish", "job", "a", "b", "c", "d"},
		{"publish", "job", "a", "b", "--due", "tomorrow"},
		{"publish", "job", "a", "b", "--due", "-1h"},
		{"publish", "job", "a", "b", "--meta", "x"},
		{"poison", "replay"},
		{"poison", "replay", "x", "--all"},
		{"poison", "replay", "--all", "--target", "x"},
		{"poison", "replay", "--all", "--rate", "0"},
		{"poison", "list", "--since", "x"},
		{"outbox", "list", "--limit", "0"},
		{"outbox", "list", "--status", "dispatched"},
		{"config", "check", "--set", "x"},
		{"migrate", "up", "--max-payload", "much"},
		{"status", "--log-level", "loud"},
		{"status", "--prefix", "a.b"},
		{"run", "--set", "stop_timeout=soon"},
		{"run", "--set", "stop_timout=1s", "--set", "nats.replicas=2"},
		{"migrate", "up", "--database-url", "mysql://h/d"},
	} {
		r := call(t, "", nil, args...)
		lines := strings.Split(strings.TrimSpace(r.stderr), "\n")
		if r.code != 2 || r.stdout != "" || !strings.HasPrefix(r.stderr, "Error: ") || !strings.HasPrefix(lines[len(lines)-1], "Try: ") {
			t.Errorf("%v: %s", args, r)
		}
	}
}

func TestMigrate(t *testing.T) {
	t.Parallel()
	w := postgresWorld(t)
	w.must(t, "publish", "job", "crm", "x")
	r := w.run(t, "migrate", "down", "--force")
	if r.code != 2 || !strings.Contains(r.stderr, "repeat with --yes") {
		t.Errorf("down where nobody can be asked: %s", r)
	}
	r = w.run(t, "migrate", "down", "--yes")
	if r.code != 1 {
		t.Errorf("down with a row: %s", r)
	}
	contains(t, r.stderr, "there are still messages", "--force drops it")
	shard := schema.ShardRef{Stream: schema.Events, Generation: 1, Shard: 1}
	owner := schema.NewID()
	if _, ok, err := w.store.Acquire(t.Context(), shard, owner, time.Minute); err != nil || !ok {
		t.Fatal(ok, err)
	}
	r = w.run(t, "migrate", "down", "--force", "--yes")
	if r.code != 1 {
		t.Errorf("down while a process forwards: %s", r)
	}
	contains(t, r.stderr, "a process forwards shard 1 of events", "nothing was dropped")
	if err := w.store.Release(t.Context(), owner); err != nil {
		t.Fatal(err)
	}
	for _, answer := range []string{"n\n", ""} {
		if r := inTerminal(t, answer, append([]string{"migrate", "down", "--force"}, w.flags...)...); r.code != 1 || !strings.Contains(r.stderr, "drop all tables of Millbridge in postgres://") {
			t.Errorf("answer %q: %s", answer, r)
		}
	}
	w.must(t, "migrate", "status")
	if r := inTerminal(t, "y\n", append([]string{"migrate", "down", "--force"}, w.flags...)...); r.code != 0 {
		t.Errorf("answer y: %s", r)
	}
	r = w.run(t, "migrate", "status")
	if r.code != 3 {
		t.Errorf("status without tables: %s", r)
	}
	contains(t, r.stdout, "version 0, this program needs 1")
	contains(t, r.stderr, "Try: `millbridge migrate up`")
	r = w.run(t, "publish", "job", "crm", "x")
	if r.code != 1 {
		t.Errorf("publish without tables: %s", r)
	}
	contains(t, r.stderr, "Try: `millbridge migrate up`")
	contains(t, w.must(t, "migrate", "up", "--max-payload", "10KiB").stdout, "migrated from version 0 to 1", "the largest payload is now 10KiB")
	contains(t, w.must(t, "migrate", "up").stdout, "already at version 1")
	r = w.run(t, "publish", "job", "crm", "x", strings.Repeat("x", 10241))
	contains(t, r.stderr, "payload: too large (length 10241, limit 10240)")

	contains(t, call(t, "", nil, "migrate", "print").stdout, "-- 0001_init.up.sql", "CREATE")
	contains(t, call(t, "", nil, "migrate", "print", "--down", "--sqlite").stdout, "-- 0001_init.down.sql", "DROP")
}

func TestMigrate_down_refuses_a_data_directory_that_is_run(t *testing.T) {
	t.Parallel()
	w := embeddedWorld(t)
	if r := w.run(t, "migrate", "down", "--force", "--yes"); r.code != 1 || !strings.Contains(r.stderr, "a process runs") {
		t.Errorf("got %s", r)
	}
	w.must(t, "migrate", "status")
}

// Who only works on the database need not say where NATS is; who needs it is told so.
func TestCommands_of_the_database_need_no_NATS(t *testing.T) {
	t.Parallel()
	flags := []string{"--database-url", testkit.PostgresURL(testkit.EmptyPostgres(t))}
	for _, args := range [][]string{
		{"migrate", "up"},
		{"migrate", "status"},
		{"publish", "job", "crm", "x"},
		{"outbox", "list"},
		{"migrate", "down", "--force", "--yes"},
		{"migrate", "down", "--yes"},
	} {
		if r := call(t, "", nil, append(args, flags...)...); r.code != 0 {
			t.Errorf("%v: %s", args, r)
		}
	}
	for _, args := range [][]string{{"status"}, {"run"}, {"config", "check"}} {
		r := call(t, "", nil, append(args, flags...)...)
		if r.code == 0 || !strings.Contains(r.stderr, "is set without nats.url") {
			t.Errorf("%v: %s", args, r)
		}
	}
}

func TestConfig_check_tells_programs_what_is_wrong(t *testing.T) {
	t.Parallel()
	good := []string{"config", "check", "--json", "--database-url", "postgres://u:the-secret@h/d", "--nats-url", "nats://h"}
	r := call(t, "", nil, good...)
	if got := r.objects(t); r.code != 0 || len(got) != 1 || got[0]["ok"] != true || len(got[0]["faults"].([]any)) != 0 {
		t.Errorf("nothing is wrong: %s", r)
	}
	vars := map[string]string{"MILLBRIDGE_STOP_TIMEOUT": "soon", "MILLBRIDGE_FORWARD": "perhaps"}
	r = call(t, "", vars, good...)
	if got := r.objects(t); r.code != 3 || len(got) != 1 || got[0]["ok"] != false || len(got[0]["faults"].([]any)) != 2 {
		t.Errorf("two variables are wrong: %s", r)
	}
	r = call(t, "", map[string]string{"MILLBRIDGE_NATS_CREDS_FILE": "/nowhere"}, good...)
	if got := r.objects(t); r.code != 3 || len(got) != 1 || !strings.Contains(fmt.Sprint(got[0]["faults"]), "nats.creds_file: open /nowhere") {
		t.Errorf("a file is not there: %s", r)
	}
	if strings.Contains(r.String(), "the-secret") {
		t.Errorf("a secret is printed: %s", r)
	}
}

func TestCommands_need_a_data_directory_that_is_there(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "none")
	for _, args := range [][]string{{"status"}, {"poison", "list"}, {"show", "x"}} {
		r := call(t, "", nil, append(args, "--data-dir", dir)...)
		if _, err := os.Stat(dir); r.code != 1 || err == nil || !strings.Contains(r.stderr, "millbridge dev") {
			t.Errorf("%v: %s", args, r)
		}
	}
	r := call(t, "", nil, "publish", "job", "crm", "x", "--data-dir", dir)
	contains(t, r.stderr, "made a new data directory", dir)
	if r.code != 0 {
		t.Errorf("publish makes it: %s", r)
	}
	// Nothing runs there: the commands open it themselves.
	r = call(t, "", nil, "outbox", "list", "--json", "--data-dir", dir)
	if r.code != 0 || len(r.objects(t)) != 1 {
		t.Error(r)
	}
}
