package saga

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/schema"
)

func (d *Definition[T]) onStart(ctx context.Context, args startArgs, _ string) error {
	t, found, err := d.open(ctx, args.ID)
	if err != nil {
		return err
	}
	if found {
		return handlers.Permanent(fmt.Errorf("saga %s/%s was started before", d.name, schema.OneLine(args.ID)))
	}
	var state T
	if err := json.Unmarshal(args.State, &state); err != nil {
		return handlers.Permanent(fmt.Errorf("state of saga %s/%s: %w", d.name, schema.OneLine(args.ID), err))
	}
	t.rec = schema.SagaRecord{Saga: d.name, ID: args.ID, Tenant: t.env.Tenant, Status: schema.SagaRunning}
	t.kept = stored{Data: args.State}
	if err := t.save("", kindStarted, "", nil, nil); err != nil {
		return err
	}
	return t.proceed()
}

func (d *Definition[T]) onReport(ctx context.Context, out schema.Outcome, _ string) error {
	id, err := sagaOf(out.Ref)
	if err != nil {
		return err
	}
	t, found, err := d.open(ctx, id)
	switch {
	case err != nil:
		return err
	case !found:
		return handlers.Permanent(fmt.Errorf("there is no saga %s/%s", d.name, schema.OneLine(id)))
	case !t.kept.Wait.has(out.Ref):
		return t.ignore(fmt.Sprintf("report of %s.%s (ok: %t)", out.Target, out.Action, out.OK))
	case t.rec.Status == schema.SagaWaiting:
		return t.reported(out)
	}
	return t.undoReported(out)
}

func (d *Definition[T]) onTimeout(ctx context.Context, args timeoutArgs, _ string) error {
	t, found, err := d.open(ctx, args.ID)
	if err != nil || !found {
		return err
	}
	if t.rec.Status != schema.SagaWaiting || t.kept.Wait == nil || t.kept.Wait.N != args.Wait {
		return nil // it has moved on
	}
	return t.timedOut()
}

// errNoSaga is temporary: a signal may be quicker than what starts its saga.
var errNoSaga = errors.New("there is no such saga yet")

func (d *Definition[T]) onSignal(ctx context.Context, args signalArgs, _ string) error {
	call := d.signals[args.Name]
	if call == nil {
		return handlers.Permanent(fmt.Errorf("saga %s has no signal %q", d.name, schema.OneLine(args.Name)))
	}
	t, found, err := d.open(ctx, args.ID)
	switch {
	case err != nil:
		return err
	case !found:
		return fmt.Errorf("signal %s for %s/%s: %w", args.Name, d.name, schema.OneLine(args.ID), errNoSaga)
	case t.rec.Status != schema.SagaWaiting || t.kept.Wait == nil:
		return t.ignore("signal " + args.Name)
	}
	return t.signal(args)
}

func (d *Definition[T]) onResume(ctx context.Context, args resumeArgs, _ string) error {
	if c, _ := handlers.CallFrom(ctx); c.Replay == 0 {
		return handlers.Permanent(fmt.Errorf("saga %s/%s is stuck, replay this to go on with it: %s", d.name, args.ID, args.Reason))
	}
	t, found, err := d.open(ctx, args.ID)
	if err != nil || !found {
		return err
	}
	return t.resume(args)
}
