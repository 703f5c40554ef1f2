package handlers_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/schema"
)

var (
	chargeJob = schema.JobType[chargeArgs]{Target: "billing", Action: "charge", Retry: schema.CappedBackoff(time.Second, 2, time.Minute, 3), Timeout: time.Minute, Needs: schema.OnSQLite}
	refundJob = schema.JobType[struct{}]{Target: "billing", Action: "refund"}
	placed    = schema.EventType[chargeArgs]{Name: "order.placed"}
)

func TestOnJob_hands_over_args_and_keeps_the_spec(t *testing.T) {
	t.Parallel()
	var a handlers.Actions
	var got chargeArgs
	handlers.OnJob(&a, refundJob, func(context.Context, struct{}, string) error { return nil })
	handlers.OnJob(&a, chargeJob, func(_ context.Context, args chargeArgs, key string) error {
		got = args
		return handlers.Cancel(errors.New(key))
	})
	handlers.On(&a, "plain", func(context.Context, struct{}, string) error { return nil })
	err := a.Handle(t.Context(), chargeJob.New(chargeArgs{Amount: 7}, schema.WithKey("k")))
	if got.Amount != 7 || !schema.IsCancel(err) || err.Error() != "k" {
		t.Errorf("got %+v, error %v", got, err)
	}
	if spec, ok := a.Spec("charge"); !ok || spec != chargeJob.Spec() {
		t.Errorf("spec is %+v, %v", spec, ok)
	}
	for _, name := range []string{"plain", "nothing"} {
		if _, ok := a.Spec(name); ok {
			t.Errorf("action %s has a spec", name)
		}
	}
	if specs := a.Specs(); !slices.Equal(specs, []schema.JobSpec{chargeJob.Spec(), refundJob.Spec()}) {
		t.Errorf("specs are %+v", specs)
	}
	if err := (handlers.Target{Name: "billing", Handler: &a}).Validate(); err != nil {
		t.Error(err)
	}
}

func TestOnEvent_goes_by_name(t *testing.T) {
	t.Parallel()
	var a handlers.Actions
	calls := 0
	handlers.OnEvent(&a, placed, func(_ context.Context, args chargeArgs, _ string) error {
		calls += args.Amount
		return nil
	})
	if err := a.Handle(t.Context(), placed.New(chargeArgs{Amount: 3})); err != nil || calls != 3 {
		t.Errorf("calls %d, error %v", calls, err)
	}
	for _, events := range [][]string{{"order.placed"}, {"order.*", "invoice.paid"}, {">"}} {
		if err := (handlers.Subscription{Name: "stats", Events: events, Handler: &a}).Validate(); err != nil {
			t.Errorf("events %q: %v", events, err)
		}
	}
	err := handlers.Subscription{Name: "stats", Events: []string{"invoice.paid"}, Handler: &a}.Validate()
	if err == nil || !strings.Contains(err.Error(), `event "order.placed": has a function, but the subscription does not receive it`) {
		t.Errorf("an event that never comes: %v", err)
	}
}

func TestTarget_refuses_job_types_of_another(t *testing.T) {
	t.Parallel()
	var a handlers.Actions
	handlers.OnJob(&a, chargeJob, func(context.Context, chargeArgs, string) error { return nil })
	handlers.OnJob(&a, schema.JobType[struct{}]{Target: "mail", Action: "send"}, func(context.Context, struct{}, string) error { return nil })
	handlers.OnJob(&a, chargeJob, func(context.Context, chargeArgs, string) error { return nil })
	handlers.OnJob(&a, schema.JobType[struct{}]{Target: "billing", Action: "Bad", Timeout: -1}, func(context.Context, struct{}, string) error { return nil })
	handlers.OnJob[struct{}](&a, refundJob, nil)
	handlers.OnEvent(&a, placed, func(context.Context, chargeArgs, string) error { return nil })
	err := handlers.Target{Name: "billing", Handler: &a}.Validate()
	for _, want := range []string{
		`target "billing": action "send": its job type is for target "mail"`, `action "charge": is there twice`, "job type billing.Bad: ", "timeout is -1ns",
		`action "refund": has no function`, `event "order.placed": a target has jobs`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v lacks %q", err, want)
		}
	}
	err = handlers.Subscription{Name: "stats", Events: []string{">"}, Handler: &a}.Validate()
	if err == nil || !strings.Contains(err.Error(), "job type billing.charge: a subscription has events") {
		t.Errorf("as a subscription: %v", err)
	}
}

