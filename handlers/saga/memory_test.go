package saga

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/schema"
)

// memory is one transaction on sagas in memory, for tests that look at the coordinator alone.
type memory struct {
	schema.Unit
	sagas  map[string]schema.SagaRecord
	events []schema.SagaEvent
	jobs   []schema.Envelope
}

func (m *memory) LoadSaga(_ context.Context, _, id string) (schema.SagaRecord, bool, error) {
	rec, found := m.sagas[id]
	return rec, found, nil
}

func (m *memory) SaveSaga(_ context.Context, rec schema.SagaRecord, ev schema.SagaEvent) error {
	if m.sagas[rec.ID].Version != rec.Version-1 || ev.N != rec.Version {
		return schema.WithKind(schema.Permanent, fmt.Errorf("version %d and event %d after %d", rec.Version, ev.N, m.sagas[rec.ID].Version))
	}
	m.sagas[rec.ID] = rec
	m.events = append(m.events, ev)
	return nil
}

func (m *memory) Append(_ context.Context, envs []schema.Envelope) ([]schema.Receipt, error) {
	for _, e := range envs {
		if err := e.Validate(0); err != nil {
			return nil, err
		}
	}
	m.jobs = append(m.jobs, envs...)
	return make([]schema.Receipt, len(envs)), nil
}

func (m *memory) Try(_ context.Context, f func() error) error {
	before := m.copy()
	err := f()
	if err != nil {
		*m = *before
	}
	return err
}

func (m *memory) copy() *memory {
	return &memory{sagas: maps.Clone(m.sagas), events: slices.Clone(m.events), jobs: slices.Clone(m.jobs)}
}

// kinds lists what the ledger says, as "step kind".
func (m *memory) kinds() []string {
	var all []string
	for _, ev := range m.events {
		all = append(all, ev.Step+" "+ev.Kind)
	}
	return all
}

func (m *memory) rationale() string { return m.events[len(m.events)-1].Rationale }

// bench runs messages of one definition by hand.
type bench struct {
	testing.TB
	*memory
	def *Definition[order]
}

type order struct {
	Name string   `json:"name"`
	Log  []string `json:"log,omitempty"`
}

func (o order) with(line string) order {
	o.Log = append(slices.Clone(o.Log), line)
	return o
}

func newBench(t testing.TB, parts ...Part[order]) *bench {
	t.Helper()
	b := &bench{TB: t, memory: &memory{sagas: map[string]schema.SagaRecord{}}, def: New("order", parts...)}
	if err := b.def.Target(handlers.Policy{}).Validate(); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *bench) start() {
	b.Helper()
	b.must(b.def.Start("o-1", order{Name: "x"}))
}

func (b *bench) must(env schema.Envelope) {
	b.Helper()
	if err := b.run(env, handlers.Call{}); err != nil {
		b.Fatal(err)
	}
}

// run gives the saga a message; what it did stays only when it succeeds.
func (b *bench) run(env schema.Envelope, call handlers.Call) error {
	b.Helper()
	if err := env.Validate(0); err != nil {
		return err
	}
	before := b.copy()
	call.Unit = b.memory
	if call.Attempt == 0 {
		call.Attempt, call.MaxAttempts = 1, 3
	}
	err := b.def.Target(handlers.Policy{}).Handler.Handle(handlers.WithCall(context.Background(), call), env)
	if err != nil {
		*b.memory = *before
	}
	return err
}

// take removes the oldest job of an action.
func (b *bench) take(action string) schema.Envelope {
	b.Helper()
	i := slices.IndexFunc(b.jobs, func(e schema.Envelope) bool { return e.Name == action })
	if i < 0 {
		b.Fatalf("there is no job %s; the ledger says %q", action, b.kinds())
	}
	env := b.jobs[i]
	b.jobs = slices.Delete(slices.Clone(b.jobs), i, i+1)
	return env
}

// report is what comes back of a job.
func report(env schema.Envelope, ok bool) schema.Envelope {
	out := schema.Outcome{Ref: env.ReplyTo.Ref, ID: env.ID, Key: env.Key, Target: env.Target, Action: env.Name, OK: ok}
	if ok {
		out.Result = json.RawMessage(`{"answer":7}`)
	} else {
		out.Cause, out.Reason = schema.CauseExhausted, "no"
	}
	return schema.NewJob(env.ReplyTo.Target, env.ReplyTo.Action, out)
}

func (b *bench) want(status schema.SagaStatus, kinds ...string) {
	b.Helper()
	if got := b.sagas["o-1"].Status; got != status {
		b.Errorf("the saga is %s, want %s", got, status)
	}
	if got := b.kinds(); !slices.Equal(got, kinds) {
		b.Errorf("the ledger says\n%q, want\n%q", got, kinds)
	}
}

func (b *bench) state() (o order) {
	b.Helper()
	if err := json.Unmarshal(b.events[len(b.events)-1].State, &o); err != nil {
		b.Fatal(err)
	}
	return o
}

var (
	work = func(action string) schema.JobType[map[string]int] {
		return schema.JobType[map[string]int]{Target: "work", Action: action}
	}
	errNot = errors.New("not now")
)

// asks returns a step function that asks for an action.
func asks(action string) func(*Context, order) (Result[order], error) {
	return func(_ *Context, o order) (Result[order], error) {
		return Next(o.with(action), "ask for "+action, Ask(work(action), nil)), nil
	}
}

// tells returns a step function that tells.
func tells(action string) func(*Context, order) (Result[order], error) {
	return func(_ *Context, o order) (Result[order], error) {
		return Next(o.with(action), "tell "+action, Tell(work(action), nil)), nil
	}
}

// fails returns a step function that fails.
func fails(err error) func(*Context, order) (Result[order], error) {
	return func(*Context, order) (Result[order], error) { return Result[order]{}, err }
}
