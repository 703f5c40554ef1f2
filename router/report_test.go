package router_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/router"
	"github.com/millbridge/millbridge/schema"
)

// reports is a target that collects reports.
type reports struct{ calls }

func (b *bench) collectReports(bridge *router.Bridge) *reports {
	b.Helper()
	var got reports
	b.target(bridge, "collector", quick(3), func(_ context.Context, env schema.Envelope) error { got.add(env); return nil })
	return &got
}

func (r *reports) outcomes(t *testing.T) map[string]schema.Outcome {
	t.Helper()
	all := map[string]schema.Outcome{}
	for _, env := range r.all() {
		var o schema.Outcome
		if err := json.Unmarshal(env.Payload, &o); err != nil {
			t.Errorf("report %s: %v", env.Payload, err)
		}
		name := fmt.Sprintf("%s/%d", o.ID, o.Replay)
		if _, twice := all[name]; twice {
			t.Errorf("%s was reported twice", name)
		}
		all[name] = o
	}
	return all
}

// Whoever asked is told how the job has ended, whatever the end and the mode, and again after a replay; who did not ask
// is not.
func TestReport_of_each_end(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		bridge := b.open()
		got := b.collectReports(bridge)
		var healed atomic.Bool
		ends := map[string]func(ctx context.Context) error{
			"fine":      func(ctx context.Context) error { return handlers.Report(ctx, map[string]int{"n": 7}) },
			"silent":    func(context.Context) error { return nil },
			"permanent": func(context.Context) error { return handlers.Permanent(errors.New("no such book")) },
			"exhausted": func(context.Context) error { return errFlaky },
			"panics":    func(context.Context) error { panic("out of paper") },
			"cancelled": func(context.Context) error { return handlers.Cancel(errors.New("withdrawn")) },
		}
		asks := func(mode handlers.Mode, end string) bool {
			return mode == handlers.ModeLease || end != "silent" && end != "panics"
		}
		n := 0
		for _, mode := range modes {
			policy := quick(2)
			policy.Mode = mode
			b.target(bridge, mode.String(), policy, func(ctx context.Context, env schema.Envelope) error {
				if healed.Load() {
					return handlers.Report(ctx, "healed")
				}
				return ends[env.Name](ctx)
			})
			for end := range ends {
				if !asks(mode, end) {
					continue
				}
				b.publish(bridge, schema.NewJob(mode.String(), end, nil, schema.WithID(mode.String()+"-"+end), schema.WithKey("k-"+end),
					schema.WithTenant("acme"), schema.WithRequestID("r1"), schema.WithReplyTo("collector", "heard", "ref-"+end)))
				n++
			}
			b.publish(bridge, schema.NewJob(mode.String(), "fine", nil))
		}
		b.run(bridge)
		b.eventually(got.reaches(n))
		b.awaitNoJobs()
		outcomes := got.outcomes(t)
		for _, mode := range modes {
			for end := range ends {
				if !asks(mode, end) {
					continue
				}
				o := outcomes[mode.String()+"-"+end+"/0"]
				want := schema.Outcome{Ref: "ref-" + end, ID: mode.String() + "-" + end, Key: "k-" + end, Target: mode.String(), Action: end}
				switch end {
				case "fine":
					want.OK, want.Result = true, json.RawMessage(`{"n":7}`)
				case "silent":
					want.OK = true
				case "permanent":
					want.Cause, want.Reason = schema.CausePermanent, "error: no such book"
				case "exhausted":
					want.Cause, want.Reason = schema.CauseExhausted, "error: "+errFlaky.Error()
				case "panics":
					want.Cause, want.Reason = schema.CauseExhausted, "handlers.PanicError: panic: out of paper"
				case "cancelled":
					want.Cause, want.Reason = schema.CauseCancelled, "error: withdrawn"
				}
				if fmt.Sprintf("%+v", o) != fmt.Sprintf("%+v", want) {
					t.Errorf("%v: the outcome is\n%+v, want\n%+v", mode, o, want)
				}
			}
		}
		for _, env := range got.all() {
			if env.Tenant != "acme" || env.RequestID != "r1" || env.Name != "heard" {
				t.Errorf("the report is %+v", env)
			}
		}
		if got.count() != n {
			t.Errorf("%d reports", got.count())
		}
		healed.Store(true)
		before := got.count()
		for _, l := range b.letters() {
			if l.ID == "lease-permanent" || l.ID == "tx-exhausted" {
				if err := b.operator().Replay(t.Context(), l); err != nil {
					t.Fatal(err)
				}
			}
		}
		bridge.Nudge()
		b.eventually(got.reaches(before + 2))
		outcomes = got.outcomes(t)
		for _, id := range []string{"lease-permanent", "tx-exhausted"} {
			if o := outcomes[id+"/1"]; !o.OK || o.Replay != 1 || string(o.Result) != `"healed"` {
				t.Errorf("after the replay of %s: %+v", id, o)
			}
		}
	})
}

// flakyUnits is a store whose transactions fail at their end: what they were to write is lost, or it is written and
// nobody hears of that.
type flakyUnits struct {
	testStore
	lost, unheard atomic.Int64 // how many
	units         atomic.Int64
}

var errCut = fmt.Errorf("%w: the connection is gone", schema.ErrUnreachable)

