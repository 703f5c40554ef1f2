package saga

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/schema"
)

// Actions of a saga's target.
const (
	actionStart   = "start"
	actionReport  = "report"  // of a job that was asked
	actionTimeout = "timeout" // published when a step begins to wait
	actionSignal  = "signal"
	actionResume  = "resume" // dies at once; its replay goes on with a saga that is stuck
)

type startArgs struct {
	ID    string          `json:"id"`
	State json.RawMessage `json:"state"`
}

type timeoutArgs struct {
	ID   string `json:"id"`
	Wait int    `json:"wait"`
}

type signalArgs struct {
	ID   string          `json:"id"`
	Name string          `json:"name"`
	Args json.RawMessage `json:"args"`
}

type resumeArgs struct {
	ID     string `json:"id"`
	Event  int    `json:"event"` // that made it stuck
	Reason string `json:"reason"`
	// Report is what OnUndone could not take.
	Report *schema.Outcome `json:"report,omitempty"`
}

// Kinds of ledger events.
const (
	kindStarted  = "started"
	kindDone     = "done"      // the step is over
	kindWaiting  = "waiting"   // the step waits
	kindReported = "reported"  // a report has come in, the step goes on waiting
	kindSignal   = "signal"    // a signal has come in, the step goes on waiting
	kindTimedOut = "timed_out" // the step has waited too long and goes on waiting
	kindFailed   = "failed"    // the saga has failed in this step
	kindUndoing  = "undoing"   // the step's Undo waits
	kindUndone   = "undone"    // the step is taken back
	kindStuck    = "stuck"     // it could not be taken back
	kindIgnored  = "ignored"   // a report or a signal came too late
)

// stored is how a saga is kept in the record's state.
type stored struct {
	Data  json.RawMessage `json:"data"`            // the state T
	Done  []string        `json:"done,omitempty"`  // the steps that are over, in order
	Undo  []string        `json:"undo,omitempty"`  // the steps that are still to be taken back, next first
	Wait  *waiting        `json:"wait,omitempty"`  // of the step of the record
	Early []signalArgs    `json:"early,omitempty"` // signals that no step has awaited yet
	Why   string          `json:"why,omitempty"`   // it failed
	Stuck int             `json:"stuck,omitempty"` // the event that made it stuck
}

// waiting is what the step is waiting for.
type waiting struct {
	N      int      `json:"n"`                // the event from which on its time counts
	Calls  []call   `json:"calls,omitempty"`  // that are open
	Signal string   `json:"signal,omitempty"` // name of the signal that is awaited
	Timer  bool     `json:"timer,omitempty"`  // it waits for its time alone, or for that too
	Effect bool     `json:"effect,omitempty"` // something of the step has happened, or will
	Failed []string `json:"failed,omitempty"` // refs of an Undo's calls that were given up; open until a replay succeeds
}

func (w *waiting) open() bool { return len(w.Calls) > 0 || w.Signal != "" || w.Timer }

// A call is a job that is to report back.
type call struct {
	Ref string `json:"ref"`
	Job string `json:"job"` // target.action
	ID  string `json:"id"`  // of its message
}

// has reports whether a call is open.
func (w *waiting) has(ref string) bool {
	return w != nil && slices.ContainsFunc(w.Calls, func(c call) bool { return c.Ref == ref })
}

// close takes a call off.
func (w *waiting) close(ref string) {
	w.Calls = slices.DeleteFunc(slices.Clone(w.Calls), func(c call) bool { return c.Ref == ref })
	w.Failed = without(w.Failed, ref)
}

// maybeDone reports whether the step may have had an effect.
func (w *waiting) maybeDone() bool { return w != nil && (w.Effect || len(w.Calls) > 0) }

// callRef names the i-th intent of a saga's n-th event.
func callRef(id string, n, i int) string { return fmt.Sprintf("%s/%d.%d", id, n, i) }

// sagaOf returns the saga that a ref belongs to.
func sagaOf(ref string) (id string, err error) {
	i := strings.LastIndexByte(ref, '/')
	if i <= 0 {
		return "", handlers.Permanent(fmt.Errorf("the report's ref %q names no saga", schema.OneLine(ref)))
	}
	return ref[:i], nil
}

// told is an intent as the ledger shows it.
type told struct {
	MessageID string `json:"id"`
	Target    string `json:"target"`
	Key       string `json:"idempotency_key"`
	Payload   struct {
		Action string          `json:"action"`
		Args   json.RawMessage `json:"args"`
	} `json:"payload"`
	Delay string `json:"delay,omitempty"`
	Call  bool   `json:"call,omitempty"`
}

// envelopes turns a step's intents into jobs and into what the ledger says of them.
func (t *turn[T]) envelopes(step string, intents []Intent) (envs []schema.Envelope, ledger []told, calls []call) {
	for i, in := range intents {
		key, order := in.Key, in.OrderingKey
		if key == "" {
			key = NewKey(step)
		}
		if order == "" {
			order = t.rec.ID
		}
		var args any = json.RawMessage("{}")
		if in.Args != nil {
			args = in.Args
		}
		opts := []schema.Option{schema.WithKey(key), schema.WithOrderingKey(order), schema.WithDelay(in.Delay)}
		ref := callRef(t.rec.ID, t.rec.Version+1, i)
		if in.Call {
			opts = append(opts, schema.WithReplyTo(t.def.name, actionReport, ref))
		}
		env := schema.NewJob(in.Target, in.Action, args, opts...)
		if in.Call {
			calls = append(calls, call{Ref: ref, Job: env.Target + "." + env.Name, ID: env.ID})
		}
		line := told{MessageID: env.ID, Target: env.Target, Key: key, Call: in.Call}
		line.Payload.Action = env.Name
		if line.Payload.Args = env.Payload; !json.Valid(env.Payload) {
			line.Payload.Args = json.RawMessage(strconv.Quote(fmt.Sprintf("%d bytes", len(env.Payload))))
		}
		if in.Delay > 0 {
			line.Delay = in.Delay.String()
		}
		envs, ledger = append(envs, env), append(ledger, line)
	}
	return envs, ledger, calls
}
