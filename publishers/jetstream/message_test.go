package jetstream

import (
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/millbridge/millbridge/schema"
)

// What an encoder and a batch put into the header of one message is not in that of another one, however alike they are.
func TestEncoder_sends_each_row_with_a_header_of_its_own(t *testing.T) {
	t.Parallel()
	b := openBroker(t)
	w := openWriter(t, b.nc, 10*time.Second)
	seen, err := b.nc.SubscribeSync("mb.events.>")
	if err == nil {
		err = b.nc.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	enc := newEncoder(schema.Subjects{}, schema.Events, "outbox", time.Hour)
	var want []nats.Header
	send := func(batch *batch, n int, opts ...schema.Option) {
		t.Helper()
		e := schema.NewEvent("paid", nil, opts...)
		m, err := enc.message(schema.NewRow(e))
		if err == nil {
			err = batch.add(m)
		}
		if err != nil {
			t.Fatal(err)
		}
		h, err := schema.ParseHeader(schema.EncodeHeader(e))
		if err != nil {
			t.Fatal(err)
		}
		maps.Copy(h, nats.Header{
			schema.HeaderSource: {"/millbridge/outbox"}, headerTTL: {"1h0m0s"}, headerBatchID: {batch.id}, headerBatchSequence: {fmt.Sprint(n)},
		})
		if n == 1 {
			h[headerExpectStream] = []string{"MB_EVENTS"}
		}
		want = append(want, h)
	}
	tenant := schema.WithTenant("t")
	for range 2 { // batches
		batch, err := w.begin(t.Context(), "MB_EVENTS", "mb.cursor.events.test.1.0", rand.Text())
		if err != nil {
			t.Fatal(err)
		}
		for i, opts := range [][]schema.Option{nil, nil, {tenant}, {tenant}, nil, {schema.WithMetadata(map[string]string{"a": "b"})}, nil} {
			send(batch, i+1, opts...)
		}
		batch.abandon()
	}
	for i, h := range want {
		m, err := seen.NextMsg(10 * time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if !maps.EqualFunc(m.Header, h, slices.Equal[[]string]) {
			t.Errorf("message %d has\n%v\nwant\n%v", i, m.Header, h)
		}
	}
}

// A name that is not allowed is not allowed in the next row either.
func TestEncoder_refuses_each_row_that_has_a_bad_name(t *testing.T) {
	t.Parallel()
	enc := newEncoder(schema.Subjects{}, schema.Jobs, "outbox", 0)
	good := schema.EncodeHeader(schema.NewJob("shop", "x", nil))
	bad := append([]byte("nats-rollup: all\r\n"), good...)
	for i, header := range [][]byte{bad, bad, good, good, bad, good} {
		var fault *rowError
		_, err := enc.message(schema.Row{Subject: "jobs.shop.x", Header: header})
		if want := &header[0] == &bad[0]; errors.As(err, &fault) != want || (err != nil) != want {
			t.Errorf("row %d: %v, want an error %v", i, err, want)
		}
	}
}
