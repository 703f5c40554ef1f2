package router

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/millbridge/millbridge/publishers/jetstream"
)

// Run forwards and handles until ctx ends. Then it stops as described for the package and returns nil, or
// [ErrUnfinished] if handlers did not finish in time. Any other end is an error, too: a subscription or the forwarder
// that ended by itself, or a connection that was closed for good.
func (b *Bridge) Run(ctx context.Context) error {
	s, ctx, leave, err := b.enter(ctx)
	if err != nil {
		return fmt.Errorf("run bridge: %w", err)
	}
	defer leave()
	closed := b.cfg.Conn.StatusChanged(nats.CLOSED)
	defer b.cfg.Conn.RemoveStatusListener(closed)
	if b.cfg.Conn.IsClosed() { // before anybody listened
		return fmt.Errorf("run bridge: %w", jetstream.ErrConnectionClosed)
	}
	if err := b.checkDurability(ctx); err != nil {
		return fmt.Errorf("run bridge: %w", err)
	}
	switch err := s.start(ctx); {
	case err != nil && ctx.Err() != nil && errors.Is(err, context.Cause(ctx)):
		return nil // a stop before it has begun
	case err != nil:
		return fmt.Errorf("run bridge: %w", err)
	}

	forwarding, stopForwarder := context.WithCancel(context.WithoutCancel(ctx))
	defer stopForwarder()
	var forwarder sync.WaitGroup
	var forwardErr error
	forwarderEnded := make(chan struct{})
	if b.forwarder != nil {
		forwarder.Go(func() {
			forwardErr = b.forwarder.Run(forwarding)
			close(forwarderEnded)
		})
	}
	select {
	case <-ctx.Done():
	case err = <-s.failed:
	case <-closed:
		err = jetstream.ErrConnectionClosed
	case <-forwarderEnded:
		if err = forwardErr; err == nil {
			err = errors.New("the forwarder has ended unexpectedly")
		}
	}
	if err != nil {
		b.cfg.Logger.Error("bridge stops by itself", "error", err)
	}
	stopForwarder()
	stopErr := s.stop()
	forwarder.Wait()
	if err == nil && forwardErr != nil {
		err = forwardErr
	}
	if err := errors.Join(err, stopErr); err != nil {
		return fmt.Errorf("run bridge: %w", err)
	}
	return nil
}
