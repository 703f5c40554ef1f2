package cases

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/schema"
)

func TestC20_names(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		bad := []string{"a.b", "a..b", "a.", ".a", "*", "a.>", ">", "a b", "a/b", "é", "$SYS", "_INBOX.x", strings.Repeat("x", 300), "A", ""}
		bridge := w.open(t)
		for _, name := range bad {
			err := bridge.Target(handlers.Target{Name: name, Handler: &recorder{}})
			if err == nil || !strings.Contains(err.Error(), "name") {
				t.Errorf("target %s in the configuration: %v", short(name), err)
			}
			if err := bridge.Subscribe(handlers.Subscription{Name: name, Events: []string{"x"}, Handler: &recorder{}}); err == nil {
				t.Errorf("subscription %s was accepted", short(name))
			}
			err = w.refused(t, schema.NewJob(name, "do", nil))
			var invalid *schema.ValidationError
			if !errors.As(err, &invalid) || invalid.Faults[0].Field != "target" || len(name) == 300 && invalid.Faults[0].Limit != schema.MaxTarget {
				t.Errorf("job for target %s: %v", short(name), err)
			}
			if name == "a.b" { // names of actions and events may have dots
				continue
			}
			for field, env := range map[string]schema.Envelope{"action": schema.NewJob("a", name, nil), "name": schema.NewEvent(name, nil)} {
				if err := w.refused(t, env); !errors.As(err, &invalid) || invalid.Faults[0].Field != field {
					t.Errorf("%s %s: %v", field, short(name), err)
				}
			}
		}

		names := []string{"a", "b", "a-b", "a_b", "ab", "0", "jobs", "events", "dead", "a" + strings.Repeat("b", 62)}
		targets := make(map[string]*recorder)
		for _, name := range names {
			targets[name] = &recorder{}
			if err := bridge.Target(handlers.Target{Name: name, Handler: targets[name]}); err != nil {
				t.Fatal(err)
			}
		}
		events := map[string]*recorder{}
		for sub, filter := range map[string]string{"exact": "a", "deep": "a.b", "all": ">", "any": "a.*"} {
			events[sub] = &recorder{}
			if err := bridge.Subscribe(handlers.Subscription{Name: sub, Events: []string{filter}, Handler: events[sub], From: handlers.FromAll}); err != nil {
				t.Fatal(err)
			}
		}
		want := make(map[string][]string)
		for _, name := range names {
			for _, action := range []string{"a", "b", "a.b", "b.a"} {
				job := schema.NewJob(name, action, nil)
				w.publish(t, job)
				want[name] = append(want[name], job.ID)
			}
		}
		for _, name := range []string{"a", "a.b", "a.b.c", "b.a"} {
			e := schema.NewEvent(name, nil)
			w.publish(t, e)
			for sub, takes := range map[string]bool{"exact": name == "a", "deep": name == "a.b", "all": true, "any": name == "a.b"} {
				if takes {
					want["event "+sub] = append(want["event "+sub], e.ID)
				}
			}
		}
		w.drain(t, bridge)
		for _, name := range names {
			slices.Sort(want[name])
			if got := targets[name].ids(); !slices.Equal(got, want[name]) {
				t.Errorf("target %s got %v, want %v", short(name), got, want[name])
			}
		}
		for sub, r := range events {
			slices.Sort(want["event "+sub])
			if got := r.ids(); !slices.Equal(got, want["event "+sub]) {
				t.Errorf("subscription %s got %v, want %v", sub, got, want["event "+sub])
			}
		}
	})
}

func TestC21_names_that_begin_alike(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		for _, name := range []string{"", `a"b`, "a;b", "a'b", "Orders", strings.Repeat("a", 64)} {
			if err := w.refused(t, schema.NewJob(name, "do", nil)); !errors.Is(err, schema.ErrInvalid) {
				t.Errorf("target %s: %v", short(name), err)
			}
			if err := w.open(t).Target(handlers.Target{Name: name, Handler: &recorder{}}); err == nil {
				t.Errorf("target %s is accepted in the configuration", short(name))
			} else if len(name) == 64 && !strings.Contains(err.Error(), "limit 63") {
				t.Errorf("the limit is not stated: %v", err)
			}
		}
		same := strings.Repeat("n", 199)
		targets := []string{same[:45] + "1", same[:45] + "2", same[:53] + "1", same[:53] + "2", same[:62] + "1", same[:62] + "2", "x", "offsets_x", "watermill_x"}
		events := []string{same + "1", same + "2", same[:63] + ".1", same[:63] + ".2", same[:45], "x.y", "offsets_x.y"}
		bridge := w.open(t)
		got, want := make(map[string]*recorder), make(map[string]string)
		for _, name := range targets {
			got[name] = &recorder{}
			if err := bridge.Target(handlers.Target{Name: name, Handler: got[name]}); err != nil {
				t.Fatal(err)
			}
			job := schema.NewJob(name, "do", nil)
			want[name] = job.ID
			w.publish(t, job)
		}
		for i, name := range events {
			sub := fmt.Sprintf("sub-%d", i)
			got[sub] = &recorder{}
			if err := bridge.Subscribe(handlers.Subscription{Name: sub, Events: []string{name}, Handler: got[sub], From: handlers.FromAll}); err != nil {
				t.Fatal(err)
			}
			e := schema.NewEvent(name, nil)
			want[sub] = e.ID
			w.publish(t, e)
		}
		w.drain(t, bridge)
		for _, name := range sorted(want) {
			if ids := got[name].ids(); !slices.Equal(ids, []string{want[name]}) {
				t.Errorf("%s got %v, want %s", short(name), ids, want[name])
			}
		}
	})
}
