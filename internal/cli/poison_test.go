package cli_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/millbridge/millbridge/internal/deadletters"
	"github.com/millbridge/millbridge/schema"
)

func TestPoison_list_and_show(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		first := w.die(t, "crm", "net.OpError: connection\x1b[31m refused", schema.WithTenant("acme"))
		w.die(t, "mail", "error: mailbox full")
		for _, c := range []struct {
			args []string
			want int
		}{
			{nil, 2},
			{[]string{"--target", "crm"}, 1},
			{[]string{"--target", "none"}, 0},
			{[]string{"--error", "MAILBOX"}, 1},
			{[]string{"--tenant", "acme"}, 1},
			{[]string{"--name", "contact.update"}, 2},
			{[]string{"--name", "other"}, 0},
			{[]string{"--since", "1h"}, 2},
			{[]string{"--until", "1h"}, 0},
			{[]string{"--limit", "1"}, 1},
		} {
			if got := w.must(t, append([]string{"poison", "list", "--json"}, c.args...)...).objects(t); len(got) != c.want {
				t.Errorf("%v: %d messages, want %d: %v", c.args, len(got), c.want, got)
			}
		}
		page := w.must(t, "poison", "list", "--limit", "1")
		_, next, _ := strings.Cut(page.stdout, "--after ")
		if rest := w.must(t, "poison", "list", "--json", "--after", strings.TrimSpace(next)).objects(t); len(rest) != 1 || rest[0]["target"] != "mail" {
			t.Errorf("the second page is %v", rest)
		}
		shown := w.must(t, "poison", "show", first.ID)
		contains(t, shown.stdout, "at the handler for crm", "connection", "3 attempts, 3 deliveries, replayed 0 times", `"for": "crm"`, "    goroutine 1 [running]:\n        boom()")
		if strings.Contains(shown.stdout, "\x1b") {
			t.Errorf("an escape character got through:\n%q", shown.stdout)
		}
		r := w.run(t, "poison", "show", "nope")
		if r.code != 1 || !strings.Contains(r.stderr, "not found") {
			t.Error(r)
		}
	})
}

func TestPoison_replay_and_drop(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		a, b := w.die(t, "crm", "error: a"), w.die(t, "crm", "error: b")
		c := w.die(t, "mail", "error: c")

		r := w.must(t, "poison", "replay", "--all", "--dry-run")
		contains(t, r.stdout, "would be replayed", "3 messages would be replayed")
		if n := len(w.must(t, "poison", "list", "--json").objects(t)); n != 3 {
			t.Errorf("a dry run left %d messages", n)
		}
		r = w.run(t, "poison", "replay", "--target", "crm")
		if r.code != 2 || !strings.Contains(r.stderr, "2 messages: nobody can be asked here; repeat with --yes") {
			t.Errorf("several without --yes: %s", r)
		}
		contains(t, w.must(t, "poison", "replay", a.ID).stdout, "1 message replayed")
		contains(t, w.must(t, "poison", "drop", c.ID).stdout, "1 message dropped")
		for _, gone := range []struct {
			args []string
			want string
		}{
			{[]string{"replay", a.ID}, `no longer in the poison queue: for crm it was replayed before`},
			{[]string{"drop", a.ID}, `no longer in the poison queue: for crm it was replayed before`},
			{[]string{"replay", c.ID, "--target", "mail"}, `no longer in the poison queue: for mail it was dropped before`},
			{[]string{"replay", a.ID, "--target", "mail"}, `is not in the poison queue: not found`},
			{[]string{"drop", b.ID, "--target", "mail"}, `is in the poison queue for crm, and there is none for mail: not found`},
			{[]string{"replay", "nope"}, `message "nope" is not in the poison queue: not found`},
		} {
			if r := w.run(t, append([]string{"poison"}, gone.args...)...); r.code != 1 || !strings.Contains(r.stderr, gone.want) {
				t.Errorf("%v: %s, want %q", gone.args, r, gone.want)
			}
		}
		contains(t, w.must(t, "poison", "replay", "--target", "crm", "--yes", "--json").stdout, `"result":"done"`, b.ID)
		if left := w.must(t, "poison", "list", "--json").objects(t); len(left) != 0 {
			t.Errorf("left: %v", left)
		}
		rows := w.must(t, "outbox", "list", "--json").objects(t)
		if len(rows) != 2 || rows[0]["subject"] != "replay.crm.contact.update" {
			t.Errorf("the outbox holds %v", rows)
		}
		shown := w.must(t, "show", c.ID)
		contains(t, shown.stdout, "inbox of mail: dropped", "dead of mail: dropped")
	})
}

