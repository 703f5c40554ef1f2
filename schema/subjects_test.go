package schema_test

import (
	"strings"
	"testing"

	"github.com/millbridge/millbridge/schema"
)

func TestSubjects(t *testing.T) {
	t.Parallel()
	s := schema.Subjects{Prefix: "shop-1"}
	for got, want := range map[string]string{
		s.Full("jobs.t.a"):                      "shop-1.jobs.t.a",
		s.StreamName(schema.Jobs):               "SHOP-1_JOBS",
		s.StreamName(schema.Events):             "SHOP-1_EVENTS",
		s.DeadStreamName():                      "SHOP-1_DEAD",
		s.Target("t"):                           "shop-1.jobs.t.>",
		s.Replays("h"):                          "shop-1.replay.h.>",
		s.Event("order.>"):                      "shop-1.events.*.order.>",
		s.Dead(schema.Events, "h", "id", 3):     "shop-1.dead.events.h.id.3",
		s.Cursor(schema.Jobs, "abc", 2, 1):      "shop-1.cursor.jobs.abc.2.1",
		schema.Subjects{}.Full("x"):             "mb.x",
		schema.Subjects{}.DeadStreamName():      "MB_DEAD",
		schema.SourceOf("abc"):                  "/millbridge/abc",
		schema.ReplaySubject("h", "order.x"):    "replay.h.order.x",
		schema.EventSubject(schema.Public, "x"): "events.public.x",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if got, ok := s.Relative("shop-1.jobs.t.a"); !ok || got != "jobs.t.a" {
		t.Errorf("relative %q, %v", got, ok)
	}
	for _, full := range []string{"shop-10.jobs.t.a", "shop-1", "mb.jobs.t.a", ""} {
		if got, ok := s.Relative(full); ok {
			t.Errorf("%q was taken for ours: %q", full, got)
		}
	}
	for _, p := range []string{"a.b", "A", "*", ">", "a b", "$x", "_x", "é", strings.Repeat("x", 33)} {
		if (schema.Subjects{Prefix: p}).Validate() == nil {
			t.Errorf("prefix %q accepted", p)
		}
	}
	for _, p := range []string{"", "mb", "a-b_9", strings.Repeat("x", 32)} {
		if err := (schema.Subjects{Prefix: p}).Validate(); err != nil {
			t.Error(err)
		}
	}
}
