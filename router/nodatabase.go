package router

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/schema"
)

var errNoDatabase = schema.WithKind(schema.Permanent, errors.New("this bridge has no database"))

// noDatabase is the store of a bridge that only handles: an inbox, and nothing of what a database does besides.
type noDatabase struct{ Inbox }

func (noDatabase) Check(context.Context) error                    { return nil }
func (noDatabase) WeakSettings(context.Context) ([]string, error) { return nil, nil }
func (noDatabase) CheckRights(context.Context) error              { return nil }
func (noDatabase) MaxUnits() int                                  { return maxUnits }

func (noDatabase) Durability(context.Context) (schema.Durability, string, error) {
	return schema.AnyDurability, "the bridge has no database, and nothing is known of the outbox", nil
}

func (noDatabase) Circuits(context.Context) ([]schema.Circuit, error) { return nil, nil }

func (noDatabase) Take(context.Context, string, time.Duration, int) (time.Duration, error) {
	return 0, errNoDatabase
}

func (noDatabase) CircuitFailed(context.Context, string, string, int, time.Duration) (schema.Circuit, error) {
	return schema.Circuit{}, errNoDatabase
}

func (noDatabase) CircuitProbe(context.Context, string, time.Duration) (bool, error) {
	return false, errNoDatabase
}

func (noDatabase) CircuitClosed(context.Context, string) error { return errNoDatabase }

func (noDatabase) DisableHandler(context.Context, string, string, time.Duration) (schema.Circuit, bool, error) {
	return schema.Circuit{}, false, errNoDatabase
}

func (noDatabase) Hold(context.Context, string, string, time.Duration) (bool, time.Duration, error) {
	return false, 0, errNoDatabase
}

func (noDatabase) LetGo(context.Context, string, string) error { return errNoDatabase }

func (noDatabase) Info(context.Context) (schema.OutboxInfo, error) { return schema.OutboxInfo{}, nil }

func (noDatabase) Shards(context.Context, schema.Stream) ([]schema.Shard, error) {
	return nil, errNoDatabase
}

func (noDatabase) Acquire(context.Context, schema.ShardRef, string, time.Duration) (schema.Shard, bool, error) {
	return schema.Shard{}, false, errNoDatabase
}

func (noDatabase) Renew(context.Context, []string, time.Duration) ([]string, error) {
	return nil, errNoDatabase
}

func (noDatabase) Release(context.Context, string) error { return errNoDatabase }

func (noDatabase) KnownOwner(context.Context, schema.ShardRef, string) (bool, error) {
	return false, errNoDatabase
}

func (noDatabase) RowReader(schema.ShardRef, int) schema.RowReader { return nil }

func (noDatabase) Peek(context.Context, []schema.Look) ([]schema.Sight, error) {
	return nil, errNoDatabase
}

func (noDatabase) Remove(context.Context, schema.RemoveParams) (schema.RemoveResult, error) {
	return schema.RemoveResult{}, errNoDatabase
}

func (noDatabase) Park(context.Context, schema.ParkParams) error { return errNoDatabase }

func (noDatabase) Tend(context.Context, int) (schema.TendResult, error) {
	return schema.TendResult{}, errNoDatabase
}

// checkPolicy refuses what only a database can do.
func (b *Bridge) checkPolicy(name string, p handlers.Policy) error {
	if _, none := b.cfg.Store.(noDatabase); !none {
		return nil
	}
	var errs []error
	for what, asked := range map[string]bool{
		"mode tx": p.Mode == handlers.ModeTx, "rate": p.Rate > 0, "ordered": p.Ordered, "breaker": p.Breaker.Failures > 0,
		"breaker.disable_after": p.Breaker.DisableAfter > 0,
	} {
		if asked {
			errs = append(errs, fmt.Errorf("%q: %s: %w", name, what, errNoDatabase))
		}
	}
	return errors.Join(errs...)
}

// refuseReport says that a job's outcome cannot be reported where there is no transaction to do so in. It is given up
// before anything is done for it.
func (c *chain) refuseReport(r *run) error {
	if c.reports || r.env.ReplyTo == nil {
		return nil
	}
	r.env.ReplyTo = nil
	return &verdictError{schema.CausePermanent, "the job asks for a report of its outcome: " + errNoDatabase.Error()}
}
