package saga

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/schema"
)

// fate is how a function of a step goes.
type fate int

const (
	succeeds fate = iota
	refuses       // fails at each attempt, until the world is repaired
	stumbles      // fails at its first attempt
	falls         // panics at its first attempt
)

// plan is a step of a saga in the model.
type plan struct {
	do, undo               fate
	asks, undoAsks, awaits bool
	timeout, hasUndo       bool
}

func drawPlan(t *rapid.T) plan {
	b := func(name string) bool { return rapid.Bool().Draw(t, name) }
	f := func(name string) fate {
		return rapid.SampledFrom([]fate{succeeds, succeeds, succeeds, succeeds, refuses, stumbles, falls}).Draw(t, name)
	}
	return plan{do: f("do"), undo: f("undo"), asks: b("asks"), undoAsks: b("undoAsks"), awaits: b("awaits"), timeout: b("timeout"), hasUndo: b("hasUndo")}
}

// model delivers the messages of one saga in any order, more than once and with crashes in between.
type model struct {
	*bench
	plans    []plan
	attempts map[string]int // of each function, by job
	repaired bool
	failures map[string]int    // attempts of a message that failed, by id
	letters  []schema.Envelope // messages that were given up
	handled  []schema.Envelope
	done     map[string]int // effects at the other side, by action
	all      map[string]int // jobs that were ever published, by action
	order    []string       // of the Undo jobs that were published
}

func (m *model) function(name string, f fate, ask bool) func(*Context, order) (Result[order], error) {
	return func(_ *Context, o order) (Result[order], error) {
		m.attempts[name]++
		switch first := m.attempts[name] == 1; {
		case f == refuses && !m.repaired, f == stumbles && first:
			return Result[order]{}, errNot
		case f == falls && first:
			panic(name)
		}
		if ask {
			return Next(o.with(name), name, Ask(work(name), nil)), nil
		}
		return Next(o.with(name), name, Tell(work(name), nil)), nil
	}
}

func newModel(t *rapid.T, tb testing.TB) *model {
	m := &model{attempts: map[string]int{}, failures: map[string]int{}, done: map[string]int{}, all: map[string]int{}}
	var parts []Part[order]
	for i := range rapid.IntRange(1, 4).Draw(t, "steps") {
		p := drawPlan(t)
		m.plans = append(m.plans, p)
		name := fmt.Sprintf("s%d", i)
		s := Step[order]{Name: name, Do: m.function("do-"+name, p.do, p.asks)}
		if p.hasUndo {
			s.Undo = m.function("undo-"+name, p.undo, p.undoAsks)
		}
		if p.awaits {
			s.Await = "go-" + name
			parts = append(parts, OnSignal(s.Await, noted))
		}
		if p.timeout {
			s.Timeout = time.Hour
		}
		parts = append(parts, s)
	}
	m.bench = newBench(tb, parts...)
	m.jobs = append(m.jobs, m.def.Start("o-1", order{Name: "x"}))
	for _, s := range m.def.steps {
		if s.Await != "" {
			m.jobs = append(m.jobs, m.def.Signal("o-1", s.Await, note{"x"}))
		}
	}
	return m
}

// deliver gives a message to the saga or to the system it asks.
func (m *model) deliver(t *rapid.T, i int, crash bool) {
	env := m.jobs[i]
	published := len(m.jobs)
	before := m.copy()
	if env.Target == "work" {
		m.serve(t, env, crash)
		return
	}
	attempt := m.failures[env.ID] + 1
	err := func() (err error) {
		defer func() {
			if v := recover(); v != nil {
				*m.memory = *before
				err = fmt.Errorf("panic: %v", v)
			}
		}()
		replay := 0
		if m.repaired {
			replay = 1
		}
		return m.run(env, handlers.Call{Attempt: attempt, MaxAttempts: 3, Replay: replay})
	}()
	switch {
	case crash:
		*m.memory = *before
		return
	case err == nil:
		for _, e := range m.jobs[published:] {
			m.note(e)
		}
		m.handled = append(m.handled, env)
		m.remove(env.ID)
	case errors.Is(err, errNoSaga): // its start is still on its way
	case schema.KindOf(err) == schema.Permanent || attempt >= 3:
		m.letters = append(m.letters, env)
		m.remove(env.ID)
	default:
		m.failures[env.ID] = attempt
	}
}

func (m *model) note(e schema.Envelope) {
	if e.Target != "work" {
		return
	}
	m.all[e.Name]++
	if e.Name[0] == 'u' {
		m.order = append(m.order, e.Name)
	}
}

