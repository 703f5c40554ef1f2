package postgres_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/millbridge/millbridge/schema"
)

// BenchmarkAppend is whole transactions that publish messages of 256 bytes with six entries.
func BenchmarkAppend(b *testing.B) {
	s, pool := setup(b)
	payload := bytes.Repeat([]byte("x"), 256)
	job := func(opts ...schema.Option) schema.Envelope {
		return schema.NewJob("crm", "create", payload, append(opts, schema.WithMetadata(map[string]string{
			"event_type": "OrderPlaced", "aggregate_id": "ord-1", "correlation_id": "3f0e7c1a-5b52-4f0e-9a55-1f6f7a3e2b10",
			"tenant": "acme", "schema": "v1", "source": "checkout",
		}))...)
	}
	kinds := map[string]func(i int) schema.Envelope{
		"plain":   func(int) schema.Envelope { return job() },
		"ordered": func(i int) schema.Envelope { return job(schema.WithOrderingKey(fmt.Sprint(i % 100))) },
		"keyed":   func(int) schema.Envelope { return job(schema.WithKey(schema.NewID())) },
	}
	for _, n := range []int{1, 100, 1000} {
		for _, kind := range []string{"plain", "ordered", "keyed"} {
			b.Run(fmt.Sprintf("%s/%d", kind, n), func(b *testing.B) {
				envs := make([]schema.Envelope, n)
				b.ReportAllocs()
				for b.Loop() {
					for i := range envs {
						envs[i] = kinds[kind](i)
					}
					err := s.InTx(b.Context(), func(tx pgx.Tx) error { _, err := s.Append(b.Context(), tx, envs); return err })
					if err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.N*n)/b.Elapsed().Seconds(), "rows/s")
			})
		}
	}
	b.Run("batch", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			batch := &pgx.Batch{}
			if err := s.AppendBatch(batch, []schema.Envelope{job()}, nil); err != nil {
				b.Fatal(err)
			}
			if err := pool.SendBatch(b.Context(), batch).Close(); err != nil {
				b.Fatal(err)
			}
		}
	})
	if n := len(outbox(b, s)); n == 0 {
		b.Error("nothing was written")
	}
}
