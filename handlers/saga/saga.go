package saga

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/schema"
)

// A Step is one step of a saga with state T. Its functions run inside a transaction: they may read and write the
// application's own rows with [handlers.Tx], and what they write commits with the step or not at all. They make no other
// calls, because a run whose transaction is lost is made again. An error that is not given up is tried again by the
// target's policy.
type Step[T any] struct {
	// Name is unique in the definition and stored with each saga: a saga whose step is gone from the definition waits as
	// a dead letter until it is back.
	Name string
	// Do is the step forward. If its result asks nobody and the step awaits no signal, the next step follows at once, in
	// the same transaction.
	Do func(c *Context, state T) (Result[T], error)
	// OnReport is called with the report of each intent that was asked and succeeded. The step is done when nothing that
	// it asked for is open. nil leaves the state as it is.
	OnReport func(c *Context, state T, report schema.Outcome) (Result[T], error)
	// OnFailed is called instead when what was asked for has been given up, for example to ask somebody else. nil fails
	// the saga.
	OnFailed func(c *Context, state T, report schema.Outcome) (Result[T], error)
	// Await is a signal that the step waits for besides the reports; [OnSignal] says what it does.
	Await string
	// Timeout is how long the step waits for reports and signal, from its last question on; 0 means as long as it takes.
	Timeout time.Duration
	// OnTimeout is called when the step has waited so long. What is still open is given up, unless the result says to
	// wait on. nil fails the saga.
	OnTimeout func(c *Context, state T) (Result[T], error)
	// Undo takes the step back. It is called when the saga fails after the step was done, and also when the saga fails in
	// the step and something of it may have happened: it must do with a step that never had an effect. nil means that
	// there is nothing to take back. The step is undone when nothing that Undo asked for is open.
	Undo func(c *Context, state T) (Result[T], error)
	// OnUndone is called with the report of each intent that Undo asked and that succeeded. nil leaves the state as it is.
	OnUndone func(c *Context, state T, report schema.Outcome) (Result[T], error)
}

func (s Step[T]) addTo(d *Definition[T]) {
	fault := func(format string, args ...any) {
		d.faults = append(d.faults, fmt.Errorf("step %q: %s", schema.OneLine(s.Name), fmt.Sprintf(format, args...)))
	}
	if err := schema.CheckName(s.Name); err != nil {
		fault("%v", err)
	}
	if d.index(s.Name) >= 0 {
		fault("is there twice")
	}
	if s.Do == nil {
		fault("do: there is none")
	}
	if s.Timeout < 0 {
		fault("timeout is %v, must not be negative", s.Timeout)
	}
	if s.Timeout == 0 && s.OnTimeout != nil {
		fault("on timeout: there is no timeout")
	}
	if s.Undo == nil && s.OnUndone != nil {
		fault("on undone: there is no undo")
	}
	d.steps = append(d.steps, s)
}

// A Part is what [New] makes a definition of: a [Step] or what [OnSignal] returns.
type Part[T any] interface{ addTo(d *Definition[T]) }

type signalHandler[T any] func(c *Context, state T, args json.RawMessage) (Result[T], error)

type signalPart[T any] struct {
	name string
	call signalHandler[T]
}

// OnSignal says what a signal does to a saga. If a step awaits it, the signal does its work when the saga is there, and
// before that it is kept; it ends the waiting. A signal that no step awaits does its work at any time while the saga goes
// forward, and must not ask anybody. [Fail] fails the saga; any other error concerns the signal alone.
func OnSignal[T, A any](name string, fn func(c *Context, state T, args A) (Result[T], error)) Part[T] {
	p := signalPart[T]{name: name}
	if fn != nil {
		p.call = func(c *Context, state T, raw json.RawMessage) (Result[T], error) {
			var args A
			if err := json.Unmarshal(raw, &args); err != nil {
				return Result[T]{}, handlers.Permanent(fmt.Errorf("args of signal %s: %w", name, err))
			}
			return fn(c, state, args)
		}
	}
	return p
}

func (p signalPart[T]) addTo(d *Definition[T]) {
	switch {
	case schema.CheckName(p.name) != nil:
		d.faults = append(d.faults, fmt.Errorf("signal: %w", schema.CheckName(p.name)))
	case p.call == nil:
		d.faults = append(d.faults, fmt.Errorf("signal %q: has no function", p.name))
	case d.signals[p.name] != nil:
		d.faults = append(d.faults, fmt.Errorf("signal %q: is there twice", p.name))
	}
	d.signals[p.name] = p.call
}

