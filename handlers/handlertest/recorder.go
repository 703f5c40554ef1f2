package handlertest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/millbridge/millbridge/schema"
)

// A Call is one call of the other system. Args are compared as the JSON that they become.
type Call struct {
	Action string
	Key    string
	Args   any
}

// String returns the call on one line: action, key and args as JSON.
func (c Call) String() string {
	return fmt.Sprintf("%s key=%q %s", c.Action, c.Key, canonical(c.Args))
}

// canonical returns v as JSON with sorted keys, so that a struct and the map that was decoded from it are the same.
func canonical(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprintf("%+v", v)
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var plain any
	if err := dec.Decode(&plain); err != nil {
		return string(data)
	}
	if data, err = json.Marshal(plain); err != nil {
		return fmt.Sprintf("%+v", v)
	}
	return string(data)
}

// A Recorder stands in for the other system in tests: the methods of a fake client call [Recorder.Call]. Its zero value
// records and never fails. It is safe for concurrent use.
type Recorder struct {
	// ByKey makes the recorder honour idempotency keys, as a good remote system does: a call with an action and key that
	// it has taken before has no second effect.
	ByKey bool

	mu      sync.Mutex
	calls   []Call
	effects []Call
	taken   map[[2]string]bool
	scripts map[string][]script // by action
}

// script is what becomes of one call.
type script struct {
	err   error
	taken bool // the call has its effect all the same: only the answer is lost
	stays bool // for all further calls, too
}

// Call records a call and answers it: with nil unless a failure was scripted, or with the context's error if it has
// ended.
func (r *Recorder) Call(ctx context.Context, action, key string, args any) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s: %w", action, context.Cause(ctx))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	c := Call{action, key, args}
	r.calls = append(r.calls, c)
	var now script
	if waiting := r.scripts[action]; len(waiting) > 0 {
		now = waiting[0]
		if !now.stays {
			r.scripts[action] = waiting[1:]
		}
	}
	if now.err == nil || now.taken {
		r.take(c)
	}
	return now.err
}

func (r *Recorder) take(c Call) {
	id := [2]string{c.Action, c.Key}
	if r.ByKey && r.taken[id] {
		return
	}
	if r.taken == nil {
		r.taken = make(map[[2]string]bool)
	}
	r.taken[id] = true
	r.effects = append(r.effects, c)
}

// Handle records env as a call: its name, its idempotency key and its payload. With it a Recorder is a handler.
func (r *Recorder) Handle(ctx context.Context, env schema.Envelope) error {
	var args any
	if err := json.Unmarshal(env.Payload, &args); err != nil {
		args = string(env.Payload)
	}
	if len(env.Payload) == 0 {
		args = nil
	}
	return r.Call(ctx, env.Name, env.IdempotencyKey(), args)
}

// Fail makes the next n calls of action fail with err, without an effect. Scripted failures queue up: what was asked for
// first comes first.
func (r *Recorder) Fail(action string, n int, err error) { r.script(action, n, script{err: err}) }

// FailAlways makes all further calls of action fail with err, without an effect.
func (r *Recorder) FailAlways(action string, err error) {
	r.script(action, 1, script{err: err, stays: true})
}

// LoseAnswer makes the next n calls of action take effect and fail with err all the same, as when the connection breaks
// before the answer.
func (r *Recorder) LoseAnswer(action string, n int, err error) {
	r.script(action, n, script{err: err, taken: true})
}

func (r *Recorder) script(action string, n int, s script) {
	if s.err == nil {
		s.err = errors.New("scripted failure")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.scripts == nil {
		r.scripts = make(map[string][]script)
	}
	for range n {
		r.scripts[action] = append(r.scripts[action], s)
	}
}

// Calls returns all calls so far, those that failed included.
func (r *Recorder) Calls() []Call {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Call(nil), r.calls...)
}

// Effects returns the calls that had an effect: what the other system looks like now.
func (r *Recorder) Effects() []Call {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Call(nil), r.effects...)
}

// Reset forgets all calls and scripts.
func (r *Recorder) Reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls, r.effects, r.taken, r.scripts = nil, nil, nil, nil
}

// Want fails the test unless exactly these calls were made, failed ones included, in this order.
func (r *Recorder) Want(t testing.TB, want ...Call) {
	t.Helper()
	if diff := diffLines(lines(want), lines(r.Calls())); diff != "" {
		t.Errorf("other calls than wanted (- missing, + not wanted):\n%s", diff)
	}
}

// WantEffects fails the test unless exactly these calls had an effect, in this order.
func (r *Recorder) WantEffects(t testing.TB, want ...Call) {
	t.Helper()
	if diff := diffLines(lines(want), lines(r.Effects())); diff != "" {
		t.Errorf("other effects than wanted (- missing, + not wanted):\n%s", diff)
	}
}

func lines(calls []Call) []string {
	out := make([]string, len(calls))
	for i, c := range calls {
		out[i] = c.String()
	}
	return out
}

// diffLines returns both lists as one, with a mark before what only one of them has; empty if they are equal.
func diffLines(want, got []string) string {
	// common[i][j] is the length of the longest common subsequence of want[i:] and got[j:].
	common := make([][]int, len(want)+1)
	for i := range common {
		common[i] = make([]int, len(got)+1)
	}
	for i := len(want) - 1; i >= 0; i-- {
		for j := len(got) - 1; j >= 0; j-- {
			if want[i] == got[j] {
				common[i][j] = common[i+1][j+1] + 1
			} else {
				common[i][j] = max(common[i+1][j], common[i][j+1])
			}
		}
	}
	var b strings.Builder
	differ := false
	for i, j := 0, 0; i < len(want) || j < len(got); {
		switch {
		case i < len(want) && j < len(got) && want[i] == got[j]:
			fmt.Fprintf(&b, "    %s\n", want[i])
			i, j = i+1, j+1
		case j == len(got) || i < len(want) && common[i+1][j] >= common[i][j+1]:
			fmt.Fprintf(&b, "  - %s\n", want[i])
			differ, i = true, i+1
		default:
			fmt.Fprintf(&b, "  + %s\n", got[j])
			differ, j = true, j+1
		}
	}
	if !differ {
		return ""
	}
	return b.String()
}
