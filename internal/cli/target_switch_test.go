package cli_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/router"
	"github.com/millbridge/millbridge/schema"
)

// A target is disabled and enabled while no bridge runs; each order says whether it has changed anything, and each change
// is an event.
func TestTarget_disable_and_enable(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		order := func(want string, args ...string) result {
			t.Helper()
			r := w.must(t, append([]string{"target"}, args...)...)
			if !strings.Contains(r.stdout, want) || strings.Count(r.stdout, "\n") != 1 {
				t.Errorf("%v: %s", args, r)
			}
			return r
		}
		order("crm is not disabled\n", "enable", "crm")
		if r := order("crm is disabled, its messages wait\n", "disable", "crm", "--reason", "moves\nto another host"); !strings.Contains(r.stderr, "no bridge has served a target or subscription crm yet") {
			t.Errorf("a name that nobody knows: %s", r)
		}
		order("crm is disabled already, since ", "disable", "crm")
		w.forward(t) // the event
		if list := w.reasons(t); !has(list, "crm is disabled since", "millbridge target enable crm", "moves to another host") || len(list) != 1 {
			t.Errorf("reasons: %q", list)
		}
		contains(t, w.run(t, "status").stdout, "Circuits\n", "crm", "disabled", "moves to another host")
		circuit := w.run(t, "status", "--json").objects(t)[0]["circuits"].([]any)[0].(map[string]any)
		if circuit["disabled"] != true || circuit["open"] != true {
			t.Errorf("the circuit is %v", circuit)
		}
		order("crm is enabled; it was disabled since ", "enable", "crm")
		w.forward(t)
		if list := w.reasons(t); len(list) != 0 {
			t.Errorf("reasons: %q", list)
		}
		got := w.must(t, "target", "disable", "erp", "--json").objects(t)[0]
		since, err := time.Parse(time.RFC3339Nano, fmt.Sprint(got["since"]))
		if got["handler"] != "erp" || got["disabled"] != true || got["changed"] != true || got["unknown"] != true ||
			got["reason"] != "by an operator" || got["failures"] != 0.0 || err != nil || time.Since(since).Abs() > time.Hour {
			t.Errorf("disable --json: %v", got)
		}
		got = w.must(t, "target", "enable", "erp", "--json").objects(t)[0]
		if got["handler"] != "erp" || got["disabled"] != false || got["changed"] != true || got["since"] != since.Format(time.RFC3339Nano) {
			t.Errorf("enable --json: %v", got)
		}
		got = w.must(t, "target", "enable", "erp", "--json").objects(t)[0]
		if _, ever := got["since"]; got["handler"] != "erp" || got["changed"] != false || ever {
			t.Errorf("enable --json once more: %v", got)
		}
		w.forward(t)
		for event, want := range map[string]uint64{schema.HandlerDisabled.Name: 2, schema.HandlerEnabled.Name: 2} {
			if n := eventsNamed(t, w, event); n != want {
				t.Errorf("%d events %s, want %d", n, event, want)
			}
		}
		for _, bad := range [][]string{{"disable"}, {"disable", "a", "b"}, {"enable", "No Name"}, {"disable", "a.b"}, {}} {
			if r := w.run(t, append([]string{"target"}, bad...)...); r.code != 2 {
				t.Errorf("%v: %s", bad, r)
			}
		}
	})
}

func eventsNamed(t *testing.T, w *world, name string) uint64 {
	t.Helper()
	stream, err := w.js.Stream(t.Context(), w.subjects.StreamName(schema.Events))
	if err != nil {
		t.Fatal(err)
	}
	info, err := stream.Info(t.Context(), natsjs.WithSubjectFilter(w.subjects.Event(name)))
	if err != nil {
		t.Fatal(err)
	}
	var n uint64
	for _, count := range info.State.Subjects {
		n += count
	}
	return n
}

// What runs hears of it within about a second, whoever has been told.
func TestTarget_takes_effect_while_a_bridge_runs(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		b, err := router.Open(t.Context(), router.Config{Store: w.store, Conn: w.js.Conn(), Logger: testkit.Logger(t)})
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{}, 10)
		err = b.Target(handlers.Target{Name: "crm", Handler: handlers.HandlerFunc(func(context.Context, schema.Envelope) error {
			done <- struct{}{}
			return nil
		})})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- b.Run(ctx) }()
		t.Cleanup(func() {
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
		w.must(t, "publish", "job", "crm", "x")
		<-done
		if r := w.must(t, "target", "disable", "crm"); r.stderr != "" {
			t.Errorf("a name that is known: %s", r)
		}
		testkit.Eventually(t, testTimeout, func() error {
			if h := b.Health(t.Context()).Handlers[0]; !h.Circuit.Disabled {
				return fmt.Errorf("%+v", h)
			}
			return nil
		})
		w.must(t, "publish", "job", "crm", "x")
		testkit.Eventually(t, testTimeout, func() error {
			if h := b.Health(t.Context()).Handlers[0]; h.Running != 1 {
				return fmt.Errorf("%+v", h)
			}
			return nil
		})
		if len(done) != 0 {
			t.Error("it was handled")
		}
		w.must(t, "target", "enable", "crm")
		<-done
	})
}