func (s *flakyUnits) Unit(ctx context.Context, f func(schema.Unit) error) error {
	s.units.Add(1)
	lost := s.lost.Load() > 0
	err := s.testStore.Unit(ctx, func(u schema.Unit) error {
		if err := f(u); err != nil {
			return err
		}
		if lost && s.lost.Add(-1) >= 0 {
			return errCut
		}
		return nil
	})
	if err == nil && s.unheard.Load() > 0 && s.unheard.Add(-1) >= 0 {
		return errCut
	}
	return err
}

// Commits that fail or whose answer is lost leave one report of each end, and the handler's work is not repeated because
// of them where a lease keeps it.
func TestReport_survives_commits_that_fail(t *testing.T) {
	for _, how := range []string{"lost", "unheard"} {
		t.Run(how, func(t *testing.T) {
			onBoth(t, func(t *testing.T, b *bench) {
				store := &flakyUnits{testStore: b.store}
				bridge := b.open(func(c *router.Config) { c.Store = store })
				got := b.collectReports(bridge)
				var seen calls
				var ids []string
				for _, mode := range modes {
					policy := quick(2)
					policy.Mode = mode
					b.target(bridge, mode.String(), policy, func(ctx context.Context, env schema.Envelope) error {
						seen.add(env)
						if how == "lost" {
							store.lost.Store(2)
						} else {
							store.unheard.Store(1)
						}
						if env.Name == "dies" {
							return handlers.Permanent(errFlaky)
						}
						return handlers.Report(ctx, 1)
					})
				}
				b.run(bridge)
				for _, mode := range modes { // one after the other: each has its own failures
					for _, action := range []string{"dies", "lives"} {
						id := mode.String() + "-" + action
						ids = append(ids, id)
						b.publish(bridge, schema.NewJob(mode.String(), action, nil, schema.WithID(id), schema.WithReplyTo("collector", "heard", id)))
						b.eventually(got.reaches(len(ids)))
						b.awaitNoJobs()
						store.lost.Store(0)
						store.unheard.Store(0)
					}
				}
				outcomes := got.outcomes(t)
				for _, id := range ids {
					if o, ok := outcomes[id+"/0"]; !ok || o.OK != (seen.byID()[id] > 0 && id[len(id)-4:] != "dies") {
						t.Errorf("%s: %+v", id, o)
					}
					if n := seen.byID()[id]; n != 1 && id != "tx-lives" {
						t.Errorf("%s: the handler was called %d times", id, n)
					}
				}
				if got.count() != len(ids) {
					t.Errorf("%d reports, want %d", got.count(), len(ids))
				}
			})
		})
	}
}

// Without anybody who asks, nothing is done in a transaction that would not be otherwise.
func TestReport_costs_nothing_unasked(t *testing.T) {
	t.Parallel()
	b := onSQLite(t)
	store := &flakyUnits{testStore: b.store}
	bridge := b.open(func(c *router.Config) { c.Store = store })
	b.target(bridge, "billing", quick(1), func(ctx context.Context, env schema.Envelope) error {
		if env.Name == "dies" {
			return errFlaky
		}
		return handlers.Report(ctx, "nobody asked")
	})
	b.publish(bridge, schema.NewJob("billing", "lives", nil), schema.NewJob("billing", "dies", nil))
	before := store.units.Load()
	tally, err := bridge.Drain(t.Context())
	if err != nil || tally.Counts != (router.Counts{Handled: 1, Dead: 1}) {
		t.Errorf("tally %+v, error %v", tally, err)
	}
	if n := store.units.Load() - before; n != 0 {
		t.Errorf("%d transactions", n)
	}
}

// A report that nobody can publish does not keep the job from its end.
func TestReport_that_is_impossible(t *testing.T) {
	t.Parallel()
	b := onSQLite(t)
	limited := &smallUnits{testStore: b.store}
	bridge := b.open(func(c *router.Config) { c.Store = limited })
	var got []string
	b.target(bridge, "billing", quick(3), func(ctx context.Context, env schema.Envelope) error {
		got = append(got, env.Name)
		return handlers.Report(ctx, 1)
	})
	b.publish(bridge, schema.NewJob("billing", "x", nil, schema.WithReplyTo("collector", "heard", "r")))
	limited.refuse.Store(true)
	tally, err := bridge.Drain(t.Context())
	if err != nil || tally.Counts != (router.Counts{Dead: 1}) || !slices.Equal(got, []string{"x"}) {
		t.Errorf("tally %+v, calls %q, error %v", tally, got, err)
	}
	if l := b.awaitLetters(1)[0]; l.Cause != schema.CausePermanent {
		t.Errorf("the letter is %+v", l.DeadLetter)
	}
}

// smallUnits is a store that takes no reports.
type smallUnits struct {
	testStore
	refuse atomic.Bool
}

type smallUnit struct{ schema.Unit }

func (smallUnit) Append(context.Context, []schema.Envelope) ([]schema.Receipt, error) {
	return nil, fmt.Errorf("append: %w", &schema.ValidationError{})
}

func (s *smallUnits) Unit(ctx context.Context, f func(schema.Unit) error) error {
	return s.testStore.Unit(ctx, func(u schema.Unit) error {
		if s.refuse.Load() {
			u = smallUnit{u}
		}
		return f(u)
	})
}
