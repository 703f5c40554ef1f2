package handlers

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/millbridge/millbridge/schema"
)

// Actions is a [Handler] that gives each action of a target its own function; fill it with [On]. As the handler of a
// [Subscription] it goes by event name. The zero value has no actions. Fill it before it is used.
type Actions struct {
	funcs  map[string]HandlerFunc
	faults []error
}

// On makes fn handle an action: args is the payload decoded from JSON and key the message's idempotency key. An empty
// payload counts as {}. A payload that does not fit T, or has a field T does not know, is a permanent [*ArgsError]. A
// bad or repeated action name is reported by [Actions.Validate].
func On[T any](a *Actions, action string, fn func(ctx context.Context, args T, key string) error) {
	if err := schema.CheckName(action); err != nil {
		a.faults = append(a.faults, fmt.Errorf("action %q: %w", schema.OneLine(action), err))
		return
	}
	if a.funcs[action] != nil {
		a.faults = append(a.faults, fmt.Errorf("action %q: is there twice", action))
		return
	}
	if fn == nil {
		a.faults = append(a.faults, fmt.Errorf("action %q: has no function", action))
		return
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

// Validate reports everything that was wrong with the calls of [On].
func (a *Actions) Validate() error { return errors.Join(a.faults...) }

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

// An ArgsError reports a payload that does not fit the arguments of its action. It never quotes the payload's values.
type ArgsError struct {
	Target string // empty for events
	Action string
	Path   string // the JSON field, dotted; empty for the payload as a whole
	Reason string
}

func (e *ArgsError) Error() string {
	where := e.Action
	if e.Target != "" {
		where = e.Target + "/" + e.Action
	}
	if e.Path == "" {
		return fmt.Sprintf("args of %s: %s", where, e.Reason)
	}
	return fmt.Sprintf("args of %s: field %q: %s", where, schema.OneLine(e.Path), e.Reason)
}

func decodeArgs(payload []byte, args any) *ArgsError {
	if len(bytes.TrimSpace(payload)) == 0 {
		payload = []byte("{}")
	}
	dec := json.NewDecoder(bytes.NewReader(payload))
	dec.DisallowUnknownFields()
	if err := dec.Decode(args); err != nil {
		return argsError(err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return &ArgsError{Reason: fmt.Sprintf("there is more after the JSON value, from byte %d", dec.InputOffset())}
	}
	return nil
}

func argsError(err error) *ArgsError {
	var wrongType *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &wrongType):
		found, _, _ := strings.Cut(wrongType.Value, " ") // a number's digits follow
		return &ArgsError{Path: wrongType.Field, Reason: fmt.Sprintf("want %v, found %s", wrongType.Type, found)}
	case errors.As(err, &syntax):
		return &ArgsError{Reason: fmt.Sprintf("not JSON at byte %d", syntax.Offset)}
	case errors.Is(err, io.ErrUnexpectedEOF):
		return &ArgsError{Reason: "the JSON value is cut off"}
	}
	if name, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		return &ArgsError{Path: strings.Trim(name, `"`), Reason: "is not known"}
	}
	return &ArgsError{Reason: schema.OneLine(err.Error())} // from the type's own UnmarshalJSON
}
