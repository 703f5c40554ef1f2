package inprocess_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/handlers/handlertest"
	"github.com/millbridge/millbridge/router/inprocess"
	"github.com/millbridge/millbridge/schema"
)

// plan is what the model has decided about one message before it is published.
type plan struct {
	fails   int // attempts that fail before one succeeds
	ends    string
	order   string
	event   bool
	matches int // handlers that get it
}

// attemptsOf returns how many runs one handler makes of it, and whether it ends as a dead letter.
func (p plan) attemptsOf(most int) (runs int, dead bool) {
	switch {
	case p.ends == "permanent":
		return min(p.fails+1, most), true
	case p.fails >= most:
		return most, true
	}
	return p.fails + 1, false
}

// TestModel_each_message_is_handled_once_in_the_order_of_its_key compares the queue with what can be said without it:
// each handler runs each message as often as its failures ask for, and the runs of a key come message by message.
func TestModel_each_message_is_handled_once_in_the_order_of_its_key(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		const most = 3
		clock := handlertest.NewClock(time.Time{})
		q := inprocess.New[struct{}](inprocess.Config{Clock: clock, Logger: slog.New(slog.DiscardHandler)})
		var mu sync.Mutex
		plans := map[string]plan{}
		ran := map[string][]string{} // by handler: ids in the order of the runs
		running := map[string]bool{} // handler and ordering key
		handler := func(name string) handlers.Handler {
			return handlers.HandlerFunc(func(ctx context.Context, env schema.Envelope) error {
				mu.Lock()
				p := plans[env.ID]
				ran[name] = append(ran[name], env.ID)
				at := name + "/" + p.order
				if p.order != "" && running[at] {
					t.Errorf("two messages of key %s ran at the same time", at)
				}
				running[at] = true
				mu.Unlock()
				attempt := handlers.Attempt(ctx)
				mu.Lock()
				running[at] = false
				mu.Unlock()
				switch {
				case attempt <= p.fails:
					return errDown
				case p.ends == "permanent":
					return handlers.Permanent(errDown)
				}
				return nil
			})
		}
		policy := handlers.Policy{
			Ordered: true, Concurrency: rapid.IntRange(1, 4).Draw(t, "concurrency"),
			Retry: schema.RetryPolicy{MaxAttempts: most, Base: time.Second, Factor: 2, Jitter: 0.2},
		}
		if err := q.Target(handlers.Target{Name: "work", Handler: handler("work"), Policy: policy}); err != nil {
			t.Fatal(err)
		}
		for _, s := range []string{"one", "two"} {
			if err := q.Subscribe(handlers.Subscription{Name: s, Events: []string{"a"}, Handler: handler(s), Policy: policy}); err != nil {
				t.Fatal(err)
			}
		}
		var order []string // ids as published
		var want inprocess.Tally
		add := func(got inprocess.Tally, err error) {
			if err != nil {
				t.Fatal(err)
			}
			want.Handled -= got.Handled
			want.Retried -= got.Retried
			want.Dead -= got.Dead
		}
		for i := range rapid.IntRange(1, 25).Draw(t, "messages") {
			if rapid.IntRange(0, 5).Draw(t, "drain") == 0 {
				add(q.Drain(context.Background()))
			}
			p := plan{
				fails: rapid.IntRange(0, most).Draw(t, "fails"), ends: rapid.SampledFrom([]string{"", "", "permanent"}).Draw(t, "ends"),
				order: rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, "order"), event: rapid.Bool().Draw(t, "event"), matches: 1,
			}
			id := fmt.Sprintf("m%d", i)
			env := schema.NewJob("work", "do", nil, schema.WithID(id), schema.WithOrderingKey(p.order))
			if p.event {
				env, p.matches = schema.NewEvent("a", nil, schema.WithID(id), schema.WithOrderingKey(p.order)), 2
			}
			if rapid.IntRange(0, 9).Draw(t, "unheard") == 0 {
				env, p.matches = schema.NewEvent("b", nil, schema.WithID(id)), 0
			}
			mu.Lock()
			plans[id] = p
			mu.Unlock()
			order = append(order, id)
			if _, err := q.PublishAlone(context.Background(), env); err != nil {
				t.Fatal(err)
			}
			runs, dead := p.attemptsOf(most)
			n := int64(p.matches)
			want.Retried += n * int64(runs-1)
			if dead {
				want.Dead += n
			} else {
				want.Handled += n
			}
		}
		add(q.DrainUntilEmpty(context.Background()))
		if want != (inprocess.Tally{}) {
			t.Fatalf("the tallies differ from the plan by %+v", want)
		}
		for _, name := range []string{"work", "one", "two"} {
			checkRuns(t, name, order, plans, ran[name], most)
		}
	})
}

// checkRuns compares the runs of one handler with the plan.
func checkRuns(t *rapid.T, name string, order []string, plans map[string]plan, ran []string, most int) {
	byKey := map[string][]string{}
	for _, id := range order {
		p := plans[id]
		if p.matches == 0 || p.event == (name == "work") {
			continue
		}
		key := p.order
		if key == "" {
			key = id // no order: only its own runs
		}
		runs, _ := p.attemptsOf(most)
		for range runs {
			byKey[key] = append(byKey[key], id)
		}
	}
	got := map[string][]string{}
	for _, id := range ran {
		key := plans[id].order
		if key == "" {
			key = id
		}
		got[key] = append(got[key], id)
	}
	if len(got) != len(byKey) {
		t.Errorf("%s ran the keys %v, want %v", name, got, byKey)
	}
	for key, want := range byKey {
		if !slices.Equal(got[key], want) {
			t.Errorf("%s ran key %s as %v, want %v", name, key, got[key], want)
		}
	}
}
