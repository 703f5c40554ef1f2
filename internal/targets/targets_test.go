package targets_test

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/handlers/configgroup"
	"github.com/millbridge/millbridge/internal/targets"
	"github.com/millbridge/millbridge/schema"
)

// common are the keys of every target, which no type may have.
var common = []string{"type", "events", "retry", "timeout", "concurrency", "rate", "ordered", "breaker"}

func TestTypes_are_sorted_and_have_settings_of_their_own(t *testing.T) {
	t.Parallel()
	all := targets.All()
	if !slices.IsSortedFunc(all, func(a, b targets.Type) int { return strings.Compare(a.Name, b.Name) }) {
		t.Error("the types are not sorted")
	}
	for _, kind := range all {
		settings, err := configgroup.SettingsOf(kind.New().Pointer())
		if err != nil {
			t.Errorf("%s: %v", kind.Name, err)
		}
		for _, s := range settings {
			if first, _, _ := strings.Cut(s.Key, "."); slices.Contains(common, first) {
				t.Errorf("%s: the key %s is one that every target has", kind.Name, s.Key)
			}
			if s.Doc == "" {
				t.Errorf("%s: %s says nothing about itself", kind.Name, s.Key)
			}
		}
		if kind.New().Validate() == nil && slices.ContainsFunc(settings, func(s configgroup.Setting) bool { return s.Required }) {
			t.Errorf("%s: settings without what is required are accepted", kind.Name)
		}
		if got, err := targets.Named(kind.Name); err != nil || got.Name != kind.Name || kind.Doc == "" {
			t.Errorf("%s: found %q, error %v", kind.Name, got.Name, err)
		}
	}
	if _, err := targets.Named("webhok"); err == nil || !strings.Contains(err.Error(), "webhook") {
		t.Errorf("an unknown type: %v", err)
	}
}

// samples are the settings of one target of each type, and a message for it.
var samples = map[string]struct {
	settings map[string]string
	action   string
	payload  string
}{
	"http": {
		map[string]string{"base_url": "https://ils.example.com/api", "actions": `{"renew":{"method":"POST","path":"/loans/{{.payload.loan}}/renew"}}`, "headers": `{"X-Key":"SECRET123"}`},
		"renew", `{"loan":"7"}`,
	},
	"nats": {map[string]string{"url": "nats://other.example.com", "token": "SECRET123", "origin": "here", "prefix": "there"}, "contact.update", `{"a":1}`},
	"ncip": {
		map[string]string{"base_url": "https://ncip.example.com", "from_agency": "A", "to_agency": "B", "password": "SECRET123", "username": "u"},
		"lookup-user", `{"user":{"value":"p-1"}}`,
	},
	"request": {map[string]string{"url": "nats://other.example.com", "prefix": "svc", "token": "SECRET123"}, "renew", `{"a":1}`},
	"exec":    {map[string]string{"command": "/bin/cat"}, "print", `{"a":1}`},
	"reshare": {
		map[string]string{"base_url": "https://okapi.example.com", "tenant": "diku", "username": "u", "password": "SECRET123"},
		"get-request", `{"id":"0198"}`,
	},
	"peer": {
		map[string]string{"url": "https://other.example.com/messages", "origin": "here", "secrets": "whsec_SECRET123SECRET123SECRET123SECRET123"}, "contact.update", `{"a":1}`,
	},
	"webhook": {map[string]string{"url": "https://hooks.example.com/SECRET123"}, "contact.update", `{"a":1}`},
}

// Every type can say what it would send, and opening it connects to nothing.
func TestTypes_say_what_they_would_send(t *testing.T) {
	t.Parallel()
	for _, kind := range targets.All() {
		sample, ok := samples[kind.Name]
		if !ok {
			t.Errorf("there is no sample of %s", kind.Name)
			continue
		}
		own := kind.New()
		settings, err := configgroup.SettingsOf(own.Pointer())
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range settings {
			if v := sample.settings[s.Key]; v != "" {
				if err := s.Set([]string{v}); err != nil {
					t.Errorf("%s: %s: %v", kind.Name, s.Key, err)
				}
			}
		}
		if err := own.Validate(); err != nil {
			t.Errorf("%s: %v", kind.Name, err)
			continue
		}
		h, err := own.Open(targets.Env{Name: "x", Timeout: time.Second, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Errorf("%s: %v", kind.Name, err)
			continue
		}
		env := schema.NewJob("x", sample.action, []byte(sample.payload), schema.WithKey("the-key"))
		list, err := h.(handlers.Previewer).Preview(handlers.WithCall(t.Context(), handlers.CallOf("x", env)), env)
		if err != nil || len(list) == 0 || list[0].Do == "" {
			t.Errorf("%s: previews %v, error %v", kind.Name, list, err)
		}
		if calls, ok := h.(fmt.Stringer); !ok || calls.String() == "" || strings.Contains(calls.String(), "SECRET123") {
			t.Errorf("%s: says that it calls %v", kind.Name, h)
		}
		if strings.Contains(fmt.Sprint(list), "SECRET123") {
			t.Errorf("%s: shows a secret: %v", kind.Name, list)
		}
		if err := targets.Close(h); err != nil {
			t.Errorf("%s: close: %v", kind.Name, err)
		}
	}
}
