package postgres_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/millbridge/millbridge/schema"
	"github.com/millbridge/millbridge/schema/postgres"
)

// trips counts what is sent to the server: queries, batches, and statements that are prepared.
type trips struct{ sent, statements, prepared int }

func (c *trips) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	c.sent, c.statements = c.sent+1, c.statements+1
	return ctx
}
func (*trips) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (c *trips) TraceBatchStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceBatchStartData) context.Context {
	c.sent, c.statements = c.sent+1, c.statements+d.Batch.Len()
	return ctx
}
func (*trips) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (*trips) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

func (c *trips) TracePrepareStart(ctx context.Context, _ *pgx.Conn, d pgx.TracePrepareStartData) context.Context {
	c.prepared++
	return ctx
}
func (*trips) TracePrepareEnd(context.Context, *pgx.Conn, pgx.TracePrepareEndData) {}

// Publishing is one round trip and one statement, whatever the number of messages, with statements that are known after
// their first use.
func TestAppend_is_one_statement(t *testing.T) {
	t.Parallel()
	_, pool := setup(t)
	count := &trips{}
	pool = repool(t, pool, func(c *pgxpool.Config) { c.ConnConfig.Tracer, c.MaxConns = count, 1 })
	s := postgres.New(pool, postgres.Options{})
	messages := func(n int, opts func(i int) []schema.Option) (envs []schema.Envelope) {
		for i := range n {
			envs = append(envs, schema.NewJob("crm", "create", nil, opts(i)...))
		}
		return envs
	}
	plain := func(int) []schema.Option { return nil }
	ordered := func(i int) []schema.Option { return []schema.Option{schema.WithOrderingKey(fmt.Sprint(i % 7))} }
	keyed := func(int) []schema.Option { return []schema.Option{schema.WithKey(schema.NewID())} }
	used := func(int) []schema.Option { return []schema.Option{schema.WithKey("used")} }
	later := func(int) []schema.Option { return []schema.Option{schema.WithDelay(time.Hour)} }
	one := trips{sent: 1, statements: 1}
	for _, c := range []struct {
		name string
		n    int
		opts func(i int) []schema.Option
		want trips
	}{
		{"one", 1, plain, one},
		{"one ordered", 1, ordered, one},
		{"one with a new key", 1, keyed, one},
		{"one with a used key", 1, used, trips{sent: 2, statements: 2}},
		{"one for later", 1, later, one},
		{"two", 2, plain, one},
		{"thousand", 1000, plain, one},
		{"thousand ordered", 1000, ordered, one},
		{"thousand for later", 1000, later, one},
		{"thousand with new keys", 1000, keyed, trips{sent: 1, statements: 4}},
	} {
		var got trips
		for range 3 { // the first times prepare the statements
			tx := begin(t, pool, pgx.ReadCommitted)
			*count = trips{}
			publish(t, s, tx, messages(c.n, c.opts)...)
			got = *count
			commit(t, tx)
		}
		if got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

// The claim of a key that is new is one round trip and one statement beside the handler's own.
func TestClaimTx_is_one_statement(t *testing.T) {
	t.Parallel()
	_, pool := setup(t)
	count := &trips{}
	pool = repool(t, pool, func(c *pgxpool.Config) { c.ConnConfig.Tracer, c.MaxConns = count, 1 })
	s := postgres.New(pool, postgres.Options{})
	for i := range 2 { // the first time prepares the statement
		tx := begin(t, pool, pgx.ReadCommitted)
		r := run("worker")
		r.Key.Key = fmt.Sprint(i)
		*count = trips{}
		res, err := s.ClaimTx(t.Context(), tx, r)
		if err != nil || res.Claim != schema.ClaimRun || res.Record.State != schema.InboxDone || res.Record.UpdatedAt.IsZero() {
			t.Errorf("claim %+v, %v", res, err)
		}
		if want := (trips{sent: 1, statements: 1}); i > 0 && *count != want {
			t.Errorf("%+v, want %+v", *count, want)
		}
		commit(t, tx)
	}
}