// serve is the system that the saga asks: it does what it is told, or gives up.
func (m *model) serve(t *rapid.T, env schema.Envelope, crash bool) {
	if crash {
		return
	}
	m.remove(env.ID)
	ok := m.repaired || rapid.IntRange(0, 4).Draw(t, "ok") > 0
	if ok {
		m.done[env.Name]++
	} else {
		m.letters = append(m.letters, env)
	}
	if env.ReplyTo != nil {
		m.jobs = append(m.jobs, report(env, ok))
	}
}

func (m *model) remove(id string) {
	m.jobs = slices.DeleteFunc(slices.Clone(m.jobs), func(e schema.Envelope) bool { return e.ID == id })
}

// step does one thing that may happen.
func (m *model) step(t *rapid.T) {
	if len(m.handled) > 0 && rapid.IntRange(0, 5).Draw(t, "again") == 0 {
		env := rapid.SampledFrom(m.handled).Draw(t, "handled")
		if env.Name != actionStart && env.Name != actionSignal { // the inbox alone keeps a second one out
			jobs, version := len(m.jobs), m.sagas["o-1"].Version
			if err := m.run(env, handlers.Call{}); err != nil || len(m.jobs) != jobs {
				t.Fatalf("%s once more: %v, %d jobs more", env.Name, err, len(m.jobs)-jobs)
			}
			if more := m.events[version:]; slices.ContainsFunc(more, func(ev schema.SagaEvent) bool { return ev.Kind != kindIgnored && ev.Kind != kindStuck }) {
				t.Fatalf("%s once more: the ledger says %q", env.Name, m.kinds())
			}
		}
	}
	if len(m.jobs) > 0 {
		i := rapid.IntRange(0, len(m.jobs)-1).Draw(t, "message")
		m.deliver(t, i, rapid.IntRange(0, 4).Draw(t, "crash") == 0)
	}
}

func (m *model) check(t *rapid.T) {
	for action, n := range m.all {
		if n > 1 {
			t.Fatalf("%s was asked for %d times; the ledger says %q", action, n, m.kinds())
		}
	}
	for i := 1; i < len(m.order); i++ {
		if m.order[i] >= m.order[i-1] {
			t.Fatalf("taken back in the order %q", m.order)
		}
	}
	for i, ev := range m.events {
		if ev.N != i+1 {
			t.Fatalf("event %d is number %d", i, ev.N)
		}
	}
	rec := m.sagas["o-1"]
	if rec.Status == schema.SagaDone && len(m.order) > 0 || rec.Status == schema.SagaRunning {
		t.Fatalf("the saga is %s; the ledger says %q", rec.Status, m.kinds())
	}
}

// ended checks a saga for which nothing is on its way.
func (m *model) ended(t *rapid.T) {
	rec := m.sagas["o-1"]
	var kept stored
	if err := json.Unmarshal(rec.State, &kept); err != nil {
		t.Fatal(err)
	}
	switch rec.Status {
	case schema.SagaDone:
		for _, s := range m.def.steps {
			if m.all["do-"+s.Name] != 1 || !slices.Contains(kept.Done, s.Name) {
				t.Fatalf("step %s is missing; the ledger says %q", s.Name, m.kinds())
			}
		}
	case schema.SagaCompensated:
		for i, name := range kept.Done {
			want := 0
			if m.plans[i].hasUndo {
				want = 1
			}
			if m.all["undo-"+name] != want {
				t.Fatalf("step %s was taken back %d times; the ledger says %q", name, m.all["undo-"+name], m.kinds())
			}
		}
	default:
		t.Fatalf("the saga is %s for ever; the ledger says %q", rec.Status, m.kinds())
	}
}

func TestModel_each_step_once_and_back_in_reverse_order(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		m := newModel(rt, t)
		for range rapid.IntRange(0, 40).Draw(rt, "length") {
			m.step(rt)
			m.check(rt)
		}
		for round := 0; len(m.jobs) > 0; round++ {
			m.deliver(rt, 0, false)
			m.check(rt)
			if first := m.jobs; len(first) > 1 { // what waits for another must not keep it from coming
				m.jobs = append(slices.Clone(first[1:]), first[0])
			}
			if round > 1000 {
				rt.Fatalf("it does not end: %d messages, the ledger says %q", len(m.jobs), m.kinds())
			}
		}
		if s := m.sagas["o-1"]; s.Status == schema.SagaStuck || s.Version == 0 {
			if len(m.letters) == 0 {
				rt.Fatalf("the saga is %s, and nobody knows; the ledger says %q", s.Status, m.kinds())
			}
		}
		// A person repairs everything and replays what was given up.
		m.repaired = true
		clear(m.failures)
		m.jobs, m.letters = append(m.jobs, m.letters...), nil
		for len(m.jobs) > 0 {
			m.deliver(rt, 0, false)
			m.check(rt)
		}
		m.ended(rt)
	})
}
