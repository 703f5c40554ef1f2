package schema_test

import (
	"bytes"
	"strconv"
	"testing"

	"github.com/millbridge/millbridge/schema"
)

func entriesOfOrder() map[string]string {
	return map[string]string{
		"event_type": "OrderPlaced", "aggregate_id": "ord-1", "correlation_id": "3f0e7c1a-5b52-4f0e-9a55-1f6f7a3e2b10",
		"tenant": "acme", "schema": "v1", "source": "checkout",
	}
}

// typical is a message as a forwarder sends it: 256 bytes of payload and six entries of metadata.
func typical(b *testing.B) (subject string, header map[string][]string, payload []byte) {
	b.Helper()
	e := schema.NewJob("bench", "place", bytes.Repeat([]byte("x"), 256), schema.WithOrderingKey("cust-000001"), schema.WithTenant("acme"),
		schema.WithContentType("application/json"), schema.WithTime(genTimeFixed), schema.WithMetadata(entriesOfOrder()))
	header, err := schema.ParseHeader(schema.EncodeHeader(e))
	if err != nil {
		b.Fatal(err)
	}
	header[schema.HeaderSource] = []string{schema.SourceOf("bench")}
	header["Nats-Expected-Last-Sequence"] = []string{strconv.Itoa(1)}
	return e.Subject(), header, e.Payload
}

func BenchmarkDecode(b *testing.B) {
	subject, header, payload := typical(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := schema.Decode(subject, header, payload); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkWatermillHeader(b *testing.B) {
	_, header, _ := typical(b)
	b.ReportAllocs()
	for b.Loop() {
		schema.WatermillHeader(header)
	}
}

func BenchmarkBodyHash(b *testing.B) {
	subject, header, payload := typical(b)
	e, err := schema.Decode(subject, header, payload)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		e.BodyHash()
	}
}

func BenchmarkNewID(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		schema.NewID()
	}
}

// BenchmarkRow is what publishing does to a message of 256 bytes with six entries before the database sees it.
func BenchmarkRow(b *testing.B) {
	for _, c := range []struct {
		name string
		opts []schema.Option
	}{
		{"plain", nil},
		{"ordered", []schema.Option{schema.WithOrderingKey("customer-1")}},
		{"keyed", []schema.Option{schema.WithKey("order-1")}},
	} {
		opts := append(c.opts, schema.WithMetadata(entriesOfOrder()), schema.WithTime(genTimeFixed))
		b.Run(c.name, func(b *testing.B) {
			e := schema.NewJob("crm", "create", bytes.Repeat([]byte("x"), 256), opts...)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := schema.CheckedRow(e, 0); err != nil {
					b.Fatal(err)
				}
				if e.Key != "" {
					e.KeyHash()
					e.BodyHash()
				}
			}
		})
	}
}
