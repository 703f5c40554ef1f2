package handlers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/millbridge/millbridge/schema"
)

// Actions is a [Handler] that gives each action of a target its own function; fill it with [OnJob] or [On]. As the
// handler of a [Subscription] it goes by event name: fill it with [OnEvent] or [On]. The zero value has no actions. Fill
// it before it is used.
type Actions struct {
	funcs  map[string]HandlerFunc
	jobs   map[string]schema.JobSpec
	events []string
	faults []error
}

// OnJob makes fn handle the jobs of type t: args is the payload decoded from JSON and key the message's idempotency key.
// An empty payload counts as {}. A payload that does not fit T, or has a field T does not know, is a permanent
// [*ArgsError]. What t says about retries, time and durability counts for these jobs before the target's [Policy]. What
// is wrong with t, and an action that is there twice, is reported by [Actions.Validate].
func OnJob[T any](a *Actions, t schema.JobType[T], fn func(ctx context.Context, args T, key string) error) {
	spec := t.Spec()
	if err := spec.Validate(); err != nil {
		a.faults = append(a.faults, err)
		return
	}
	if !add(a, spec.Action, fn) {
		return
	}
	if a.jobs == nil {
		a.jobs = make(map[string]schema.JobSpec)
	}
	a.jobs[spec.Action] = spec
}

// OnEvent makes fn handle the events of type t, as [OnJob] does for jobs.
func OnEvent[T any](a *Actions, t schema.EventType[T], fn func(ctx context.Context, args T, key string) error) {
	if add(a, t.Name, fn) {
		a.events = append(a.events, t.Name)
	}
}

// On makes fn handle an action, or the events of a name, that no type is declared for. Apart from that it is [OnJob].
func On[T any](a *Actions, action string, fn func(ctx context.Context, args T, key string) error) {
	add(a, action, fn)
}

func add[T any](a *Actions, action string, fn func(ctx context.Context, args T, key string) error) bool {
	fault := func(format string, args ...any) bool {
		a.faults = append(a.faults, fmt.Errorf("action %q: "+format, append([]any{schema.OneLine(action)}, args...)...))
		return false
	}
	if err := schema.CheckName(action); err != nil {
		return fault("%w", err)
	}
	if a.funcs[action] != nil {
		return fault("is there twice")
	}
	if fn == nil {
		return fault("has no function")
	}
	if a.funcs == nil {
		a.funcs = make(map[string]HandlerFunc)
	}
	a.funcs[action] = func(ctx context.Context, env schema.Envelope) error {
		var args T
		if err := decodeArgs(env.Payload, &args); err != nil {
			err.Target, err.Action = env.Target, env.Name
			return Permanent(err)
		}
		return fn(ctx, args, env.IdempotencyKey())
	}
	return true
}

// Handle calls the function of env's action. An unknown action is [Permanent].
func (a *Actions) Handle(ctx context.Context, env schema.Envelope) error {
	fn := a.funcs[env.Name]
	switch {
	case fn != nil:
		return fn(ctx, env)
	case env.Kind == schema.KindEvent:
		return Permanent(fmt.Errorf("no function for event %q; there are %s", schema.OneLine(env.Name), a.list()))
	}
	return Permanent(fmt.Errorf("target %q has no action %q; it has %s",
		schema.OneLine(env.Target), schema.OneLine(env.Name), a.list()))
}

// Names returns the actions' names in order.
func (a *Actions) Names() []string { return slices.Sorted(maps.Keys(a.funcs)) }

// Spec returns what the job type of an action says; ok is false if the action was not declared with [OnJob].
func (a *Actions) Spec(action string) (spec schema.JobSpec, ok bool) {
	spec, ok = a.jobs[action]
	return spec, ok
}

// Specs returns what the job types say, in the order of the actions.
func (a *Actions) Specs() []schema.JobSpec {
	var specs []schema.JobSpec
	for _, action := range slices.Sorted(maps.Keys(a.jobs)) {
		specs = append(specs, a.jobs[action])
	}
	return specs
}

// Validate reports everything that was wrong with the calls of [OnJob], [OnEvent] and [On].
func (a *Actions) Validate() error { return errors.Join(a.faults...) }

// eventNames returns the names of the event types.
func (a *Actions) eventNames() []string { return a.events }

func (a *Actions) list() string {
	names := a.Names()
	if len(names) == 0 {
		return "none"
	}
	if len(names) > 20 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:20], ", "), len(names)-20)
	}
	return strings.Join(names, ", ")
}
