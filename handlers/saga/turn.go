package saga

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/schema"
)

// turn is what one message does to one saga, in the transaction of the message.
type turn[T any] struct {
	def  *Definition[T]
	ctx  context.Context
	env  schema.Envelope // the message
	call handlers.Call
	rec  schema.SagaRecord
	kept stored // the record's state
}

// open loads and locks the saga.
func (d *Definition[T]) open(ctx context.Context, id string) (t *turn[T], found bool, err error) {
	t = &turn[T]{def: d, ctx: ctx, env: envelopeOf(ctx)}
	t.call, _ = handlers.CallFrom(ctx)
	if t.call.Unit == nil {
		return nil, false, handlers.Permanent(fmt.Errorf("saga %s needs the policy that Target gives it: it has no transaction", d.name))
	}
	t.rec, found, err = t.call.Unit.LoadSaga(ctx, d.name, id)
	if err != nil || !found {
		return t, false, err
	}
	if t.rec.Tenant != t.env.Tenant {
		return nil, false, handlers.Permanent(fmt.Errorf("saga %s/%s belongs to another tenant", d.name, schema.OneLine(id)))
	}
	if err := json.Unmarshal(t.rec.State, &t.kept); err != nil {
		return nil, false, handlers.Permanent(fmt.Errorf("state of saga %s/%s: %w", d.name, schema.OneLine(id), err))
	}
	return t, true, nil
}

// step returns the step called name. That it is gone is for the dead letter: another release may have it.
func (t *turn[T]) step(name string) (Step[T], error) {
	if i := t.def.index(name); i >= 0 {
		return t.def.steps[i], nil
	}
	return Step[T]{}, handlers.Permanent(fmt.Errorf("saga %s/%s needs step %q, which its definition does not have",
		t.rec.Saga, t.rec.ID, schema.OneLine(name)))
}

// following returns the step after the one called name that was not done yet.
func (t *turn[T]) following(name string) (Step[T], bool) {
	for _, s := range t.def.steps[t.def.index(name)+1:] {
		if !slices.Contains(t.kept.Done, s.Name) {
			return s, true
		}
	}
	return Step[T]{}, false
}

// do calls a step's function and writes down what it decided, or leaves the saga as it was. settle says where the saga
// is after it, given what it asks for, and returns the event's kind.
func (t *turn[T]) do(step string, fn func(c *Context, state T) (Result[T], error), settle func(res Result[T], calls []call) (kind string)) error {
	rec, kept := t.rec, t.kept
	err := t.attempt(func() error {
		var state T
		if err := json.Unmarshal(t.kept.Data, &state); err != nil {
			return handlers.Permanent(fmt.Errorf("state: %w", err))
		}
		wasZero := isZero(state)
		res, err := fn(t.context(step), state)
		if err != nil {
			return err
		}
		if isZero(res.State) && !wasZero {
			return handlers.Permanent(errors.New("the result has no state: return the whole state that the step leaves"))
		}
		if t.kept.Data, err = json.Marshal(res.State); err != nil {
			return handlers.Permanent(fmt.Errorf("state: %w", err))
		}
		envs, ledger, calls := t.envelopes(step, res.Intents)
		return t.save(step, settle(res, calls), res.Rationale, ledger, envs)
	})
	if err != nil {
		t.rec, t.kept = rec, kept
	}
	return err
}

func isZero(state any) bool {
	v := reflect.ValueOf(state)
	return !v.IsValid() || v.IsZero()
}

// attempt runs f so that nothing of it stays if it fails, and the transaction can go on. A panic in the last attempt is
// an error like others, whatever it wraps: nobody will call it again.
func (t *turn[T]) attempt(f func() error) error {
	return t.call.Unit.Try(t.ctx, func() error {
		if !t.last() {
			return f()
		}
		err := handlers.Recover(f)
		if panicked := (*handlers.PanicError)(nil); errors.As(err, &panicked) {
			return errors.New(panicked.Error())
		}
		return err
	})
}

func (t *turn[T]) last() bool { return t.call.MaxAttempts > 0 && t.call.Attempt >= t.call.MaxAttempts }

// givenUp reports whether a step's error is its end. A database that is away is never the step's fault.
func (t *turn[T]) givenUp(err error) bool {
	switch schema.KindOf(err) {
	case schema.Permanent:
		return true
	case schema.Temporary:
		_, snoozed := schema.SnoozeOf(err)
		return t.last() && !snoozed && t.ctx.Err() == nil && !errors.Is(err, schema.ErrRetryTransaction) && !errors.Is(err, schema.ErrUnavailable)
	}
	return false
}

// save writes the record and one event, and publishes what goes with it.
func (t *turn[T]) save(step, kind, rationale string, ledger []told, envs []schema.Envelope) error {
	t.rec.Version++
	ev := schema.SagaEvent{N: t.rec.Version, Step: step, Kind: kind, Rationale: schema.OneLine(rationale), State: t.kept.Data}
	if w := t.kept.Wait; t.rec.Status == schema.SagaWaiting && w != nil && w.N == ev.N {
		s, err := t.step(step)
		if err != nil {
			return err
		}
		if s.Timeout > 0 {
			envs = append(envs, schema.NewJob(t.def.name, actionTimeout, timeoutArgs{ID: t.rec.ID, Wait: ev.N},
				schema.WithKey("timeout/"+t.rec.ID+"/"+strconv.Itoa(ev.N)), schema.WithDelay(s.Timeout)))
		}
	}
	var err error
	if len(ledger) > 0 {
		if ev.Intents, err = json.Marshal(ledger); err != nil {
			return handlers.Permanent(fmt.Errorf("ledger: %w", err))
		}
	}
	if t.rec.State, err = json.Marshal(t.kept); err != nil {
		return handlers.Permanent(fmt.Errorf("state: %w", err))
	}
	if err := t.call.Unit.SaveSaga(t.ctx, t.rec, ev); err != nil {
		return fmt.Errorf("save saga %s/%s: %w", t.rec.Saga, t.rec.ID, err)
	}
	if len(envs) == 0 {
		return nil
	}
	if _, err := handlers.Publish(t.ctx, envs...); err != nil {
		return fmt.Errorf("publish what step %s asks for: %w", step, err)
	}
	return nil
}

// ignore notes a report or a signal that came too late.
func (t *turn[T]) ignore(what string) error {
	return t.save(t.rec.Step, kindIgnored, what+": the saga is "+string(t.rec.Status), nil, nil)
}
