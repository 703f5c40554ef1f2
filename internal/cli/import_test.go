package cli_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Rows of two other outboxes, as their databases export them.
const foreignRows = `
{"id": 1, "target": "mail", "idempotency_key": "ENQ_01", "payload": {"action": "letter.send", "args": {"to": "a"}}, "status": "pending", "attempts": 2, "next_attempt_at": "%[1]s"}
{"id": 2, "target": "mail", "idempotency_key": "ENQ_02", "payload": "{\"action\": \"letter.send\"}", "status": "delivered", "delivered_at": "2026-01-01T00:00:00+00:00"}
{"id": 3, "target": "mail", "idempotency_key": "ENQ_03", "payload": "{\"action\": \"letter.send\"}", "status": "dead_letter", "last_error": "boom"}

{"id": "01980A5E-3C1F-7C55-9D0E-1A2B3C4D5E6F", "kind": "job", "name": "crm.contact.update", "status": "pending", "available_at": "2026-01-01 00:00:00.5", "locked_by": "w-1", "payload": {"name": "crm.contact.update", "payload": {"id": 7}, "idempotency_key": null, "actor_id": "u-1", "tenant_id": "acme", "request_id": "r-1", "enqueued_at": "2026-01-01T00:00:00Z", "attempt": 1}}
{"id": "01980a5e-3c1f-7c55-9d0e-1a2b3c4d5e70", "kind": "event", "name": "order.placed", "status": "pending", "available_at": null, "payload": {"order": 7, "name": "order.placed"}, "created_at": "2026-01-01T00:00:00"}
{"id": "01980a5e-3c1f-7c55-9d0e-1a2b3c4d5e71", "kind": "event", "name": "order.placed", "status": "dispatched", "payload": {}}
{"id": "01980a5e-3c1f-7c55-9d0e-1a2b3c4d5e72", "kind": "job", "name": "crm.contact.update", "status": "dead_lettered", "payload": {}}
`

func TestImport_takes_over_what_is_pending(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		rows := fmt.Sprintf(foreignRows, time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
		run := func(args ...string) map[string]any {
			t.Helper()
			r := call(t, rows, nil, append(append([]string{"import", "-", "--json"}, args...), w.flags...)...)
			if r.code != 0 {
				t.Fatal(r)
			}
			return r.objects(t)[0]
		}
		said := func(got map[string]any, published, existing, done, dead int) {
			t.Helper()
			left, _ := got["left"].(map[string]any)
			for name, want := range map[string]int{"published": published, "existing": existing} {
				if got[name] != float64(want) {
					t.Errorf("%s is %v, want %d", name, got[name], want)
				}
			}
			if left["done"] != float64(done) || dead > 0 && left["dead"] != float64(dead) {
				t.Errorf("left %v, want %d done and %d dead", left, done, dead)
			}
		}
		said(run("--dry-run"), 3, 0, 2, 2)
		if rows := w.must(t, "outbox", "list", "--json").objects(t); len(rows) != 0 {
			t.Errorf("a dry run has written %v", rows)
		}
		said(run(), 3, 0, 2, 2)
		said(run(), 0, 3, 2, 2) // once more is harmless
		said(run("--status", "pending,dead_lettered"), 2, 3, 2, 0)

		shown := w.must(t, "show", "01980a5e-3c1f-7c55-9d0e-1a2b3c4d5e6f").stdout
		contains(t, shown, "target        crm", "action        contact.update", "key           01980A5E-3C1F-7C55-9D0E-1A2B3C4D5E6F", "tenant        acme", "u-1", "r-1", `"id": 7`)
		contains(t, w.must(t, "show", "01980a5e-3c1f-7c55-9d0e-1a2b3c4d5e70").stdout, "order.placed", `"order": 7`)
		due := w.must(t, "outbox", "list", "--status", "scheduled", "--for", "mail", "--json").objects(t)
		if len(due) != 1 || due[0]["subject"] != "jobs.mail.letter.send" {
			t.Errorf("the row that waits for its next attempt: %v", due)
		}
		contains(t, w.must(t, "show", due[0]["id"].(string)).stdout, "key           ENQ_01", `"to": "a"`)
		if waiting := w.must(t, "outbox", "list", "--status", "PENDING", "--json").objects(t); len(waiting) != 4 {
			t.Errorf("waiting: %v", waiting)
		}
		if parked := w.must(t, "outbox", "list", "--status", "dead_letter", "--json").objects(t); len(parked) != 0 {
			t.Errorf("parked: %v", parked)
		}
	})
}

