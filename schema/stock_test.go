package schema

import (
	"errors"
	"strings"
	"testing"
)

func TestStockRules_topics(t *testing.T) {
	t.Parallel()
	exact := map[string]string{"orders.created": "events.public.order.created", "Mail": "jobs.mail.send"}
	all := map[string]string{"Mail": "jobs.mail.send", "*": "events.public.shop.*"}
	for _, c := range []struct {
		topics      map[string]string
		destination string
		subject     string // empty: refused
	}{
		{nil, "jobs.mail.send", "jobs.mail.send"},
		{nil, "events.order.created", "events.internal.order.created"},
		{nil, "orders.created", ""},
		{nil, "*", ""},
		{exact, "orders.created", "events.public.order.created"},
		{exact, "Mail", "jobs.mail.send"},
		{exact, "mail", ""},
		{exact, "jobs.mail.send", "jobs.mail.send"},
		{all, "Mail", "jobs.mail.send"},
		{all, "orders.created", "events.public.shop.orders.created"},
		{all, "jobs.mail.send", "events.public.shop.jobs.mail.send"},
		{all, "Orders", ""},
		{all, "*", ""},
	} {
		e, err := StockRules{Topics: c.topics}.Envelope(StockRow{Payload: []byte(`{"destination_topic":"` + c.destination + `","uuid":"a"}`)})
		if err == nil {
			err = e.Validate(0)
		}
		switch {
		case c.subject == "" && err == nil:
			t.Errorf("%q with %v becomes %s, want it refused", c.destination, c.topics, e.Subject())
		case c.subject != "" && err != nil:
			t.Errorf("%q with %v: %v", c.destination, c.topics, err)
		case c.subject != "" && e.Subject() != c.subject && !strings.HasPrefix(e.Subject(), c.subject):
			t.Errorf("%q with %v becomes %s, want %s", c.destination, c.topics, e.Subject(), c.subject)
		}
	}
}

func TestStockRules_ids(t *testing.T) {
	t.Parallel()
	const uuid = "0197c2f0-5a4e-7c1b-9f6e-2b8d3c4a5e6f"
	for envelope, want := range map[string]string{
		uuid: uuid, strings.ToUpper(uuid): strings.ToUpper(uuid), "abc_1": "abc_1",
		"a b": RowID("a b").String(), strings.Repeat("a", 65): RowID(strings.Repeat("a", 65)).String(), "": "row",
	} {
		e, err := StockRules{}.Envelope(StockRow{UUID: "row", Payload: []byte(`{"destination_topic":"jobs.a.b","uuid":"` + envelope + `"}`)})
		if err != nil || e.ID != want || e.Key != "" {
			t.Errorf("id %q becomes %q (key %q), %v; want %q", envelope, e.ID, e.Key, err, want)
		}
	}
	body := []byte(`{"destination_topic":"jobs.a.b"}`)
	a, errA := StockRules{}.Envelope(StockRow{Tx: 7, Offset: 8, Payload: body})
	b, errB := StockRules{}.Envelope(StockRow{Tx: 7, Offset: 9, Payload: body})
	if errA != nil || errB != nil || a.ID == "" || a.ID == b.ID {
		t.Errorf("two rows without any id become %q and %q (%v, %v)", a.ID, b.ID, errA, errB)
	}
}

func TestStockRules_undecodable(t *testing.T) {
	t.Parallel()
	for _, body := range []string{"", "null", "{}", "7", `{"destination_topic":""}`, `{"destination_topic":"jobs.a.b"`, `{"destination_topic":"jobs.a.b","payload":"?"}`, "\xff"} {
		if _, err := (StockRules{}).Envelope(StockRow{Payload: []byte(body)}); !errors.Is(err, ErrUndecodable) || KindOf(err) != Permanent {
			t.Errorf("%q: error %v, want undecodable", body, err)
		}
	}
}

func TestStockRules_Validate(t *testing.T) {
	t.Parallel()
	good := StockRules{Topics: map[string]string{"Any Name": "jobs.mail.send", "*": "events.internal.*"}}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	for from, to := range map[string]string{"": "jobs.a.b", "a": "jobs.mail", "b": "events.Public.x", "c": "events.public.*", "*": "*"} {
		if err := (StockRules{Topics: map[string]string{from: to}}).Validate(); err == nil || !strings.Contains(err.Error(), "topic") {
			t.Errorf("%q for %q: error %v, want it refused", to, from, err)
		}
	}
}

// FuzzStockRules_Envelope: whatever is in the table gives a message that can be sent, or an error that says that it is for
// good.
func FuzzStockRules_Envelope(f *testing.F) {
	f.Add([]byte(`{"destination_topic":"jobs.mail.send","uuid":"a","payload":"AAEC","metadata":{"key":"k","traceparent":"00"}}`), "row", "key")
	f.Add([]byte(`{"destination_topic":"events.public.x","metadata":null}`), "", "")
	f.Add([]byte(`[`), "", "")
	f.Fuzz(func(t *testing.T, body []byte, id, key string) {
		e, err := StockRules{OrderingKey: key}.Envelope(StockRow{UUID: id, Payload: body, Tx: 1, Offset: 2})
		if err == nil {
			_, err = CheckedRow(e, 0)
		}
		if err != nil && KindOf(err) != Permanent {
			t.Errorf("%q: %v is %v", body, err, KindOf(err))
		}
		if err == nil && !isID(e.ID) {
			t.Errorf("%q: id %q", body, e.ID)
		}
	})
}