func TestArgsError_names_the_place(t *testing.T) {
	t.Parallel()
	type line struct {
		Price int            `json:"price"`
		Notes map[string]int `json:"notes"`
		Parts [][]int        `json:"parts"`
		At    time.Time      `json:"at"`
		Big   int64          `json:"big,string"`
	}
	type args struct {
		Lines []line           `json:"lines"`
		By    map[string]*line `json:"by"`
		Flag  bool             `json:"flag"`
	}
	var a handlers.Actions
	handlers.On(&a, "charge", func(context.Context, args, string) error { return nil })
	for payload, path := range map[string]string{
		`{"lines":[{"price":1},{"price":2},{"price":"x"}]}`:    "lines[2].price",
		` { "lines" : [ {"price":1} , { "price" : "x" } ] } `:  "lines[1].price",
		`{"lines":[{"notes":{"a":1,"b":{}}}]}`:                 "lines[0].notes.b",
		`{"lines":[{"parts":[[1],[2,3,"4"]]}]}`:                "lines[0].parts[1][2]",
		`{"lines":[{"parts":[[1],[2,[3]]]}]}`:                  "lines[0].parts[1][1]",
		`{"lines":[{"parts":[[1],null,{}]}]}`:                  "lines[0].parts[2]",
		`{"lines":{"price":1}}`:                                "lines",
		`{"lines":[7]}`:                                        "lines[0]",
		`{"by":{"x y":{"price":[]}}}`:                          "by.x y.price",
		`{"flag":[true],"lines":[]}`:                           "flag",
		`{"lines":[{"price":123456789012345678901234567890}]}`: "lines[0].price",
		`{"lines":[{"price":1e400}]}`:                          "lines[0].price",
		`{"lines":[{"pricee":1}]}`:                             "lines[0].pricee",
		`{"lines":[{"pricee":1},{"pricee":2}]}`:                "pricee", // there are several
		`{"lines":[{"price":1,"at":"secret"}]}`:                "",
		`{"lines":[{"big":"secret"}]}`:                         "",
		`[]`:                                                   "",
		`"secret"`:                                             "",
		`{"flag":"` + strings.Repeat("x", 5000) + `","lines":[{"price":"later"}]}`: "flag",
	} {
		err := a.Handle(t.Context(), job("charge", payload))
		var bad *handlers.ArgsError
		if !errors.As(err, &bad) || schema.KindOf(err) != schema.Permanent || bad.Path != path {
			t.Errorf("%.80s: error %v, want path %q", payload, err, path)
		}
		if err != nil && (strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "12345") || len(err.Error()) > 300) {
			t.Errorf("error %q quotes the payload", err)
		}
	}
}

// FuzzArgs looks for a payload that is neither taken nor refused.
func FuzzArgs(f *testing.F) {
	for _, s := range []string{"", "{}", "null", `{"lines":[{"price":1},{"price":"x"}]}`, `{"address":{"zip":[[{"a":1}]]}}`, `[1`, `{"a":{"a":1}}`, `{"amount":1}]`, "\x00", `{"lines":[1e999]}`} {
		f.Add([]byte(s))
	}
	var a handlers.Actions
	handlers.On(&a, "charge", func(context.Context, chargeArgs, string) error { return nil })
	f.Fuzz(func(t *testing.T, payload []byte) {
		err := a.Handle(t.Context(), schema.NewJob("billing", "charge", payload))
		var bad *handlers.ArgsError
		if err != nil && (!errors.As(err, &bad) || schema.KindOf(err) != schema.Permanent || bad.Reason == "") {
			t.Fatalf("%q: %v", payload, err)
		}
	})
}
