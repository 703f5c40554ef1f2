package jetstream

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/schema"
)

// BenchmarkDrain measures the drain of 100,000 waiting jobs with 256 bytes of payload and six metadata entries. Run it
// with -benchtime 3x.
func BenchmarkDrain(b *testing.B) {
	single := func(b *testing.B) (*nats.Conn, int) { return testkit.NATS(b).Conn(b), 1 }
	cluster := func(b *testing.B) (*nats.Conn, int) { return testkit.Cluster(b, 3).Conn(b), 3 }
	for name, c := range map[string]struct {
		open   func(testing.TB) *database
		broker func(*testing.B) (*nats.Conn, int)
	}{
		"postgres/R1": {openPostgres, single},
		"postgres/R3": {openPostgres, cluster},
		"sqlite/R1":   {openSQLite, single},
	} {
		b.Run(name, func(b *testing.B) {
			nc, replicas := c.broker(b)
			if err := EnsureStreams(b.Context(), testkit.JetStream(b, nc), StreamsConfig{Replicas: replicas}); err != nil {
				b.Fatal(err)
			}
			benchmarkDrain(b, c.open(b), nc)
		})
	}
}

// BenchmarkEncoder makes messages of rows.
func BenchmarkEncoder(b *testing.B) {
	metadata := make(map[string]string)
	for i := range 6 {
		metadata[fmt.Sprintf("entry-%d", i)] = "value of the entry"
	}
	row := schema.NewRow(schema.NewJob("shop", "order.paid", "payload", schema.WithOrderingKey("one"), schema.WithMetadata(metadata)))
	enc := newEncoder(schema.Subjects{}, schema.Jobs, "outbox", 0)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := enc.message(row); err != nil {
			b.Fatal(err)
		}
	}
}

func benchmarkDrain(b *testing.B, db *database, nc *nats.Conn) {
	const rows = 100_000
	f := newForwarder(b, db, nc, ForwarderConfig{})
	metadata := make(map[string]string)
	for i := range 6 {
		metadata[fmt.Sprintf("entry-%d", i)] = "value of the entry"
	}
	payload := []byte(`{"text":"` + strings.Repeat("x", 245) + `"}`)
	var spent time.Duration
	for b.Loop() {
		b.StopTimer()
		for range rows / 1000 {
			envs := make([]schema.Envelope, 1000)
			for i := range envs {
				envs[i] = schema.NewJob("shop", "order.paid", payload, schema.WithMetadata(metadata))
			}
			if err := db.publish(b.Context(), envs...); err != nil {
				b.Fatal(err)
			}
		}
		b.StartTimer()
		start := time.Now()
		tally, err := f.Drain(b.Context())
		spent += time.Since(start)
		if err != nil || tally.Sent != rows {
			b.Fatalf("drain: %v (%+v)", err, tally)
		}
	}
	b.ReportMetric(float64(rows*b.N)/spent.Seconds(), "msg/s")
}
