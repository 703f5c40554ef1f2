package postgres_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/millbridge/millbridge/schema"
)

// In every mode of the driver messages are published one by one and together, with and without keys, read and removed. Two of
// the modes do not tell the driver what type a parameter has.
func TestEveryMode_of_the_driver(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec,
		pgx.QueryExecModeSimpleProtocol,
	} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			_, pool := setup(t)
			s := sessions(t, pool, mode, nil)
			var want []string
			for _, n := range []int{1, 20} {
				for i, opts := range [][]schema.Option{nil, {schema.WithOrderingKey("o")}, {schema.WithKey("k")}} {
					var envs []schema.Envelope
					for j := range n {
						id := fmt.Sprint(n, "-", i, "-", j)
						each := opts
						if i == 2 {
							each = []schema.Option{schema.WithKey(id)}
						}
						envs, want = append(envs, job(id, each...)), append(want, id)
					}
					if err := s.InTx(t.Context(), func(tx pgx.Tx) error {
						_, err := s.Append(t.Context(), tx, envs)
						return err
					}); err != nil {
						t.Fatal(err)
					}
				}
			}
			if ledger, ok, err := s.Acquire(t.Context(), wholeStream, "me", 0); err != nil || !ok {
				t.Fatalf("%+v, %v, %v", ledger, ok, err)
			}
			rows, err := s.NewReader(wholeStream, 1).Read(t.Context(), schema.ReadParams{MaxRows: 100, MaxBytes: schema.MaxBatchBytes})
			if err != nil {
				t.Fatal(err)
			}
			if got := ids(t, rows); !slices.Equal(got, want) {
				t.Errorf("read %q, want %q", got, want)
			}
			p := schema.RemoveParams{ShardRef: wholeStream, Owner: "me", Batch: 1, Total: int64(len(rows)), CursorSeq: 1}
			for _, row := range rows {
				p.Names = append(p.Names, row.Name())
			}
			if res, err := s.Remove(t.Context(), p); err != nil || res.Removed != len(want) {
				t.Errorf("removed %+v, %v; want %d", res, err, len(want))
			}
		})
	}
}
