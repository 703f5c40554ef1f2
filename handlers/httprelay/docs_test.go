package httprelay_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/handlers/configgroup"
	"github.com/millbridge/millbridge/handlers/handlertest"
	"github.com/millbridge/millbridge/handlers/httprelay"
	"github.com/millbridge/millbridge/schema"
)

// commonKeys are those that every target has; they are not this package's.
var commonKeys = map[string]bool{"type": true, "timeout": true, "breaker": true}

var (
	yamlBlock   = regexp.MustCompile("(?s)```yaml\n(.*?)```")
	publishLine = regexp.MustCompile(`(?m)^millbridge publish job (\S+) (\S+) '([^']*)' --key (\S+)$`)
)

func page(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/targets/http.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// example returns the settings of a target as the page has them, but for the server and the place of the secrets.
func example(t *testing.T, name string, s *server) httprelay.Config {
	t.Helper()
	secrets := t.TempDir()
	for file, secret := range map[string]string{"koha-client": "koha-client-secret", "folio-key": "folio-key-secret", "paia-token": "paia-token-secret"} {
		if err := os.WriteFile(filepath.Join(secrets, file), []byte(secret+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, m := range yamlBlock.FindAllStringSubmatch(page(t), -1) {
		text := strings.ReplaceAll(m[1], "/run/secrets/", secrets+"/")
		text = regexp.MustCompile(`https://[a-z-]+\.example\.org`).ReplaceAllString(text, s.URL)
		var file struct{ Targets map[string]map[string]any }
		if err := yaml.Unmarshal([]byte(text), &file); err != nil {
			t.Fatal(err)
		}
		if settings, ok := file.Targets[name]; ok {
			if settings["type"] != "http" {
				t.Errorf("%s is of type %v", name, settings["type"])
			}
			cfg := load(t, settings)
			cfg.Settings = s.reach()
			return cfg
		}
	}
	t.Fatalf("the page has no target %s", name)
	return httprelay.Config{}
}

func load(t *testing.T, settings map[string]any) (cfg httprelay.Config) {
	t.Helper()
	list, err := configgroup.SettingsOf(&cfg)
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, s := range list {
		known[s.Key] = true
		value, ok := settings[s.Key]
		if !ok {
			continue
		}
		text := fmt.Sprint(value)
		if s.IsBlock() {
			data, err := json.Marshal(value)
			if err != nil {
				t.Fatal(err)
			}
			text = string(data)
		}
		if err := s.Set([]string{text}); err != nil {
			t.Fatalf("%s: %v", s.Key, err)
		}
	}
	for key := range settings {
		if !known[key] && !commonKeys[key] {
			t.Errorf("there is no setting %s", key)
		}
	}
	return cfg
}

// jobs returns the jobs that the page publishes for a target.
func jobs(t *testing.T, name string) []schema.Envelope {
	t.Helper()
	var list []schema.Envelope
	for _, m := range publishLine.FindAllStringSubmatch(page(t), -1) {
		if m[1] == name {
			list = append(list, schema.NewJob(m[1], m[2], []byte(m[3]), schema.WithKey(m[4])))
		}
	}
	if len(list) == 0 {
		t.Fatalf("the page publishes no job for %s", name)
	}
	return list
}

func TestDocs_examples_do_what_they_say(t *testing.T) {
	t.Parallel()
	for name, fake := range fakes() {
		ils := new(fakeILS)
		s := newServer(t, fake(ils))
		h := newRelay(t, example(t, name, s))
		job := jobs(t, name)[0]
		first, err := run(t, h, job)
		if err != nil || fmt.Sprint(ils.State()) == "[]" {
			t.Errorf("%s: error %v, state %v", name, err, ils.State())
		}
		placed := ils.State()
		again, err := run(t, h, job)
		if err != nil || fmt.Sprint(ils.State()) != fmt.Sprint(placed) {
			t.Errorf("%s, again: error %v, state %v", name, err, ils.State())
		}
		if first == "" || first != again {
			t.Errorf("%s: reports %s at first, %s from the look-up", name, first, again)
		}
		for _, r := range s.got() {
			if r.header.Get("Idempotency-Key") != "" {
				t.Errorf("%s: a key is sent that the API does not know", name)
			}
		}
	}
}

func TestDocs_examples_are_idempotent(t *testing.T) {
	t.Parallel()
	others := map[string][]schema.Envelope{
		"koha": {
			schema.NewJob("koha", "place-hold", []byte(`{"patron_id":8,"biblio_id":42,"pickup_library_id":"CPL"}`), schema.WithKey("o-8")),
			schema.NewJob("koha", "cancel-hold", []byte(`{"hold_id":99}`), schema.WithKey("o-9")),
		},
		"folio": {schema.NewJob("folio", "place-hold", []byte(`{"patron":"u/8","item":"i-8","pickup":"p"}`), schema.WithKey("o-8"))},
		"paia": {
			schema.NewJob("paia", "request", []byte(`{"patron":"8","item":"http://example.org/items/8"}`), schema.WithKey("o-8")),
			schema.NewJob("paia", "cancel", []byte(`{"patron":"9","item":"http://example.org/items/9"}`), schema.WithKey("o-9")),
		},
	}
	for name, fake := range fakes() {
		handlertest.CheckIdempotent(t, func() handlertest.World {
			ils := new(fakeILS)
			cfg := example(t, name, newServer(t, fake(ils)))
			return handlertest.World{Handler: func() handlers.Handler { return newRelay(t, cfg) }, State: ils.State}
		}, append(jobs(t, name), others[name]...)...)
	}
}

// Between a look-up and the request somebody else may place the hold: the API refuses the second, and that is a success.
func TestDocs_examples_know_a_refused_repeat(t *testing.T) {
	t.Parallel()
	for name, fake := range fakes() {
		ils := new(fakeILS)
		s := newServer(t, fake(ils))
		cfg := example(t, name, s)
		job := jobs(t, name)[0]
		a := cfg.Actions[job.Name]
		a.Lookup = nil
		cfg.Actions[job.Name] = a
		h := newRelay(t, cfg)
		for range 2 {
			if _, err := run(t, h, job); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if got := len(ils.State().([]string)); got != 1 {
			t.Errorf("%s: %d holds", name, got)
		}
	}
}

// A token that the ILS has forgotten is renewed without a word.
func TestDocs_example_of_koha_outlives_a_restart(t *testing.T) {
	t.Parallel()
	ils := new(fakeILS)
	h := newRelay(t, example(t, "koha", newServer(t, ils.koha())))
	for range 2 {
		if _, err := run(t, h, jobs(t, "koha")[0]); err != nil {
			t.Error(err)
		}
		ils.expire()
	}
	if ils.issued != 2 {
		t.Errorf("%d tokens were issued", ils.issued)
	}
}

func TestDocs_examples_say_why(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		job  schema.Envelope
		want string
	}{
		"koha":  {schema.NewJob("koha", "place-hold", []byte(`{"patron_id":7,"biblio_id":42,"pickup_library_id":"X"}`)), "place-hold: answered 400 Bad Request: The supplied pickup location is not valid"},
		"folio": {schema.NewJob("folio", "place-hold", []byte(`{"patron":"7","item":"8","pickup":""}`)), "place-hold: answered 400 Bad Request: unable to process request -- constraint violation"},
		"paia":  {schema.NewJob("paia", "request", []byte(`{"patron":"7","item":"http://example.org/items/rejected"}`)), "request: answered 200, as permanent.0 says: Sorry, we found out that our copy is lost!"},
	} {
		s := newServer(t, fakes()[name](new(fakeILS)))
		_, err := run(t, newRelay(t, example(t, name, s)), c.job)
		wantKind(t, name, err, schema.Permanent)
		if err != nil && err.Error() != c.want {
			t.Errorf("%s: error %q, want %q", name, err, c.want)
		}
	}
}
