package ops

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/millbridge/millbridge/schema"
)

// switchStore is what disabling and enabling asks of a database.
type switchStore interface {
	DisableHandler(ctx context.Context, handler, reason string, failing time.Duration) (c schema.Circuit, changed bool, err error)
	EnableHandler(ctx context.Context, handler string) (c schema.Circuit, changed bool, err error)
}

// Switched is what an operator's order to disable or enable a handler has led to.
type Switched struct {
	schema.HandlerChange      // of the disabling, also when it has ended with this order; only its Handler if there was none
	Disabled             bool `json:"disabled"` // it is so now
	Changed              bool `json:"changed"`  // by this order
	// Unknown says that no consumer has the name: no bridge has served such a handler yet.
	Unknown bool `json:"unknown"`
}

// Disable has the messages of a target or subscription wait, in all processes and within about a second, until it is
// enabled. Handlers that run go on to their end.
func (s *Service) Disable(ctx context.Context, handler, reason string) (Switched, error) {
	c, changed, err := s.store.DisableHandler(ctx, handler, reason, 0)
	if err != nil {
		return Switched{}, fmt.Errorf("disable %s: %w", schema.OneLine(handler), err)
	}
	return Switched{HandlerChange: c.Change(), Disabled: true, Changed: changed, Unknown: s.unknown(ctx, handler)}, nil
}

// Enable ends that.
func (s *Service) Enable(ctx context.Context, handler string) (Switched, error) {
	c, changed, err := s.store.EnableHandler(ctx, handler)
	if err != nil {
		return Switched{}, fmt.Errorf("enable %s: %w", schema.OneLine(handler), err)
	}
	c.Handler = handler
	return Switched{HandlerChange: c.Change(), Changed: changed, Unknown: !changed && s.unknown(ctx, handler)}, nil
}

// unknown reports whether the server answers, and knows no consumer of a handler.
func (s *Service) unknown(ctx context.Context, handler string) bool {
	if s.natsUp() != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.PartTimeout)
	defer cancel()
	list, err := s.consumers(ctx)
	return err == nil && !slices.ContainsFunc(list, func(c Consumer) bool { return c.Name == handler })
}
