package subscribers_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wmnats "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"

	"github.com/millbridge/millbridge/schema"
	"github.com/millbridge/millbridge/subscribers"
)

// Everything that a foreign publisher can send is handed out, with what arrived, and stays until somebody acks it.
func TestC10_ForeignMessages(t *testing.T) {
	many := make(nats.Header)
	for i := range 200 {
		many["k"+strconv.Itoa(i)] = []string{strconv.Itoa(i)}
	}
	for name, test := range map[string]struct {
		header nats.Header
		data   string
		id     string
		meta   map[string]string
	}{
		"a key twice":               {nats.Header{"X": {"1", "2"}, "_watermill_message_uuid": {"id"}}, "body", "id", map[string]string{"X": "1"}},
		"no id":                     {nats.Header{"X": {"1"}}, "body", "", map[string]string{"X": "1"}},
		"no header":                 {nil, "body", "", map[string]string{}},
		"nothing at all":            {nil, "", "", map[string]string{}},
		"200 headers":               {many, "body", "", firsts(many)},
		"invalid UTF-8":             {nats.Header{"X": {"\xff\xfe"}}, "\xff", "", map[string]string{"X": "\xff\xfe"}},
		"id in another case":        {nats.Header{"_Watermill_Message_Uuid": {"id"}}, "", "id", map[string]string{}},
		"looks like a server's end": {nats.Header{"Status": {"409"}, "Description": {"Consumer Deleted"}}, "", "", map[string]string{}},
		"looks like a heartbeat":    {nats.Header{"Status": {"100"}}, "", "", map[string]string{}},
		"broker headers":            {nats.Header{"Nats-Msg-Id": {"m"}, "X": {"1"}}, "", "", map[string]string{"X": "1"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			b.publishMsg(t, &nats.Msg{Subject: topic, Header: test.header, Data: []byte(test.data)})
			sub := b.subscriber(t)
			msgs := subscribe(t, sub)
			m := next(t, msgs)
			d := delivery(t, m)
			if m.UUID != test.id || string(m.Payload) != test.data || !maps.Equal(m.Metadata, test.meta) {
				t.Errorf("message %q %q %q, want %q %q %q", m.UUID, m.Payload, m.Metadata, test.id, test.data, test.meta)
			}
			if string(d.Payload) != test.data || !maps.EqualFunc(d.Header, test.header, slices.Equal) {
				t.Errorf("delivery has %q %q, want %q %q", d.Header, d.Payload, test.header, test.data)
			}
			b.left(t, 1)
			m.Nack()
			if d := delivery(t, next(t, msgs)); d.Delivered != 2 {
				t.Errorf("delivery %d, want 2", d.Delivered)
			}
			if err := sub.Close(); err != nil {
				t.Error(err)
			}
			b.left(t, 1) // nobody acked it
		})
	}
}

func firsts(h nats.Header) map[string]string {
	m := make(map[string]string, len(h))
	for k, vs := range h {
		m[k] = vs[0]
	}
	return m
}

// What Watermill's own NATS publisher sends arrives the same.
func TestWireFromStockPublisher(t *testing.T) {
	b := setup(t)
	pub, err := wmnats.NewPublisher(wmnats.PublisherConfig{
		URL: b.server.URL(), Marshaler: &wmnats.NATSMarshaler{}, JetStream: wmnats.JetStreamConfig{TrackMsgId: true},
	}, watermill.NopLogger{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pub.Close() })
	sent := message.NewMessage(watermill.NewULID(), []byte("\x00\xff{}"))
	sent.Metadata = message.Metadata{"name": "order.placed", "Case-Kept": "Ümläut ", "empty": "", "correlation_id": "c"}
	if err := pub.Publish(topic, sent); err != nil {
		t.Fatal(err)
	}
	got := next(t, subscribe(t, b.subscriber(t)))
	sent.Metadata["Case-Kept"] = "Ümläut" // the client trims values
	if !got.Equals(sent) {
		t.Errorf("got %q %q %q, want %q %q %q", got.UUID, got.Payload, got.Metadata, sent.UUID, sent.Payload, sent.Metadata)
	}
}