// A Definition says how sagas of one kind go. Make one with [New].
type Definition[T any] struct {
	name    string
	steps   []Step[T]
	signals map[string]signalHandler[T]
	faults  []error
	actions handlers.Actions
}

// New returns the definition of the sagas called name, which is the name of their target too. T is their state: it is
// stored as JSON, and no step may leave its zero value. What is wrong with the parts is reported by
// [Definition.Validate].
func New[T any](name string, parts ...Part[T]) *Definition[T] {
	d := &Definition[T]{name: name, signals: make(map[string]signalHandler[T])}
	for _, p := range parts {
		p.addTo(d)
	}
	for _, s := range d.steps {
		if s.Await != "" && d.signals[s.Await] == nil {
			d.faults = append(d.faults, fmt.Errorf("step %q: nothing says what the signal %q does", s.Name, schema.OneLine(s.Await)))
		}
	}
	if len(d.steps) == 0 {
		d.faults = append(d.faults, errors.New("there are no steps"))
	}
	handlers.On(&d.actions, actionStart, d.onStart)
	handlers.On(&d.actions, actionReport, d.onReport)
	handlers.On(&d.actions, actionTimeout, d.onTimeout)
	handlers.On(&d.actions, actionSignal, d.onSignal)
	handlers.On(&d.actions, actionResume, d.onResume)
	return d
}

// Name returns the name of the sagas and of their target.
func (d *Definition[T]) Name() string { return d.name }

// Validate reports everything that is wrong with the definition.
func (d *Definition[T]) Validate() error {
	return errors.Join(append([]error{schema.CheckTarget(d.name)}, d.faults...)...)
}

// Target returns the target that runs the sagas. Its mode is always [handlers.ModeTx]: a step commits with its message.
func (d *Definition[T]) Target(p handlers.Policy) handlers.Target {
	p.Mode = handlers.ModeTx
	return handlers.Target{Name: d.name, Handler: coordinator[T]{d}, Policy: p}
}

// coordinator is the handler of a definition's target.
type coordinator[T any] struct{ def *Definition[T] }

func (h coordinator[T]) Validate() error {
	return errors.Join(h.def.Validate(), h.def.actions.Validate())
}

func (h coordinator[T]) Handle(ctx context.Context, env schema.Envelope) error {
	return h.def.actions.Handle(context.WithValue(ctx, envelopeKey{}, env), env)
}

// Start returns the job that starts the saga with this id: publish it as any other. Ids are unique within the
// definition, whatever the tenant, and have at most [MaxID] characters. Starting one twice with the same state is harmless.
func (d *Definition[T]) Start(id string, state T, opts ...schema.Option) schema.Envelope {
	data, err := json.Marshal(state)
	opts = append([]schema.Option{schema.WithKey("start/" + id)}, opts...)
	return schema.NewJob(d.name, actionStart, checked[startArgs]{startArgs{ID: id, State: data}, errors.Join(checkID(id), err)}, opts...)
}

// Signal returns the job that gives the saga a signal with its arguments. Give it a key if it may be published twice.
func (d *Definition[T]) Signal(id, name string, args any, opts ...schema.Option) schema.Envelope {
	data, err := json.Marshal(args)
	if err == nil && d.signals[name] == nil {
		err = fmt.Errorf("saga %s has no signal %q", d.name, schema.OneLine(name))
	}
	return schema.NewJob(d.name, actionSignal, checked[signalArgs]{signalArgs{ID: id, Name: name, Args: data}, errors.Join(checkID(id), err)}, opts...)
}

// index returns the place of the step called name, -1 if there is none.
func (d *Definition[T]) index(name string) int {
	for i, s := range d.steps {
		if s.Name == name {
			return i
		}
	}
	return -1
}

// MaxID is how many characters a saga's id may have: it is part of keys.
const MaxID = 150

func checkID(id string) error {
	switch n := utf8.RuneCountInString(id); {
	case id == "":
		return errors.New("the saga's id is empty")
	case n > MaxID:
		return fmt.Errorf("the saga's id has %d characters, limit %d", n, MaxID)
	}
	return nil
}

// checked is a payload that may be known to be wrong: publishing it then gives the error.
type checked[A any] struct {
	args A
	err  error
}

func (c checked[A]) MarshalJSON() ([]byte, error) {
	if c.err != nil {
		return nil, c.err
	}
	return json.Marshal(c.args)
}
