package router

import (
	"context"
	"errors"
	"fmt"

	"github.com/millbridge/millbridge/publishers"
	"github.com/millbridge/millbridge/schema"
)

// checkDurability refuses to run job types whose path is weaker than they accept, and names what makes it weak.
func (b *Bridge) checkDurability(ctx context.Context) error {
	var specs []schema.JobSpec
	for _, c := range b.chains {
		if typed, ok := c.handler.(interface{ Specs() []schema.JobSpec }); ok {
			for _, s := range typed.Specs() {
				if s.Needs != schema.AnyDurability {
					specs = append(specs, s)
				}
			}
		}
	}
	if len(specs) == 0 {
		return nil
	}
	gives, weakest, err := b.durability(ctx)
	if err != nil {
		return fmt.Errorf("look at the durability: %w", err)
	}
	var errs []error
	for _, s := range specs {
		if s.Needs > gives {
			errs = append(errs, fmt.Errorf("job %s.%s needs %v, and there is %v: %s: %w", s.Target, s.Action, s.Needs, gives, weakest, publishers.ErrTooWeak))
		}
	}
	return schema.WithKind(schema.Permanent, errors.Join(errs...))
}

// durability is what messages survive between a caller's transaction and a handler here, and what limits it.
func (b *Bridge) durability(ctx context.Context) (schema.Durability, string, error) {
	gives, weakest, err := b.cfg.Store.Durability(ctx)
	if err != nil || gives < schema.OnPostgres {
		return gives, weakest, err
	}
	name := b.cfg.Subjects.StreamName(schema.Jobs)
	stream, err := b.js.Stream(ctx, name)
	if err != nil {
		return gives, weakest, fmt.Errorf("stream %s: %w", name, err)
	}
	if n := stream.CachedInfo().Config.Replicas; n < 3 {
		s := "s"
		if n == 1 {
			s = ""
		}
		return schema.OnPostgres, fmt.Sprintf("stream %s has %d replica%s, needs 3", name, n, s), nil
	}
	return schema.OnPostgresR3, "", nil
}
