package schema_test

import (
	"bytes"
	"strconv"
	"testing"

	"github.com/millbridge/millbridge/schema"
)

// typical is a message as a forwarder sends it: 256 bytes of payload and six entries of metadata.
func typical(b *testing.B) (subject string, header map[string][]string, payload []byte) {
	b.Helper()
	e := schema.NewJob("bench", "place", bytes.Repeat([]byte("x"), 256), schema.WithOrderingKey("cust-000001"), schema.WithTenant("acme"),
		schema.WithContentType("application/json"), schema.WithTime(genTimeFixed), schema.WithMetadata(map[string]string{
			"event_type": "OrderPlaced", "aggregate_id": "ord-1", "correlation_id": "3f0e7c1a-5b52-4f0e-9a55-1f6f7a3e2b10",
			"tenant": "acme", "schema": "v1", "source": "checkout",
		}))
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
