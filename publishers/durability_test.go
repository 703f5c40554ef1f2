package publishers_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/millbridge/millbridge/publishers"
	"github.com/millbridge/millbridge/router/inprocess"
	"github.com/millbridge/millbridge/schema"
)

// Both are paths that the same code can publish through.
var (
	_ publishers.Publisher[*sql.Tx] = (*publishers.Outbox[*sql.Tx])(nil)
	_ publishers.Publisher[*sql.Tx] = (*inprocess.Queue[*sql.Tx])(nil)
	_ publishers.Path               = (*inprocess.Queue[*sql.Tx])(nil)
)

// A job type that needs more than the path gives is refused by name, with the weak wire.
func TestRequire_asks_the_database(t *testing.T) {
	onEach(t, testRequire[pgx.Tx], testRequire[*sql.Tx])
}

func testRequire[Tx any](t *testing.T, d *database[Tx]) {
	gives, weakest, err := d.outbox.Durability(t.Context())
	if err != nil || gives <= schema.InMemory || gives > schema.OnPostgres {
		t.Fatalf("the outbox gives %v (%s), error %v", gives, weakest, err)
	}
	if err := publishers.RequireDurable(t.Context(), d.outbox); err != nil {
		t.Error(err)
	}
	charge := schema.JobType[int]{Target: "billing", Action: "charge"}
	for need := schema.AnyDurability; need <= schema.OnPostgresR3; need++ {
		charge.Needs = need
		err := publishers.Require(t.Context(), d.outbox, charge.Spec())
		if enough := min(need, schema.OnPostgres) <= gives; enough != (err == nil) {
			t.Errorf("needs %v of a path that gives %v: %v", need, gives, err)
		}
		if err != nil && (!errors.Is(err, publishers.ErrTooWeak) || !strings.Contains(err.Error(), weakest) || weakest == "") {
			t.Errorf("error %v does not name the weak wire %q", err, weakest)
		}
	}
}

type path struct {
	gives schema.Durability
	err   error
}

func (p path) Durability(context.Context) (schema.Durability, string, error) {
	return p.gives, "fsync is off", p.err
}

func TestRequire_names_every_type_that_needs_more(t *testing.T) {
	t.Parallel()
	specs := []schema.JobSpec{
		{Target: "billing", Action: "charge", Needs: schema.OnPostgres},
		{Target: "mailer", Action: "send", Needs: schema.InMemory},
		{Target: "billing", Action: "refund", Needs: schema.OnPostgresR3},
	}
	err := publishers.Require(t.Context(), path{gives: schema.OnSQLite}, specs...)
	if schema.KindOf(err) != schema.Permanent {
		t.Errorf("error %v is not permanent", err)
	}
	for _, want := range []string{"it gives sqlite (fsync is off)", "job billing.charge needs postgres", "job billing.refund needs postgres_r3"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v lacks %q", err, want)
		}
	}
	if err != nil && strings.Contains(err.Error(), "mailer") {
		t.Errorf("error %v names a type that may take this path", err)
	}
	for _, path := range []path{{gives: schema.OnPostgres}, {gives: schema.OnPostgresR3}} {
		if err := publishers.Require(t.Context(), path, specs...); err != nil {
			t.Error(err)
		}
	}
	down := errors.New("no database")
	if err := publishers.Require(t.Context(), path{err: down}, specs...); !errors.Is(err, down) {
		t.Errorf("a path that cannot tell: %v", err)
	}
	if err := publishers.Require(t.Context(), path{gives: schema.OnPostgresR3}, schema.JobSpec{Target: "Bad"}); err == nil {
		t.Error("a spec that makes no sense was accepted")
	}
}

// An application that must have its jobs durable refuses the queue in memory, also when no job type asks for more.
func TestRequireDurable_refuses_the_in_process_queue(t *testing.T) {
	t.Parallel()
	queue := inprocess.New[*sql.Tx](inprocess.Config{AllowLoss: true})
	if err := publishers.Require(t.Context(), queue, schema.JobSpec{Target: "mailer", Action: "send"}); err != nil {
		t.Error(err)
	}
	err := publishers.RequireDurable(t.Context(), queue)
	if !errors.Is(err, publishers.ErrTooWeak) || !strings.Contains(err.Error(), "lost when the process ends") {
		t.Errorf("error %v", err)
	}
	down := errors.New("no database")
	if err := publishers.RequireDurable(t.Context(), path{err: down}); !errors.Is(err, down) {
		t.Errorf("a path that cannot tell: %v", err)
	}
}
