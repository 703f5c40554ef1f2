package saga

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/schema"
)

func TestSteps_follow_each_other_and_wait_for_reports(t *testing.T) {
	t.Parallel()
	b := newBench(
		t,
		Step[order]{Name: "one", Do: tells("a")},
		Step[order]{Name: "two", Do: asks("b"), OnReport: func(_ *Context, o order, r schema.Outcome) (Result[order], error) {
			answer, err := Answer[struct{ Answer int }](r)
			return Next(o.with(fmt.Sprint(answer.Answer)), "it is there"), err
		}},
		Step[order]{Name: "three", Do: tells("c")},
	)
	b.start()
	b.want(schema.SagaWaiting, " started", "one done", "two waiting")
	if len(b.jobs) != 2 {
		t.Fatalf("%d jobs, want a and b", len(b.jobs))
	}
	b.must(report(b.take("b"), true))
	b.want(schema.SagaDone, " started", "one done", "two waiting", "two done", "three done")
	if got := b.state().Log; !slices.Equal(got, []string{"a", "b", "7", "c"}) {
		t.Errorf("the state has seen %q", got)
	}
}

func TestIntents_have_keys_order_and_a_ref(t *testing.T) {
	t.Parallel()
	b := newBench(t, Step[order]{Name: "one", Do: func(c *Context, o order) (Result[order], error) {
		return Next(o, "", Ask(work("a"), nil), Intent{Target: "work", Action: "b", Key: "mine", OrderingKey: "line", Delay: time.Hour, Args: []byte(`[1]`)}), nil
	}})
	b.start()
	first, second := b.take("a"), b.take("b")
	if !strings.HasPrefix(first.Key, "one_") || len(first.Key) != len("one_")+26 || first.OrderingKey != "o-1" || string(first.Payload) != "null" {
		t.Errorf("a has key %q, ordering key %q and payload %s", first.Key, first.OrderingKey, first.Payload)
	}
	if r := first.ReplyTo; r == nil || *r != (schema.ReplyTo{Target: "order", Action: "report", Ref: "o-1/2.0"}) {
		t.Errorf("a reports to %v", r)
	}
	if second.Key != "mine" || second.OrderingKey != "line" || second.Delay != time.Hour || second.ReplyTo != nil || string(second.Payload) != "[1]" {
		t.Errorf("b is %+v", second)
	}
	want := fmt.Sprintf(`[{"id":%q,"target":"work","idempotency_key":%q,"payload":{"action":"a","args":null},"call":true},`+
		`{"id":%q,"target":"work","idempotency_key":"mine","payload":{"action":"b","args":[1]},"delay":"1h0m0s"}]`, first.ID, first.Key, second.ID)
	if got := string(b.events[1].Intents); got != want {
		t.Errorf("the ledger says\n%s, want\n%s", got, want)
	}
}

func TestFailure_takes_back_what_was_done_last_step_first(t *testing.T) {
	t.Parallel()
	boom := handlers.Permanent(errNot)
	for name, c := range map[string]struct {
		third Step[order]
		drive func(b *bench)
		undo  string // of the third step, if it is called
	}{
		"fail":            {third: Step[order]{Do: fails(Fail("no good"))}},
		"permanent error": {third: Step[order]{Do: fails(boom)}},
		"report":          {third: Step[order]{Do: asks("c")}, drive: func(b *bench) { b.must(report(b.take("c"), false)) }},
		"time-out":        {third: Step[order]{Do: asks("c"), Timeout: time.Hour}, drive: func(b *bench) { b.must(b.take("timeout")) }, undo: "three undone"},
		"bad answer": {
			third: Step[order]{Do: asks("c"), OnReport: func(*Context, order, schema.Outcome) (Result[order], error) { return Result[order]{}, boom }},
			drive: func(b *bench) { b.must(report(b.take("c"), true)) }, undo: "three undone",
		},
		"no state": {third: Step[order]{Do: func(*Context, order) (Result[order], error) { return Result[order]{}, nil }}},
		"bad intent": {third: Step[order]{Do: func(_ *Context, o order) (Result[order], error) {
			return Next(o, "", Intent{Target: "NO", Action: "x"}), nil
		}}},
		"unaskable job": {third: Step[order]{Do: func(_ *Context, o order) (Result[order], error) {
			return Next(o, "", Intent{Target: "work", Action: "x", Args: func() {}}), nil
		}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			third := c.third
			third.Name, third.Undo = "three", tells("undo-c")
			b := newBench(
				t,
				Step[order]{Name: "one", Do: tells("a"), Undo: tells("undo-a")},
				Step[order]{Name: "plain", Do: tells("n")},
				Step[order]{Name: "two", Do: tells("b"), Undo: asks("undo-b")},
				third,
			)
			b.start()
			if c.drive != nil {
				c.drive(b)
			}
			last := b.kinds()
			if !slices.Contains(last, "three failed") || last[len(last)-1] != "two undoing" || slices.Contains(last, c.undo) != (c.undo != "") {
				t.Fatalf("the ledger says %q", last)
			}
			b.must(report(b.take("undo-b"), true))
			if got := b.kinds()[len(last):]; !slices.Equal(got, []string{"two undone", "one undone"}) || b.sagas["o-1"].Status != schema.SagaCompensated {
				t.Errorf("then the ledger says %q, and the saga is %s", got, b.sagas["o-1"].Status)
			}
		})
	}
}

func TestIDOf_names_the_saga_of_each_message_to_it(t *testing.T) {
	t.Parallel()
	d := New("trip", Step[order]{Name: "one", Do: tells("a")}, OnSignal("go", func(_ *Context, o order, _ string) (Result[order], error) {
		return Next(o, ""), nil
	}))
	outcome := schema.NewJob("trip", actionReport, schema.Outcome{ID: "01980a5e", Ref: callRef("a/b", 3, 0)})
	for payload, want := range map[string]string{
		string(d.Start("a/b", order{}).Payload):          "a/b",
		string(d.Signal("a/b", "go", "now").Payload):     "a/b",
		string(outcome.Payload):                          "a/b", // not the job's
		`{"id": "01980a5e", "ref": "of another system"}`: "",
		`not JSON`: "",
	} {
		if got := IDOf([]byte(payload)); got != want {
			t.Errorf("%s is for %q, want %q", payload, got, want)
		}
	}
}