func TestPoison_replay_is_paced(t *testing.T) {
	t.Parallel()
	w := embeddedWorld(t)
	for range 6 {
		w.die(t, "crm", "error: a")
	}
	start := time.Now()
	w.must(t, "poison", "replay", "--all", "--yes", "--rate", "10")
	if d := time.Since(start); d < 500*time.Millisecond {
		t.Errorf("6 messages at 10 a second took %v", d)
	}
}

func TestPoison_two_operators_replay_one_letter(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		for _, byID := range []bool{true, false} {
			env := w.die(t, "crm", "error: a")
			box := deadletters.New(w.js, w.subjects, 0)
			letters, err := box.Get(t.Context(), env.ID)
			if err != nil {
				t.Fatal(err)
			}
			// The other operator has read the letter too and is quicker; its process ends before the letter is marked.
			other := deadletters.Operator{Store: w.store, Letters: noTombstones{}, Subjects: w.subjects}
			if err := other.Replay(t.Context(), letters[0]); err == nil {
				t.Fatal("the tombstone was written")
			}
			which, code := env.ID, 1
			if !byID { // all are replayed in the end, and that is what was asked for
				which, code = "--all", 0
			}
			r := w.run(t, "poison", "replay", which)
			if r.code != code {
				t.Error(r)
			}
			contains(t, r.stdout, "already", "0 messages replayed, 1 by somebody else before")
			if byID {
				contains(t, r.stderr, "already replayed")
			}
			if left := w.must(t, "poison", "list", "--json").objects(t); len(left) != 0 {
				t.Errorf("still listed: %v", left)
			}
		}
		if rows := w.must(t, "outbox", "list", "--json").objects(t); len(rows) != 2 {
			t.Errorf("the outbox holds %v", rows)
		}
	})
}

type noTombstones struct{}

func (noTombstones) Tombstone(context.Context, deadletters.Letter, string) (bool, error) {
	return false, fmt.Errorf("the process ended")
}

func TestPoison_parked_rows_are_in_the_list(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.must(t, "publish", "job", "crm", "big", "the whole payload", "--ordering-key", "k")
		w.must(t, "publish", "job", "crm", "small", "--ordering-key", "k")
		w.park(t, "too large")
		items := w.must(t, "poison", "list", "--json").objects(t)
		if len(items) == 0 || items[0]["at"] != "forwarder" || items[0]["target"] != "crm" || items[0]["name"] != "big" || items[0]["error"] != "too large" {
			t.Fatalf("list: %v", items)
		}
		id := items[0]["id"].(string)
		contains(t, w.must(t, "poison", "show", id).stdout, "at the forwarder for crm", "the whole payload")
		contains(t, w.must(t, "status").stdout, "note parked rows of crm: ")
		contains(t, w.must(t, "poison", "replay", id).stdout, "1 message replayed")
		rows := w.must(t, "outbox", "list", "--json").objects(t)
		if len(rows) != 2 || !strings.HasSuffix(rows[0]["subject"].(string), ".big") {
			t.Errorf("not released in order: %v", rows)
		}
		w.park(t, "too large")
		contains(t, w.must(t, "poison", "drop", id).stdout, "1 message dropped")
		rows = w.must(t, "outbox", "list", "--json").objects(t)
		if len(rows) != 1 || !strings.HasSuffix(rows[0]["subject"].(string), ".small") {
			t.Errorf("after the drop the outbox holds %v", rows)
		}
	})
}

// park does what a forwarder does with the oldest job that the server refuses for good, and with those behind it.
func (w *world) park(t *testing.T, reason string) {
	t.Helper()
	rows, err := w.store.ListOutbox(t.Context(), schema.RowFilter{Stream: schema.Jobs})
	if err != nil || len(rows) == 0 {
		t.Fatal(rows, err)
	}
	info, err := w.store.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	shard := int(rows[0].Slot) * info.Shards[schema.Jobs] >> 16
	ref := schema.ShardRef{Stream: schema.Jobs, Generation: info.Generation[schema.Jobs], Shard: shard}
	owner := schema.NewID()
	if _, ok, err := w.sends.Acquire(t.Context(), ref, owner, testLease); err != nil || !ok {
		t.Fatal(ok, err)
	}
	if err := w.sends.Park(t.Context(), schema.ParkParams{ShardRef: ref, Owner: owner, Name: rows[0].Name(), Reason: reason}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.sends.Tend(t.Context(), 100); err != nil {
		t.Fatal(err)
	}
	if err := w.sends.Release(t.Context(), owner); err != nil {
		t.Fatal(err)
	}
}

const (
	testLease   = 10 * time.Second
	testTimeout = time.Minute
)
