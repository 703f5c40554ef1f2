package schematest

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/millbridge/millbridge/schema"
)

// near reports whether a time that a store has told is what it should be, but for the moments that the test has taken.
func near(got, want time.Duration) bool { return got > want-30*time.Second && got <= want+time.Second }

func testRates[Tx any](t *testing.T, open Opener[Tx]) {
	take := func(s *suite[Tx], st Store[Tx], name string, n int) time.Duration {
		t.Helper()
		wait, err := st.Take(s.ctx, name, time.Minute, n)
		s.must(err)
		return wait
	}
	t.Run("starts are spaced", func(t *testing.T) {
		s := start(t, open)
		other := s.Another()
		for i, step := range []struct {
			store Store[Tx]
			n     int
			want  time.Duration
		}{{s.Store, 1, 0}, {other, 3, time.Minute}, {s.Store, 1, 4 * time.Minute}, {other, 1, 5 * time.Minute}} {
			if wait := take(s, step.store, "crm", step.n); !near(wait, step.want) {
				t.Errorf("step %d waits %v, want %v", i, wait, step.want)
			}
		}
		if wait := take(s, s.Store, "erp", 1); wait != 0 {
			t.Errorf("another name waits %v", wait)
		}
		s.age(time.Hour)
		for i, want := range []time.Duration{0, time.Minute} { // what was not used is not saved up
			if wait := take(s, s.Store, "crm", 1); !near(wait, want) {
				t.Errorf("start %d after a pause waits %v, want %v", i, wait, want)
			}
		}
		s.age(-time.Hour) // the clock is set back
		if wait := take(s, s.Store, "crm", 1); wait != 0 {
			t.Errorf("after the clock was set back: %v, want no wait", wait)
		}
		for _, none := range []int{0, -1} {
			if wait := take(s, s.Store, "crm", none); wait != 0 {
				t.Errorf("%d starts wait %v", none, wait)
			}
		}
	})
	t.Run("two processes never get the same start", func(t *testing.T) {
		s := start(t, open)
		stores := []Store[Tx]{s.Store, s.Another()}
		var mu sync.Mutex
		var waits []time.Duration
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				wait, err := stores[i%2].Take(s.ctx, "crm", time.Hour, 1)
				if err != nil {
					t.Errorf("take: %v", err)
				}
				mu.Lock()
				waits = append(waits, wait.Round(time.Hour))
				mu.Unlock()
			})
		}
		wg.Wait()
		slices.Sort(waits)
		for i, wait := range waits {
			if wait != time.Duration(i)*time.Hour {
				t.Fatalf("waits %v, want one of each hour", waits)
			}
		}
	})
}

func testHold[Tx any](t *testing.T, open Opener[Tx]) {
	t.Run("a life", func(t *testing.T) {
		s := start(t, open)
		other := s.Another()
		hold := func(st Store[Tx], owner string, want bool, left time.Duration) {
			t.Helper()
			held, got, err := st.Hold(s.ctx, "crm", owner, time.Hour)
			s.must(err)
			if held != want || !near(got, left) {
				t.Fatalf("%s holds: %v for %v, want %v for %v", owner, held, got, want, left)
			}
		}
		hold(s.Store, "one", true, time.Hour)
		hold(other, "two", false, time.Hour)
		s.age(30 * time.Minute)
		hold(other, "two", false, 30*time.Minute)
		hold(s.Store, "one", true, time.Hour)
		s.must(other.LetGo(s.ctx, "crm", "two")) // is not its to let go
		hold(other, "two", false, time.Hour)
		s.must(s.Store.LetGo(s.ctx, "crm", "one"))
		hold(other, "two", true, time.Hour)
		s.age(90 * time.Minute)
		hold(s.Store, "one", true, time.Hour)
		hold(other, "two", false, time.Hour)
		if held, _, err := s.Store.Hold(s.ctx, "erp", "two", time.Hour); !held || err != nil {
			t.Errorf("another name: %v, %v", held, err)
		}
		s.age(month)
		s.tend()
		hold(other, "two", true, time.Hour)
		s.age(-month) // the clock is set back
		hold(s.Store, "one", false, time.Hour)
		hold(other, "two", true, time.Hour)
		s.age(-month)
		hold(s.Store, "one", false, time.Hour)
		s.age(61 * time.Minute)
		hold(s.Store, "one", true, time.Hour)
	})
	t.Run("a lease is taken for as long as its owner wants it", func(t *testing.T) {
		s := start(t, open)
		if held, _, err := s.Store.Hold(s.ctx, "crm", "one", 3*time.Hour); !held || err != nil {
			t.Fatal(held, err)
		}
		for _, back := range []time.Duration{0, month} {
			s.age(-back)
			if held, left, err := s.Another().Hold(s.ctx, "crm", "two", time.Minute); held || !near(left, 3*time.Hour) || err != nil {
				t.Errorf("the clock is set back by %v: held %v, %v left, error %v", back, held, left, err)
			}
		}
	})
	t.Run("one of many", func(t *testing.T) {
		s := start(t, open)
		stores := []Store[Tx]{s.Store, s.Another()}
		if n := count(s, 20, func(i int) (bool, error) {
			held, _, err := stores[i%2].Hold(s.ctx, "crm", string(rune('a'+i)), time.Hour)
			return held, err
		}); n != 1 {
			t.Errorf("%d hold the lease, want 1", n)
		}
	})
}

