package jetstream

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/schema"
)

// BenchmarkDrain measures the drain of 100,000 waiting jobs with 256 bytes of payload and six metadata entries. Run it
// with -benchtime 3x.
func BenchmarkDrain(b *testing.B) {
	const rows = 100_000
	for name, open := range map[string]func(testing.TB) *database{"postgres": openPostgres, "sqlite": openSQLite} {
		b.Run(name, func(b *testing.B) {
			db, br := open(b), openBroker(b)
			f := newForwarder(b, db, br.nc, ForwarderConfig{Logger: testkit.Logger(b)})
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
		})
	}
}
