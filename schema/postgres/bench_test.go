package postgres_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/millbridge/millbridge/schema"
)

// BenchmarkAppend is whole transactions that publish.
func BenchmarkAppend(b *testing.B) {
	s, _ := setup(b)
	payload := []byte(`{"some":"payload of an ordinary size, which is about a hundred bytes or a few more"}`)
	for name, c := range map[string]struct {
		n    int
		opts func() []schema.Option
	}{
		"one":         {1, func() []schema.Option { return nil }},
		"one keyed":   {1, func() []schema.Option { return []schema.Option{schema.WithKey(schema.NewID())} }},
		"one ordered": {1, func() []schema.Option { return []schema.Option{schema.WithOrderingKey(schema.NewID())} }},
		"hundred":     {100, func() []schema.Option { return nil }},
		"thousand":    {1000, func() []schema.Option { return nil }},
	} {
		b.Run(name, func(b *testing.B) {
			envs := make([]schema.Envelope, c.n)
			for b.Loop() {
				for i := range envs {
					envs[i] = schema.NewJob("crm", "create", payload, c.opts()...)
				}
				err := s.InTx(b.Context(), func(tx pgx.Tx) error { _, err := s.Append(b.Context(), tx, envs); return err })
				if err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N*c.n)/b.Elapsed().Seconds(), "rows/s")
		})
	}
	if n := len(outbox(b, s)); n == 0 {
		b.Error("nothing was written")
	}
}
