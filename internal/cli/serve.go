package cli

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/internal/killpoint"
	"github.com/millbridge/millbridge/internal/targets"
	"github.com/millbridge/millbridge/publishers/jetstream"
	"github.com/millbridge/millbridge/router"
	"github.com/millbridge/millbridge/schema"
)

// openBridge opens the bridge that the configuration describes, with its targets. What these hold is closed with o.
func (o *opened) openBridge(ctx context.Context) (*router.Bridge, error) {
	c := o.config
	bridge, err := router.Open(ctx, router.Config{
		Store: o.store, Conn: o.conn, Subjects: o.subjects(), Replicas: c.Replicas(), NoForward: !c.Forward,
		Forwarder:    o.forwarderConfig(),
		CloseTimeout: max(time.Duration(c.StopTimeout), time.Millisecond), Logger: o.log,
		Lease: killpoint.Lease, AckWait: killpoint.AckWait,
	})
	if err != nil {
		return nil, err
	}
	return bridge, o.addTargets(bridge)
}

// addTargets adds the configured targets and subscriptions.
func (o *opened) addTargets(bridge *router.Bridge) error {
	var errs []error
	for _, name := range o.config.TargetNames() {
		t := o.config.Targets[name]
		h, err := t.Open(name, o.log)
		if err != nil {
			errs = append(errs, schema.WithKind(schema.Permanent, err))
			continue
		}
		o.closers = append(o.closers, func() {
			if err := targets.Close(h); err != nil {
				o.log.Warn("close target", "target", name, "error", err)
			}
		})
		if len(t.Events) > 0 {
			errs = append(errs, bridge.Subscribe(handlers.Subscription{Name: name, Events: t.Events, Handler: h, Policy: t.Policy()}))
		} else {
			errs = append(errs, bridge.Target(handlers.Target{Name: name, Handler: h, Policy: t.Policy()}))
		}
	}
	return errors.Join(errs...)
}

// openPatiently waits for servers that are down, for they may come up later; what is wrong for good is an error.
func (o *opened) openPatiently(ctx context.Context) (*router.Bridge, error) {
	const pause = 2 * time.Second
	for {
		bridge, err := o.openBridge(ctx)
		if err == nil || isFinal(err) || ctx.Err() != nil {
			return bridge, err
		}
		o.log.WarnContext(ctx, "waiting for database and NATS", "error", err)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// isFinal reports that waiting does not help. A connection that is closed is not made anew.
func isFinal(err error) bool {
	return tooFewServers(err) || errors.Is(err, nats.ErrConnectionClosed) || schema.KindOf(err) != schema.Temporary || errors.Is(err, jetstream.ErrStreams) || errors.Is(err, schema.ErrNotMigrated) ||
		errors.Is(err, schema.ErrSchemaTooNew)
}

// tooFewServers reports that streams cannot have as many copies as they are to have.
func tooFewServers(err error) bool {
	const notClustered, notEnoughPeers = 10074, 10005
	var api *natsjs.APIError
	return errors.As(err, &api) && (api.ErrorCode == notClustered || api.ErrorCode == notEnoughPeers)
}

// watch logs what is wrong with a running bridge when that changes, until ctx ends.
func (o *opened) watch(ctx context.Context, bridge *router.Bridge) {
	const every = 10 * time.Second
	tick := time.NewTicker(every)
	defer tick.Stop()
	var before []string
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		now := bridge.Health(ctx).Problems
		if ctx.Err() != nil {
			return
		}
		for _, p := range now {
			if !slices.Contains(before, p) {
				o.log.WarnContext(ctx, "not well", "problem", p)
			}
		}
		if len(now) == 0 && len(before) > 0 {
			o.log.InfoContext(ctx, "well again")
		}
		before = now
	}
}
