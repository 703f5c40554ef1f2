package handlers_test

import (
	"context"
	"encoding/json"
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/schema"
)

type chargeArgs struct {
	Amount  int `json:"amount"`
	Address struct {
		Zip string `json:"zip"`
	} `json:"address"`
	Lines []struct {
		Price int `json:"price"`
	} `json:"lines"`
}

func job(action, payload string) schema.Envelope {
	return schema.NewJob("billing", action, []byte(payload), schema.WithKey("order-42"))
}

func TestActions_hand_over_args_and_key(t *testing.T) {
	t.Parallel()
	var a handlers.Actions
	var got chargeArgs
	var key string
	handlers.On(&a, "charge", func(_ context.Context, args chargeArgs, k string) error {
		got, key = args, k
		return nil
	})
	err := a.Handle(t.Context(), job("charge", `{"amount": 5, "address": {"zip": "04109"}}`))
	if err != nil || got.Amount != 5 || got.Address.Zip != "04109" || key != "order-42" {
		t.Fatalf("got %+v, key %q, error %v", got, key, err)
	}
	for _, empty := range []string{"", "  \n", "{}", "null"} {
		got = chargeArgs{Amount: -1}
		if err := a.Handle(t.Context(), job("charge", empty)); err != nil || got.Amount != 0 {
			t.Errorf("payload %q: got %+v, error %v", empty, got, err)
		}
	}
	var raw json.RawMessage
	handlers.On(&a, "raw", func(_ context.Context, args json.RawMessage, _ string) error {
		raw = args
		return nil
	})
	if err := a.Handle(t.Context(), job("raw", "")); err != nil || string(raw) != "{}" {
		t.Errorf("missing args are %q, error %v; want {}", raw, err)
	}
}

func TestActions_refuse_what_does_not_fit(t *testing.T) {
	t.Parallel()
	var a handlers.Actions
	handlers.On(&a, "charge", func(context.Context, chargeArgs, string) error {
		t.Error("handler was called")
		return nil
	})
	for _, c := range []struct{ payload, path, reason string }{
		{`{"amount": "five"}`, "amount", "want int, found string"},
		{`{"amount": 12345.678}`, "amount", "want int, found number"},
		{`{"address": {"zip": 4109}}`, "address.zip", "want string, found number"},
		{`{"lines": [{"price": 1}, {"price": true}]}`, "lines[1].price", "want int, found bool"},
		{`{"amuont": 5}`, "amuont", "is not known"},
		{`[1]`, "", "want object, found array"},
		{`{"amount": 5`, "", "the JSON value is cut off"},
		{`{"amount": 5} x`, "", "there is more after the JSON value"},
		{`{"amount": 5}{}`, "", "there is more after the JSON value"},
		{`amount=secret`, "", "not JSON at byte 1"},
	} {
		err := a.Handle(t.Context(), job("charge", c.payload))
		var bad *handlers.ArgsError
		if !errors.As(err, &bad) || schema.KindOf(err) != schema.Permanent {
			t.Errorf("payload %s: error %v (%v), want a permanent ArgsError", c.payload, err, schema.KindOf(err))
			continue
		}
		if bad.Target != "billing" || bad.Action != "charge" || bad.Path != c.path || !strings.HasPrefix(bad.Reason, c.reason) {
			t.Errorf("payload %s: got %+v, want path %q and reason %q", c.payload, *bad, c.path, c.reason)
		}
		for _, value := range []string{"12345", "678", "secret"} {
			if strings.Contains(err.Error(), value) {
				t.Errorf("error %q quotes the payload", err)
			}
		}
	}
}

// Not parallel: it counts what is allocated meanwhile.
func TestActions_a_deep_payload_costs_no_more_than_its_size(t *testing.T) {
	const depth = 9990 // encoding/json refuses more than 10,000
	nested := func(key, inside string) string {
		return strings.Repeat(`{"`+key+`":`, depth) + inside + strings.Repeat("}", depth)
	}
	type args struct {
		Any   any `json:"any"`
		Next  *args
		Count int
	}
	var a handlers.Actions
	handlers.On(&a, "charge", func(context.Context, args, string) error { return nil })
	long := strings.Repeat("k", 85)
	for name, c := range map[string]struct{ payload, path string }{
		"behind it an unknown field": {`{"any": ` + nested(long, "1") + `, "other": 1}`, "other"},
		"behind it a wrong type":     {`{"any": ` + nested(long, "1") + `, "Count": "1"}`, "Count"},
		"inside an unknown field":    {nested("Next", `{"other": 1}`), strings.Repeat("Next.", 60) + "..."},
		"inside a wrong type":        {nested("Next", `{"Count": "1"}`), strings.Repeat("Next.", 60) + "..."},
		"nothing but unknown fields": {nested(long, "1"), long},
		"a name as long as it":       {`{"` + strings.Repeat("é", 400_000) + `": 1}`, strings.Repeat("é", 150) + "..."},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := a.Handle(t.Context(), job("charge", c.payload))
		runtime.ReadMemStats(&after)
		var bad *handlers.ArgsError
		if !errors.As(err, &bad) || bad.Path != c.path {
			t.Errorf("%s: error %v, want path %q", name, err, c.path)
		}
		if mib := (after.TotalAlloc - before.TotalAlloc) >> 20; mib > 64 {
			t.Errorf("%s: a payload of %d KiB cost %d MiB", name, len(c.payload)>>10, mib)
		}
	}
}

func TestActions_unknown_action_is_permanent_and_names_both(t *testing.T) {
	t.Parallel()
	var a handlers.Actions
	handlers.On(&a, "charge", func(context.Context, chargeArgs, string) error { return nil })
	err := a.Handle(t.Context(), job("refund", "{}"))
	if schema.KindOf(err) != schema.Permanent || !strings.Contains(err.Error(), `target "billing" has no action "refund"; it has charge`) {
		t.Errorf("job: error %v (%v)", err, schema.KindOf(err))
	}
	err = a.Handle(t.Context(), schema.NewEvent("order.placed", nil))
	if schema.KindOf(err) != schema.Permanent || !strings.Contains(err.Error(), `no function for event "order.placed"`) {
		t.Errorf("event: error %v (%v)", err, schema.KindOf(err))
	}
	var none handlers.Actions
	if err := none.Handle(t.Context(), job("x", "")); err == nil || !strings.Contains(err.Error(), "it has none") {
		t.Errorf("no actions: error %v", err)
	}
}

func TestActions_report_all_faults_of_registration(t *testing.T) {
	t.Parallel()
	var a handlers.Actions
	ok := func(context.Context, struct{}, string) error { return nil }
	handlers.On(&a, "charge", ok)
	handlers.On(&a, "charge", ok)
	handlers.On(&a, "Bad Name", ok)
	handlers.On[struct{}](&a, "empty", nil)
	err := handlers.Target{Name: "billing", Handler: &a}.Validate()
	for _, want := range []string{`action "charge": is there twice`, `action "Bad Name"`, `action "empty": has no function`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v lacks %q", err, want)
		}
	}
	if names := a.Names(); len(names) != 1 || names[0] != "charge" {
		t.Errorf("names are %q", names)
	}
}
