package configgroup_test

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/millbridge/millbridge/handlers/configgroup"
)

type action struct {
	Method string                        `json:"method"`
	Header map[string]configgroup.Secret `json:"header"`
}

type ils struct {
	URL     *url.URL             `required:"true"`
	CAFile  string               `key:"tls.ca_file"`
	Keys    []configgroup.Secret `doc:"newest first"`
	Tags    []string             `default:"a,b"`
	Actions map[string]action
}

func TestSettings_are_those_of_the_variables(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte("in-a-file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	block := fmt.Sprintf(`{"renew":{"method":"PUT","header":{"x-key":{"file":%q},"x-other":"plain-secret"}}}`, file)
	env := []string{
		"MILLBRIDGE_ILS_URL=https://ils.example/api?token=hidden", "MILLBRIDGE_ILS_TLS_CA_FILE=/ca.pem", "MILLBRIDGE_ILS_KEYS=k-one,k-two", "MILLBRIDGE_ILS_ACTIONS=" + block,
	}
	want, err := configgroup.Load[ils]("ils", configgroup.Environ(env))
	if err != nil {
		t.Fatal(err)
	}
	if got := want.Actions["renew"].Header["x-key"].Reveal(); got != "in-a-file" || len(want.Keys) != 2 || want.Keys[1].Reveal() != "k-two" {
		t.Fatalf("key %q, keys %v", got, want.Keys)
	}

	var got ils
	list, err := configgroup.SettingsOf(&got)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got.Tags, []string{"a", "b"}) {
		t.Errorf("default %v", got.Tags)
	}
	values := map[string][]string{
		"url": {"https://ils.example/api?token=hidden"}, "tls.ca_file": {"/ca.pem"}, "keys": {"k-one", "k-two"}, "tags": {"a", "b"}, "actions": {block},
	}
	var shown, secrets []string
	for _, s := range list {
		if err := s.Set(values[s.Key]); err != nil {
			t.Errorf("%s: %v", s.Key, err)
		}
		shown = append(shown, fmt.Sprintf("%s", s.Value()))
		secrets = append(secrets, s.Reveal()...)
	}
	if len(list) != len(values) || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	slices.Sort(secrets)
	if !slices.Equal(secrets, []string{"in-a-file", "k-one", "k-two", "plain-secret"}) {
		t.Errorf("secrets %q", secrets)
	}
	for _, secret := range append(secrets, "hidden") {
		if strings.Contains(strings.Join(shown, " "), secret) {
			t.Errorf("%q shows a secret", shown)
		}
	}
	for _, s := range list {
		if s.Clear(); !s.IsEmpty() {
			t.Errorf("%s is not empty", s.Key)
		}
	}
}

func TestSettings_refuse_blocks_that_do_not_fit(t *testing.T) {
	t.Parallel()
	const marker = "SECRET123"
	for text, want := range map[string]string{
		`{"renew":{"metod":"` + marker + `"}}`: `renew.metod: is not known; did you mean method?`,
		`{"renew":{"something":1}}`:            "renew.something: is not known; there are header, method",
		`{"renew":{"method":7}}`:               "renew.method: wants a text, found a number; put it in quotes",
		`{"renew":[]}`:                         "renew: wants keys and values, found a list",
		`[]`:                                   "ACTIONS: wants keys and values, found a list",
		`{"renew"`:                             "not JSON",
		`{} {}`:                                "more than one",
		`{"renew":{"header":{"a":{"flie":"` + marker + `"}}}}`: `renew.header.a: a secret is a text in quotes, or {"file": "/path"}`,
		`{"renew":{"header":{"a":{"file":"/nowhere"}}}}`:       "renew.header.a: open /nowhere",
		`{"renew":{"METHOD":"PUT","metod":1,"methd":2},"x":1}`: "renew.methd: is not known; did you mean method?\nMILLBRIDGE_ILS_ACTIONS: renew.metod: is not known; did you mean method?\nMILLBRIDGE_ILS_ACTIONS: x: wants keys",
	} {
		_, err := configgroup.Load[ils]("ils", configgroup.Environ([]string{"MILLBRIDGE_ILS_URL=https://ils.example", "MILLBRIDGE_ILS_ACTIONS=" + text}))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), marker) {
			t.Errorf("%s: error %v, want %q", text, err, want)
		}
	}
	for _, bad := range []any{ils{}, (*ils)(nil), "x"} {
		if _, err := configgroup.SettingsOf(bad); err == nil {
			t.Errorf("%T has settings", bad)
		}
	}
}