// What we send arrives the same at Watermill's own NATS subscriber: id, payload and metadata; our own headers come as
// further metadata.
func TestWireToStockSubscriber(t *testing.T) {
	b := setup(t)
	const subject = "orders.jobs.mail.send"
	stock, err := wmnats.NewSubscriber(wmnats.SubscriberConfig{
		URL: b.server.URL(), Unmarshaler: &wmnats.NATSMarshaler{}, AckWaitTimeout: 30 * time.Second,
		JetStream: wmnats.JetStreamConfig{
			SubscribeOptions: []nats.SubOpt{nats.ManualAck(), nats.DeliverAll(), nats.AckExplicit(), nats.BindStream("ORDERS")},
			DurablePrefix:    "stock",
		},
	}, watermill.NopLogger{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stock.Close() })
	msgs, err := stock.Subscribe(t.Context(), subject)
	if err != nil {
		t.Fatal(err)
	}
	sent := schema.NewJob("mail", "send", []byte("\x00\xff{}"), schema.WithKey("k 1"), schema.WithTenant("t"), schema.WithActor("ä"),
		schema.WithMetadata(map[string]string{"name": "welcome", "Case-Kept": "Ümläut", "empty": ""}))
	header, err := schema.ParseHeader(schema.EncodeHeader(sent))
	if err != nil {
		t.Fatal(err)
	}
	b.publishMsg(t, &nats.Msg{Subject: subject, Header: header, Data: sent.Payload})
	got := next(t, msgs)
	got.Ack()
	if got.UUID != sent.ID || string(got.Payload) != string(sent.Payload) {
		t.Errorf("got %q %q, want %q %q", got.UUID, got.Payload, sent.ID, sent.Payload)
	}
	for k, v := range sent.Metadata {
		if have, ok := got.Metadata[k]; !ok || have != v {
			t.Errorf("metadata %q is %q (%v), want %q", k, have, ok, v)
		}
	}
	for k := range got.Metadata {
		if _, ours := sent.Metadata[k]; !ours && !strings.HasPrefix(k, "ce-") && !strings.HasPrefix(k, "mb-") {
			t.Errorf("metadata %q comes from nowhere", k)
		}
	}
	b.left(t, 0)
}

// Values that a header cannot carry are encoded on our wire and arrive at our subscriber byte for byte.
func TestC19_EncodedMetadataArrivesWhole(t *testing.T) {
	b := setup(t)
	sent := schema.NewEvent("placed", nil, schema.WithMetadata(map[string]string{
		"lines": "l1\nl2", "blanks": "  x  ", "empty": "", "nul": "a\x00b", "emoji": "🙂", "percent": "100%25", "long": strings.Repeat("x", 20000), "bad": "\xff",
	}))
	header, err := schema.ParseHeader(schema.EncodeHeader(sent))
	if err != nil {
		t.Fatal(err)
	}
	b.publishMsg(t, &nats.Msg{Subject: topic, Header: header, Data: sent.Payload})
	got := next(t, subscribe(t, b.subscriber(t)))
	for k, v := range sent.Metadata {
		if got.Metadata[k] != v {
			t.Errorf("metadata %q is %q, want %q", k, fmt.Sprintf("%.40s", got.Metadata[k]), fmt.Sprintf("%.40s", v))
		}
	}
}

// A bare message has its id, and no copy of its headers.
func TestBareMessage(t *testing.T) {
	b := setup(t)
	header := nats.Header{schema.HeaderID: {"id"}, "X": {"1"}}
	b.publishMsg(t, &nats.Msg{Subject: topic, Header: header, Data: []byte("body")})
	b.publishMsg(t, &nats.Msg{Subject: topic, Data: []byte("body")})
	sub, err := subscribers.New(b.js, config(t, func(c *subscribers.Config) { c.Bare = true }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sub.Close() })
	msgs := subscribe(t, sub)
	for _, want := range []string{"id", ""} {
		m := next(t, msgs)
		if m.UUID != want || string(m.Payload) != "body" || len(m.Metadata) != 0 {
			t.Errorf("message %q %q %q, want %q without metadata", m.UUID, m.Payload, m.Metadata, want)
		}
		if d := delivery(t, m); want != "" && !maps.EqualFunc(d.Header, header, slices.Equal) {
			t.Errorf("delivery has %q, want %q", d.Header, header)
		}
		m.Ack()
	}
}
