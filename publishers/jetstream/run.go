package jetstream

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"github.com/millbridge/millbridge/schema"
)

// ErrConnectionClosed reports that the NATS connection was closed for good.
var ErrConnectionClosed = errors.New("the NATS connection is closed")

// running is what exists only while a forwarder works.
type running struct {
	f       *Forwarder
	writer  *writer
	leases  *leases
	lookout *lookout

	mu      sync.Mutex
	checked map[schema.Stream]time.Time // when preflight last passed
}

// start prepares for work; the returned function ends it. It needs no server to be up.
func (f *Forwarder) start(ctx context.Context) (*running, func(), error) {
	select {
	case f.busy <- struct{}{}:
	case <-ctx.Done():
		return nil, nil, context.Cause(ctx)
	}
	free := func() { <-f.busy }
	if f.nc.IsClosed() {
		free()
		return nil, nil, ErrConnectionClosed
	}
	s := f.cfg.Subjects
	w, err := newWriter(f.nc, f.cfg.AckTimeout, s.StreamName(schema.Jobs), s.StreamName(schema.Events))
	if err != nil {
		free()
		return nil, nil, err
	}
	r := &running{f: f, writer: w, leases: newLeases(f.store, f.cfg.Lease, f.log), lookout: newLookout(f), checked: make(map[schema.Stream]time.Time)}
	keep, stop := context.WithCancel(context.WithoutCancel(ctx))
	var done sync.WaitGroup
	done.Go(func() { r.leases.keep(keep) })
	return r, func() {
		stop()
		done.Wait()
		w.close()
		free()
	}, nil
}

// Run moves rows until ctx ends, on all shards that no other process holds. It then stops reading, waits for batches
// under way, removes what they sent and gives the leases back. The error is nil after such a stop.
func (f *Forwarder) Run(outer context.Context) error {
	ctx, stop := context.WithCancelCause(outer)
	defer stop(nil)
	r, end, err := f.start(ctx)
	switch {
	case err != nil && outer.Err() != nil && !errors.Is(err, ErrConnectionClosed):
		return nil // a stop before it has begun
	case err != nil:
		return fmt.Errorf("run forwarder: %w", err)
	}
	defer end()
	closed, connected := f.nc.StatusChanged(nats.CLOSED), f.nc.StatusChanged(nats.CONNECTED)
	defer f.nc.RemoveStatusListener(closed)
	defer f.nc.RemoveStatusListener(connected)
	nudges, err := f.nc.Subscribe(NudgeSubject(f.cfg.Subjects), func(*nats.Msg) { f.Nudge() })
	if err != nil {
		return fmt.Errorf("run forwarder: subscribe to nudges: %w", err)
	}
	defer func() { _ = nudges.Unsubscribe() }() // fails only if the connection is closed

	var group sync.WaitGroup
	group.Go(func() {
		for ctx.Err() == nil {
			select {
			case <-ctx.Done():
			case <-connected: // nudges may have been lost meanwhile
				f.Nudge()
			case <-closed:
				stop(ErrConnectionClosed)
			}
		}
	})
	group.Go(func() { r.lookout.keep(ctx) })
	group.Go(func() { f.tendLoop(ctx) })
	group.Go(func() { f.keepGuard(ctx) })
	for _, fd := range f.feeds {
		group.Go(func() { f.feedLoop(ctx, fd) })
	}
	for err = errReload; errors.Is(err, errReload); {
		if err = f.loadWhenUp(ctx); err == nil {
			err = f.runShards(ctx, r)
		}
	}
	stop(err)
	group.Wait()
	if cause := context.Cause(ctx); err == nil && errors.Is(cause, ErrConnectionClosed) {
		err = cause
	}
	if err != nil && outer.Err() == nil {
		return fmt.Errorf("run forwarder: %w", err)
	}
	return nil
}

// runShards runs all shards that were loaded until ctx ends, or with errReload.
func (f *Forwarder) runShards(ctx context.Context, r *running) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, sh := range f.all() {
		group.Go(func() error { return sh.run(ctx, r) })
	}
	return group.Wait()
}

// loadWhenUp loads the shards, and waits for a database that is down but not for one that needs a migration.
func (f *Forwarder) loadWhenUp(ctx context.Context) error {
	for failures := 1; ; failures++ {
		err := f.load(ctx)
		f.setFault("")
		if err == nil || errors.Is(err, schema.ErrNotMigrated) || errors.Is(err, schema.ErrSchemaTooNew) {
			return err
		}
		f.log.WarnContext(ctx, "forwarder waits for the database", "error", err)
		f.setFault(schema.OneLine(err.Error()))
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(f.backoff(failures, "load")):
		}
	}
}

