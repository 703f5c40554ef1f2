package publishers

import (
	"context"
	"errors"
	"fmt"

	"github.com/millbridge/millbridge/schema"
)

// A Publisher takes messages in a transaction of the caller's. [Outbox] is one; the in-process queue
// (router/inprocess) is another, which ignores the transaction. Code that publishes through this interface moves from one
// to the other by one line, where the program is put together.
type Publisher[Tx any] interface {
	// Publish puts messages in, with tx. Either all or, with an error, none.
	Publish(ctx context.Context, tx Tx, envs ...schema.Envelope) ([]schema.Receipt, error)
	// PublishAlone is Publish without business rows.
	PublishAlone(ctx context.Context, envs ...schema.Envelope) ([]schema.Receipt, error)
	// Nudge says that a transaction with messages has committed.
	Nudge()
}

// A Path can say what the messages that take it survive. Both publishers are paths.
type Path interface {
	// Durability returns what the path gives and, in words, its weakest wire.
	Durability(ctx context.Context) (gives schema.Durability, weakest string, err error)
}

// ErrTooWeak reports a path that gives less than what takes it needs.
var ErrTooWeak = errors.New("the path is too weak")

// Require proves that path is strong enough for each of these job types. The error wraps [ErrTooWeak], names every type
// that needs more and the weak wire, and is permanent. Call it where the program is put together, before it serves:
//
//	err := publishers.Require(ctx, outbox, charge.Spec(), remind.Spec())
//
// A publisher sees as far as its database. For a type that needs [schema.OnPostgresR3] it proves the database's part;
// the bridge that runs the handler proves the stream's.
func Require(ctx context.Context, path Path, specs ...schema.JobSpec) error {
	var errs []error
	for _, s := range specs {
		if err := s.Validate(); err != nil {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("require durability: %w", err)
	}
	gives, weakest, err := path.Durability(ctx)
	if err != nil {
		return fmt.Errorf("require durability: %w", err)
	}
	for _, s := range specs {
		if min(s.Needs, schema.OnPostgres) > gives {
			errs = append(errs, fmt.Errorf("job %s.%s needs %v", s.Target, s.Action, s.Needs))
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return tooWeak(gives, weakest, errors.Join(errs...))
}

// RequireDurable refuses a path that loses its messages when the process ends, whatever the job types ask for. It is for
// programs that must never run on the in-process queue by mistake, as in production.
func RequireDurable(ctx context.Context, path Path) error {
	gives, weakest, err := path.Durability(ctx)
	if err != nil {
		return fmt.Errorf("require durability: %w", err)
	}
	if gives <= schema.InMemory {
		return tooWeak(gives, weakest, errors.New("this program publishes only through a database"))
	}
	return nil
}

func tooWeak(gives schema.Durability, weakest string, err error) error {
	return schema.WithKind(schema.Permanent, fmt.Errorf("require durability: %w: it gives %v (%s): %w", ErrTooWeak, gives, weakest, err))
}

// Durability returns what messages survive on their way through the database, and what keeps it from giving more.
func (o *Outbox[Tx]) Durability(ctx context.Context) (schema.Durability, string, error) {
	d, weakest, err := o.store.Durability(ctx)
	if err != nil {
		return d, weakest, fmt.Errorf("durability of the outbox: %w", err)
	}
	return d, weakest, nil
}
