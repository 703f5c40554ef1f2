package cli_test

import (
	"strings"
	"testing"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/handlers/saga"
	"github.com/millbridge/millbridge/router"
	"github.com/millbridge/millbridge/schema"
)

func TestSaga_list_and_show(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		type order struct{ Item string }
		orders := saga.New("order", saga.Step[order]{Name: "pay", Do: func(_ *saga.Context, o order) (saga.Result[order], error) {
			if o.Item == "none" {
				return saga.Result[order]{}, saga.Fail("sold out")
			}
			return saga.Next(o, "money first", saga.Ask(schema.JobType[string]{Target: "bank", Action: "charge"}, o.Item)), nil
		}})
		b, err := router.Open(t.Context(), router.Config{Store: w.store, Conn: w.js.Conn()})
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Target(orders.Target(handlers.Policy{})); err != nil {
			t.Fatal(err)
		}
		for _, env := range []schema.Envelope{
			orders.Start("o/1", order{"lamp"}), orders.Start("o-2", order{"none"}),
			schema.NewJob("order", "start", map[string]any{"id": 7}), // not for a saga
		} {
			if _, err := b.Publish(t.Context(), env); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := b.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		again := orders.Start("o/1", order{"lamp"}, schema.WithKey("again")) // dies
		if _, err := b.Publish(t.Context(), again); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			args []string
			want int
		}{
			{nil, 2},
			{[]string{"--status", "waiting"}, 1},
			{[]string{"--saga", "loan"}, 0},
			{[]string{"--idle", "1h"}, 0},
			{[]string{"--after", "order/o-2"}, 1}, // "-" comes before "/"
		} {
			if got := w.must(t, append([]string{"saga", "list", "--json"}, c.args...)...).objects(t); len(got) != c.want {
				t.Errorf("%v: %d sagas, want %d: %v", c.args, len(got), c.want, got)
			}
		}
		shown := w.must(t, "saga", "show", "order/o/1").stdout
		for _, want := range []string{"waits for report of bank.charge", "pay waiting: money first", "asks bank.charge, key pay_", `"Item": "lamp"`, "poison replay " + again.ID} {
			if !strings.Contains(shown, want) {
				t.Errorf("%q is missing in\n%s", want, shown)
			}
		}
		if strings.Count(shown, "given up") != 1 {
			t.Errorf("the dead letter of nobody is shown:\n%s", shown)
		}
		if got := w.must(t, "saga", "show", "order/o-2", "--json").objects(t)[0]; got["status"] != "compensated" || got["reason"] != "sold out" {
			t.Errorf("%v", got)
		}
		if res := w.run(t, "saga", "show", "order/o-3"); res.code != 1 || !strings.Contains(res.stderr, "not found") {
			t.Errorf("one that is not there: %d, %s", res.code, res.stderr)
		}
		for _, args := range [][]string{{"show", "o-1"}, {"list", "--status", "lost"}, {"list", "--limit", "0"}, {"list", "--after", "x"}, {"list", "--idle", "-1s"}} {
			if res := w.run(t, append([]string{"saga"}, args...)...); res.code != 2 {
				t.Errorf("%v: %d, %s", args, res.code, res.stderr)
			}
		}
	})
}
