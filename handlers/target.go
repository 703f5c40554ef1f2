package handlers

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/millbridge/millbridge/schema"
)

// A Target is an external system that jobs are for. Its name is part of the subjects of its jobs and names its durable
// consumer, so renaming it is a migration.
type Target struct {
	Name    string
	Handler Handler
	Policy  Policy
}

// Validate reports everything that is wrong with the target, among it job types of another target.
func (t Target) Validate() error {
	var errs []error
	if typed, ok := t.Handler.(interface{ Specs() []schema.JobSpec }); ok {
		for _, spec := range typed.Specs() {
			if spec.Target != t.Name {
				errs = append(errs, fmt.Errorf("action %q: its job type is for target %q", spec.Action, spec.Target))
			}
		}
	}
	if typed, ok := t.Handler.(interface{ eventNames() []string }); ok {
		for _, name := range typed.eventNames() {
			errs = append(errs, fmt.Errorf("event %q: a target has jobs; events are for subscriptions", name))
		}
	}
	return errors.Join(validate("target", t.Name, t.Handler, t.Policy), wrap("target", t.Name, errs))
}

// Start says where a subscription that is new begins.
type Start uint8

const (
	FromNew Start = iota // with the events published after it
	FromAll              // with the oldest event that is still kept
)

var startNames = [...]string{"new", "all"}

// String returns the start's name in configurations.
func (s Start) String() string { return nameOf(startNames[:], s) }

// MarshalText returns the start's name.
func (s Start) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads the start's name; empty means [FromNew].
func (s *Start) UnmarshalText(text []byte) error { return parseName("from", startNames[:], text, s) }

// A Subscription is a named receiver of events. Each subscription gets each matching event once. Targets and
// subscriptions share one space of names. An event lives in its stream for a time only, 7 days unless configured: one that
// waits for its next attempt for longer is lost.
type Subscription struct {
	Name    string
	Events  []string // event names; "*" stands for one token and a final ">" for the rest
	Handler Handler
	Policy  Policy
	From    Start // matters only when the subscription starts for the first time
}

// Validate reports everything that is wrong with the subscription, among it functions that no event would reach.
func (s Subscription) Validate() error {
	var errs []error
	if len(s.Events) == 0 {
		errs = append(errs, errors.New("events: there are none"))
	}
	for i, e := range s.Events {
		if !isFilter(e) {
			errs = append(errs, fmt.Errorf("event %q: want an event name, with \"*\" for a token or a final \">\"", schema.OneLine(e)))
			continue
		}
		for _, other := range s.Events[:i] {
			if isFilter(other) && overlap(e, other) {
				errs = append(errs, fmt.Errorf("events %q and %q overlap", other, e))
			}
		}
	}
	if typed, ok := s.Handler.(interface{ Specs() []schema.JobSpec }); ok {
		for _, spec := range typed.Specs() {
			errs = append(errs, fmt.Errorf("job type %s.%s: a subscription has events; jobs are for targets", spec.Target, spec.Action))
		}
	}
	if typed, ok := s.Handler.(interface{ eventNames() []string }); ok {
		for _, name := range typed.eventNames() {
			if !slices.ContainsFunc(s.Events, func(filter string) bool { return isFilter(filter) && overlap(filter, name) }) {
				errs = append(errs, fmt.Errorf("event %q: has a function, but the subscription does not receive it", name))
			}
		}
	}
	if int(s.From) >= len(startNames) {
		errs = append(errs, fmt.Errorf("from is %v, must be new or all", s.From))
	}
	return errors.Join(validate("subscription", s.Name, s.Handler, s.Policy), wrap("subscription", s.Name, errs))
}

// Takes reports whether the subscription gets events of this name.
func (s Subscription) Takes(event string) bool {
	return slices.ContainsFunc(s.Events, func(filter string) bool { return overlap(filter, event) })
}

func validate(what, name string, h Handler, p Policy) error {
	var errs []error
	if err := schema.CheckTarget(name); err != nil {
		errs = append(errs, fmt.Errorf("name: %w", err))
	} else if strings.HasPrefix(name, "mb-") {
		errs = append(errs, errors.New("name: names that start with mb- are ours"))
	}
	if h == nil {
		errs = append(errs, errors.New("handler: there is none"))
	}
	if v, ok := h.(interface{ Validate() error }); ok {
		if err := v.Validate(); err != nil {
			errs = append(errs, err)
		}
	}
	if err := p.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("policy: %w", err))
	}
	return wrap(what, name, errs)
}

func wrap(what, name string, errs []error) error {
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("%s %q: %w", what, schema.OneLine(name), errors.Join(errs...))
}

// isFilter reports whether s is an event name in which "*" may stand for a token and ">" for the end.
func isFilter(s string) bool {
	tokens := strings.Split(s, ".")
	for i, token := range tokens {
		switch {
		case token == "*":
		case token == ">" && i == len(tokens)-1:
		case schema.CheckName(token) != nil:
			return false
		}
	}
	return len(s) <= schema.MaxName
}

// overlap reports whether one event name can match both filters.
func overlap(a, b string) bool {
	as, bs := strings.Split(a, "."), strings.Split(b, ".")
	for i := range min(len(as), len(bs)) {
		if as[i] == ">" || bs[i] == ">" {
			return true
		}
		if as[i] != bs[i] && as[i] != "*" && bs[i] != "*" {
			return false
		}
	}
	return len(as) == len(bs)
}