// count runs ask n times at once and returns how often it said yes.
func count[Tx any](s *suite[Tx], n int, ask func(i int) (bool, error)) (yes int) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			ok, err := ask(i)
			if err != nil {
				s.t.Errorf("ask: %v", err)
			}
			mu.Lock()
			defer mu.Unlock()
			if ok {
				yes++
			}
		})
	}
	wg.Wait()
	return yes
}

func testCircuits[Tx any](t *testing.T, open Opener[Tx]) {
	s := start(t, open)
	other := s.Another()
	fail := func(st Store[Tx], handler string, want schema.Circuit) {
		t.Helper()
		c, err := st.CircuitFailed(s.ctx, handler, "Err: a\nb", 3, time.Hour)
		s.must(err)
		if c.Handler != handler || c.Failures != want.Failures || c.Open != want.Open || c.Reason != "Err: a b" || c.Open == c.Since.IsZero() || !near(c.Left, want.Left) {
			t.Fatalf("%+v, want %+v", c, want)
		}
	}
	probe := func(st Store[Tx], want bool) {
		t.Helper()
		ok, err := st.CircuitProbe(s.ctx, "crm", time.Hour)
		s.must(err)
		if ok != want {
			t.Fatalf("probe: %v, want %v", ok, want)
		}
	}
	s.must(s.Store.CircuitClosed(s.ctx, "crm")) // there is none
	probe(s.Store, false)
	fail(s.Store, "crm", schema.Circuit{Failures: 1})
	fail(other, "crm", schema.Circuit{Failures: 2})
	s.must(other.CircuitClosed(s.ctx, "crm")) // in a row, that is
	fail(s.Store, "erp", schema.Circuit{Failures: 1})
	for i := range 2 {
		fail(s.Store, "crm", schema.Circuit{Failures: i + 1})
	}
	probe(s.Store, false)
	fail(other, "crm", schema.Circuit{Failures: 3, Open: true, Left: time.Hour})
	probe(s.Store, false)
	list, err := s.Store.Circuits(s.ctx)
	s.must(err)
	if len(list) != 2 || list[0].Handler != "crm" || !list[0].Open || !near(list[0].Left, time.Hour) || list[1].Handler != "erp" || list[1].Open {
		t.Fatalf("circuits %+v", list)
	}
	since := list[0].Since
	s.age(61 * time.Minute)
	stores := []Store[Tx]{s.Store, other}
	if n := count(s, 20, func(i int) (bool, error) { return stores[i%2].CircuitProbe(s.ctx, "crm", time.Hour) }); n != 1 {
		t.Fatalf("%d probes, want 1", n)
	}
	s.age(61 * time.Minute) // nobody has heard of the probe
	probe(other, true)
	fail(other, "crm", schema.Circuit{Failures: 4, Open: true, Left: time.Hour})
	probe(s.Store, false)
	list, err = other.Circuits(s.ctx)
	s.must(err)
	if list[0].Since.After(since) {
		t.Errorf("open since %v, want since the limit was reached at %v", list[0].Since, since)
	}
	s.age(61 * time.Minute)
	probe(s.Store, true)
	s.age(-month) // the clock is set back
	probe(other, false)
	if list, err := other.Circuits(s.ctx); err != nil || !near(list[0].Left, time.Hour) {
		t.Errorf("after the clock was set back: circuits %+v, %v", list, err)
	}
	s.age(61 * time.Minute)
	probe(s.Store, true)
	s.age(-month)
	fail(s.Store, "crm", schema.Circuit{Failures: 5, Open: true, Left: time.Hour})
	if list, err := other.Circuits(s.ctx); err != nil || !near(list[0].Failing+time.Second, time.Second) {
		t.Errorf("after the clock was set back: circuits %+v, %v", list, err)
	}
	s.must(s.Store.CircuitClosed(s.ctx, "crm"))
	if list, err := other.Circuits(s.ctx); err != nil || len(list) != 1 || list[0].Handler != "erp" {
		t.Errorf("circuits %+v, %v", list, err)
	}
}
