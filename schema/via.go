package schema

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// MaxVia is how many bridges a message may pass.
const MaxVia = 16

// ErrLoop reports a message that has come back to a bridge that it has passed, or has passed too many.
var ErrLoop = errors.New("loop")

// First returns e as it was when it was published first: a replay becomes the message that died, any other is returned as
// it is. It is what goes to other systems, to which a replay is one more attempt.
func (e Envelope) First() Envelope {
	if e.Replay != nil {
		e.ID, e.Replay = e.Replay.Of, nil
	}
	return e
}

// PassOn returns e as the bridge called origin passes it on to another: with origin at the end of its [Envelope.Via].
// Nobody is asked for a report: the one who asked gets it from the bridge that has passed the message on. The error of a
// message that has passed origin before, or [MaxVia] bridges, wraps [ErrLoop] and is [Permanent].
func (e Envelope) PassOn(origin string) (Envelope, error) {
	switch {
	case e.HasPassed(origin):
		return e, WithKind(Permanent, fmt.Errorf("%w: the message has passed %s before (%s)", ErrLoop, origin, strings.Join(e.Via, " ")))
	case len(e.Via) >= MaxVia:
		return e, WithKind(Permanent, fmt.Errorf("%w: the message has passed %d bridges (%s)", ErrLoop, len(e.Via), strings.Join(e.Via, " ")))
	}
	e = e.First()
	e.Via = append(e.Via[:len(e.Via):len(e.Via)], origin)
	e.ReplyTo = nil
	return e, nil
}

// HasPassed reports whether the message came by way of the bridge called origin.
func (e Envelope) HasPassed(origin string) bool { return slices.Contains(e.Via, origin) }

func (v *validator) via(names []string) {
	if len(names) > MaxVia {
		v.faults = append(v.faults, Fault{Field: "via", Reason: "too many bridges", Length: len(names), Limit: MaxVia})
	}
	for _, name := range names {
		v.target("via", name)
	}
}

// decodeVia reads the bridges passed. A list that cannot be read is an error: without it nobody notices a loop.
func (e *Envelope) decodeVia(ours reserved) error {
	text := ours.get(HeaderVia)
	if text == "" {
		return nil
	}
	e.Via = strings.Split(text, " ")
	var v validator
	v.via(e.Via)
	if len(v.faults) > 0 {
		return fmt.Errorf("header %s: %s", HeaderVia, v.faults[0])
	}
	return nil
}