// DrainOnce moves at most one batch per shard and returns what it did. Shards of other processes are left alone. Rows
// that could not be sent are an error besides the tally.
func (f *Forwarder) DrainOnce(ctx context.Context) (Tally, error) {
	r, end, err := f.start(ctx)
	if err != nil {
		return Tally{}, fmt.Errorf("drain once: %w", err)
	}
	defer end()
	if err := f.load(ctx); err != nil {
		return Tally{}, fmt.Errorf("drain once: %w", err)
	}
	if _, err := f.store.Tend(ctx, tendLimit); err != nil {
		return Tally{}, fmt.Errorf("drain once: tend outbox: %w", err)
	}
	_, unfed := f.feed(ctx, true)
	tally, err := f.pass(ctx, r, untilOnce)
	if err = errors.Join(err, unfed); err != nil {
		return tally, fmt.Errorf("drain once: %w", err)
	}
	return tally, nil
}

// Drain moves rows until the outbox and its feeds have none that is due and committed, or ctx ends. A shard that a crashed process
// left is waited for, one that another process keeps moving is left to it. A stopped shard is an error.
func (f *Forwarder) Drain(ctx context.Context) (Tally, error) {
	r, end, err := f.start(ctx)
	if err != nil {
		return Tally{}, fmt.Errorf("drain: %w", err)
	}
	defer end()
	var total Tally
	for {
		if err := f.load(ctx); err != nil {
			return total, fmt.Errorf("drain: %w", err)
		}
		moved, err := f.tend(ctx)
		if err != nil {
			return total, fmt.Errorf("drain: %w", err)
		}
		fed, unfed := f.feed(ctx, false)
		moved += fed
		tally, err := f.pass(ctx, r, untilEmpty)
		total.add(tally)
		if !errors.Is(err, errReload) {
			err = errors.Join(err, unfed)
		}
		switch {
		case errors.Is(err, errReload):
		case err != nil:
			return total, fmt.Errorf("drain: %w", err)
		case ctx.Err() != nil:
			return total, fmt.Errorf("drain: %w", context.Cause(ctx))
		case tally.Claimed == 0 && moved == 0:
			return total, nil
		}
	}
}

// pass lets every shard work once, side by side.
func (f *Forwarder) pass(ctx context.Context, r *running, mode until) (Tally, error) {
	before := f.tally()
	var group errgroup.Group
	shards := f.all()
	errs := make([]error, len(shards))
	for i, sh := range shards {
		group.Go(func() error {
			errs[i] = sh.once(ctx, r, mode)
			return nil
		})
	}
	_ = group.Wait() // the errors are in errs: all of them count
	t := f.tally()
	t.Claimed -= before.Claimed
	t.Sent -= before.Sent
	t.Retried -= before.Retried
	t.Parked -= before.Parked
	t.Lost -= before.Lost
	return t, errors.Join(errs...)
}

// once owns the shard for one pass.
func (sh *shard) once(ctx context.Context, r *running, mode until) error {
	waited := false
	for failures := 1; ; failures++ {
		err := sh.own(ctx, r, mode)
		var standby *standbyError
		var stop *StopError
		switch {
		case err == nil:
			sh.enter(ctx, ShardIdle, nil)
			return nil
		case errors.As(err, &standby):
			sh.enter(ctx, ShardStandby, nil)
			if mode == untilOnce || waited {
				return nil // its owner is alive
			}
			waited = true
			sh.pause(ctx, ctx, standby.left+10*time.Millisecond)
			continue
		case errors.Is(err, errReload):
			return err
		case errors.As(err, &stop):
			sh.enter(ctx, ShardStopped, err)
			return err
		case schema.KindOf(err) == schema.NotMine:
			sh.enter(ctx, ShardStandby, nil)
			return nil
		}
		sh.enter(ctx, ShardWaiting, err)
		if mode == untilOnce || ctx.Err() != nil {
			return err
		}
		if !sh.pause(ctx, ctx, sh.f.backoff(failures, sh.subject)) {
			return err
		}
	}
}

func (f *Forwarder) tally() Tally {
	var t Tally
	for _, s := range f.Status() {
		t.add(s.Tally)
	}
	return t
}
