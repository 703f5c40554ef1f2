package schema

import (
	"errors"
	"fmt"
	"time"
)

// A JobType is what those who publish a job and the handler that does it agree on: the name, the type of its arguments
// and how it is to be treated. Declare it once, as a package variable that both import.
type JobType[T any] struct {
	Target  string
	Action  string
	Retry   RetryPolicy   // zero: the target's
	Timeout time.Duration // of one attempt; zero: the target's
	Needs   Durability    // the weakest path it may take; zero: any
}

// New returns a job of this type, as [NewJob] does.
func (t JobType[T]) New(args T, opts ...Option) Envelope {
	return NewJob(t.Target, t.Action, args, opts...)
}

// Spec returns what is known of the type besides its arguments.
func (t JobType[T]) Spec() JobSpec {
	return JobSpec(t)
}

// A JobSpec is a [JobType] without the type of its arguments.
type JobSpec struct {
	Target  string
	Action  string
	Retry   RetryPolicy
	Timeout time.Duration
	Needs   Durability
}

// Validate reports everything that is wrong with the spec.
func (s JobSpec) Validate() error {
	var v validator
	v.target("target", s.Target)
	v.name("action", s.Action)
	errs := []error{v.err("")}
	if err := s.Retry.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("retry: %w", err))
	}
	if s.Timeout < 0 {
		errs = append(errs, fmt.Errorf("timeout is %v, must not be negative", s.Timeout))
	}
	if !s.Needs.known() {
		errs = append(errs, fmt.Errorf("needs is %v, which is no durability", s.Needs))
	}
	if err := errors.Join(errs...); err != nil {
		return WithKind(Permanent, fmt.Errorf("job type %s.%s: %w", OneLine(s.Target), OneLine(s.Action), err))
	}
	return nil
}

// An EventType is what those who publish an event and its subscribers agree on.
type EventType[T any] struct {
	Name       string
	Visibility Visibility // zero: [Internal]
}

// New returns an event of this type, as [NewEvent] does.
func (t EventType[T]) New(args T, opts ...Option) Envelope {
	if t.Visibility != "" {
		opts = append([]Option{func(e *Envelope) { e.Visibility = t.Visibility }}, opts...)
	}
	return NewEvent(t.Name, args, opts...)
}