func TestImport_checks_everything_before_it_writes(t *testing.T) {
	t.Parallel()
	w := embeddedWorld(t)
	bad := strings.Join([]string{
		`{"id": 1, "target": "mail", "idempotency_key": "k1", "payload": {"action": "send"}, "status": "pending"}`,
		`not json`,
		`{"id": 3, "target": "Bad Target", "idempotency_key": "k", "payload": {"action": "send"}, "status": "pending"}`,
		`{"id": 4, "target": "mail", "idempotency_key": "k", "payload": {"action": 7}, "status": "pending"}`,
		`{"id": 5, "target": "mail", "idempotency_key": "k", "payload": {"action": "send", "args": []}, "status": "pending"}`,
		`{"id": 6, "target": "mail", "idempotency_key": "k", "payload": "", "status": "pending"}`,
		`{"id": 7, "kind": "job", "name": "update", "payload": {}, "status": "pending"}`,
		`{"id": 8, "kind": "task", "name": "update", "payload": {}, "status": "pending"}`,
		`{"id": 9, "payload": {}, "status": "pending"}`,
		`{"id": 10, "kind": "event", "name": "x", "payload": {}, "status": "lost"}`,
		`{"kind": "event", "name": "x", "payload": {}, "status": "pending"}`,
		`{"id": 12, "kind": "event", "name": "x", "payload": {}, "status": "pending", "available_at": "soon"}`,
		`{"id": 13, "target": "mail", "idempotency_key": "k1", "payload": {"action": "other"}, "status": "pending"}`,
	}, "\n")
	file := filepath.Join(t.TempDir(), "rows.ndjson")
	if err := os.WriteFile(file, []byte(bad), 0o600); err != nil {
		t.Fatal(err)
	}
	r := w.run(t, "import", file)
	if r.code != 1 {
		t.Fatal(r)
	}
	contains(
		t, r.stderr, "line 2: is not a row", `line 3: invalid message`, `line 4: payload: wants an object with a text "action"`,
		`line 5: payload: "args" is no object`, "line 6: payload: is not JSON", "line 7: name: \"update\" does not say which target",
		`line 8: kind: "task" is neither job nor event`, "line 9: has neither a target nor a kind", `line 10: status: "lost" is no status`,
		"line 11: has neither an idempotency_key nor an id", `line 12: the time of the next attempt: "soon" is no time`,
		"line 13: idempotency key was already used", "Try: nothing was written",
	)
	if rows := w.must(t, "outbox", "list", "--json").objects(t); len(rows) != 0 {
		t.Errorf("something was written: %v", rows)
	}
	// A job that does not name its target can be given one.
	one := `{"id": 7, "kind": "job", "name": "update", "payload": {}, "status": "pending"}`
	r = call(t, one, nil, append([]string{"import", "-", "--target", "crm"}, w.flags...)...)
	if r.code != 0 || r.stdout != "1 message published\n" {
		t.Error(r)
	}
	for _, args := range [][]string{{"import"}, {"import", "-", "--status", "delivered"}, {"import", "-", "--status", "x"}} {
		if r := w.run(t, args...); r.code != 2 {
			t.Errorf("%v: %s", args, r)
		}
	}
	if r := w.run(t, "import", filepath.Join(t.TempDir(), "none")); r.code != 1 || !strings.Contains(r.stderr, "standard input") {
		t.Errorf("no file: %s", r)
	}
}
