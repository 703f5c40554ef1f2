package schematest

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/millbridge/millbridge/schema"
)

// changes returns the names of the events that tell of handlers, and what the last of them says.
func (s *suite[Tx]) changes() (names []string, last schema.HandlerChange) {
	s.t.Helper()
	for _, row := range s.waiting(schema.Events) {
		env, err := row.Envelope()
		s.must(err)
		names, last = append(names, env.Name), schema.HandlerChange{}
		s.must(json.Unmarshal(env.Payload, &last))
	}
	return names, last
}

func testDisabled[Tx any](t *testing.T, open Opener[Tx]) {
	const never = 0
	only := func(s *suite[Tx]) schema.Circuit {
		t.Helper()
		list, err := s.Store.Circuits(s.ctx)
		s.must(err)
		if len(list) != 1 {
			s.t.Fatalf("circuits %+v, want one", list)
		}
		return list[0]
	}
	fail := func(s *suite[Tx], limit int) schema.Circuit {
		t.Helper()
		c, err := s.Another().CircuitFailed(s.ctx, "crm", "Err: 503", limit, time.Hour)
		s.must(err)
		return c
	}
	t.Run("by failures that last", func(t *testing.T) {
		s := start(t, open)
		disable := func(want bool) schema.Circuit {
			t.Helper()
			c, changed, err := s.Store.DisableHandler(s.ctx, "crm", "Err: a\nb", time.Hour)
			s.must(err)
			if changed != want {
				t.Fatalf("disabled: %v, want %v; %+v", changed, want, c)
			}
			return c
		}
		disable(false) // has never failed
		fail(s, 1)
		s.age(50 * time.Minute)
		if c := disable(false); !c.Open || c.Disabled || !near(50*time.Minute, c.Failing) {
			t.Fatalf("after 50 minutes: %+v", c)
		}
		s.must(s.Store.CircuitClosed(s.ctx, "crm"))
		fail(s, 1)
		s.age(50 * time.Minute)
		disable(false) // it has gone well meanwhile
		s.age(11 * time.Minute)
		if c := fail(s, 1); c.Failing < time.Hour || c.Failures != 2 {
			t.Fatalf("after 61 minutes: %+v", c)
		}
		c := disable(true)
		if c.Handler != "crm" || !c.Open || !c.Disabled || c.Failures != 2 || c.Reason != "Err: a b" || c.Since.IsZero() || c.Left != 0 {
			t.Errorf("the circuit is %+v", c)
		}
		if again := disable(false).Change(); again != c.Change() {
			t.Errorf("once more: %+v, want %+v", again, c.Change())
		}
		names, told := s.changes()
		if len(names) != 1 || names[0] != schema.HandlerDisabled.Name || told != c.Change() {
			t.Errorf("events %q, the last %+v, want %+v", names, told, c.Change())
		}
	})
	t.Run("until it is enabled", func(t *testing.T) {
		s := start(t, open)
		c, changed, err := s.Store.DisableHandler(s.ctx, "crm", "maintenance", never)
		if s.must(err); !changed || !c.Disabled || c.Failures != 0 {
			t.Fatalf("disabled: %v, %+v", changed, c)
		}
		s.must(s.Store.CircuitClosed(s.ctx, "crm")) // a run that had begun before goes well
		if c := fail(s, 1); !c.Disabled || c.Failures != 1 {
			t.Errorf("after a failure: %+v", c)
		}
		s.age(month)
		if ok, err := s.Store.CircuitProbe(s.ctx, "crm", time.Hour); ok || err != nil {
			t.Errorf("it may be probed: %v, %v", ok, err)
		}
		if now := only(s); !now.Disabled || !now.Open || now.Reason != "maintenance" {
			t.Errorf("after all that: %+v", now)
		}
		was, changed, err := s.Another().EnableHandler(s.ctx, "crm")
		if s.must(err); !changed || was.Reason != "maintenance" || !was.Disabled {
			t.Errorf("enabled: %v, %+v", changed, was)
		}
		if list, err := s.Store.Circuits(s.ctx); err != nil || len(list) != 0 {
			t.Errorf("circuits %+v, %v", list, err)
		}
		if _, changed, err := s.Store.EnableHandler(s.ctx, "crm"); changed || err != nil {
			t.Errorf("once more: %v, %v", changed, err)
		}
		names, told := s.changes()
		if len(names) != 2 || names[1] != schema.HandlerEnabled.Name || told != was.Change() {
			t.Errorf("events %q, the last %+v", names, told)
		}
	})
	t.Run("no failures, no enabling", func(t *testing.T) {
		s := start(t, open)
		fail(s, 0)
		if c := fail(s, 0); c.Open || c.Failures != 2 {
			t.Errorf("without a limit: %+v", c)
		}
		if _, changed, err := s.Store.EnableHandler(s.ctx, "crm"); changed || err != nil {
			t.Errorf("one that is not disabled: %v, %v", changed, err)
		}
		if c := only(s); c.Failures != 2 {
			t.Errorf("the circuit is %+v", c)
		}
		if names, _ := s.changes(); len(names) != 0 {
			t.Errorf("events %q", names)
		}
	})
	t.Run("one of many", func(t *testing.T) {
		s := start(t, open)
		stores := []Store[Tx]{s.Store, s.Another()}
		fail(s, 1)
		s.age(2 * time.Hour)
		if n := count(s, 20, func(i int) (bool, error) {
			failing := time.Hour * time.Duration(i%3) // some by an operator
			c, changed, err := stores[i%2].DisableHandler(s.ctx, "crm", "Err: 503", failing)
			if err == nil && !c.Disabled {
				err = errors.New("it is not disabled")
			}
			return changed, err
		}); n != 1 {
			t.Errorf("%d have disabled it, want 1", n)
		}
		if n := count(s, 20, func(i int) (bool, error) {
			_, changed, err := stores[i%2].EnableHandler(s.ctx, "crm")
			return changed, err
		}); n != 1 {
			t.Errorf("%d have enabled it, want 1", n)
		}
		if names, _ := s.changes(); len(names) != 2 {
			t.Errorf("events %q, want one for each change", names)
		}
	})
	t.Run("a new outbox keeps it", func(t *testing.T) {
		s := start(t, open)
		fail(s, 1)
		_, _, err := s.Store.DisableHandler(s.ctx, "erp", "maintenance", never)
		s.must(err)
		_, err = s.Store.NewOutbox(s.ctx)
		s.must(err)
		if c := only(s); c.Handler != "erp" || !c.Disabled {
			t.Errorf("the circuit is %+v, want what waits for a person alone", c)
		}
	})
	t.Run("not without its event", func(t *testing.T) {
		s := start(t, open)
		s.must(s.Store.SetMaxPayload(s.ctx, 10)) // the event is larger
		if c, changed, err := s.Store.DisableHandler(s.ctx, "crm", "maintenance", never); err == nil || changed {
			t.Fatalf("disabled: %v, %+v, error %v", changed, c, err)
		}
		if list, err := s.Store.Circuits(s.ctx); err != nil || len(list) != 0 {
			t.Errorf("circuits %+v, %v", list, err)
		}
	})
}
