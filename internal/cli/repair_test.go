package cli_test

import (
	"strings"
	"testing"
)

// TestRepair_of_a_lost_stream goes the way an operator goes: status, plan, decision, repair, and on.
func TestRepair_of_a_lost_stream(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		if r := w.must(t, "repair"); r.stdout != "nothing to repair\n" {
			t.Errorf("before anything happened: %s", r)
		}
		w.must(t, "publish", "job", "crm", "x")
		w.forward(t)
		if r := w.must(t, "repair", "--json"); r.objects(t)[0]["needed"] != false {
			t.Errorf("after forwarding: %s", r)
		}
		if err := w.js.DeleteStream(t.Context(), "MB_JOBS"); err != nil {
			t.Fatal(err)
		}
		w.ensureStreams(t)
		if list := w.reasons(t); !has(list, "shard", "of jobs is stopped (stream_lost)", "millbridge repair --stream-recreated") {
			t.Errorf("status says %q", list)
		}
		r := w.run(t, "repair")
		if r.code != 3 || !strings.Contains(r.stdout, "to decide: ") {
			t.Errorf("the plan: %s", r)
		}
		r = w.run(t, "repair", "--apply")
		if r.code != 1 || !strings.Contains(r.stderr, "Try: decide with") {
			t.Errorf("undecided: %s", r)
		}
		w.must(t, "publish", "job", "crm", "y")
		r = w.run(t, "repair", "--stream-recreated", "--json")
		plan := r.objects(t)[0]
		if r.code != 3 || plan["needed"] != true || plan["applied"] != false {
			t.Errorf("with the decision: %s", r)
		}
		r = w.must(t, "repair", "--stream-recreated", "--ambiguous", "resend", "--apply")
		contains(t, r.stdout, "done")
		if r := w.must(t, "repair"); r.stdout != "nothing to repair\n" {
			t.Errorf("after the repair: %s", r)
		}
		w.forward(t)
		if rows := w.must(t, "outbox", "list", "--json").objects(t); len(rows) != 0 {
			t.Errorf("not forwarded: %v", rows)
		}
		if list := w.reasons(t); has(list, "stopped") {
			t.Errorf("status still says %q", list)
		}
	})
}

func TestRepair_usage(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"repair", "--ambiguous", "x"}, {"repair", "--forget", "x", "--as-clone"}, {"repair", "x"}} {
		if r := call(t, "", nil, args...); r.code != 2 {
			t.Errorf("%v: %s", args, r)
		}
	}
}
