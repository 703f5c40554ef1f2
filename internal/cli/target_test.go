package cli_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const targetsText = `
targets:
  crm:
    type: webhook
    url: https://crm.example.com/hooks/SECRET123?token=SECRET123
    secrets: [whsec_SECRET123SECRET123SECRET123SECRE]
  audit:
    type: webhook
    url: https://audit.example.com/
    events: [order.>]
`

func targetsConfig(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "millbridge.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestTarget_list(t *testing.T) {
	t.Parallel()
	file := targetsConfig(t, targetsText)
	r := call(t, "", nil, "target", "list", "--config", file)
	if r.code != 0 || !strings.Contains(r.stdout, "audit  webhook  events order.>") || !strings.Contains(r.stdout, "crm    webhook  all jobs") {
		t.Errorf("%s", r)
	}
	r = call(t, "", nil, "target", "list", "--config", file, "--json")
	lines := strings.Split(strings.TrimSpace(r.stdout), "\n")
	var got struct {
		Name, Type string
		Events     []string
	}
	if err := json.Unmarshal([]byte(lines[0]), &got); err != nil || len(lines) != 2 || got.Name != "audit" || got.Type != "webhook" || len(got.Events) != 1 {
		t.Errorf("%v: %s", err, r)
	}
	if strings.Contains(r.stdout, "SECRET123") {
		t.Errorf("a secret: %s", r)
	}
	if r := call(t, "", nil, "target", "list", "--data-dir", t.TempDir()); r.code != 0 || !strings.Contains(r.stdout, "no targets") {
		t.Errorf("%s", r)
	}
}

func TestTarget_test_shows_what_would_be_sent(t *testing.T) {
	t.Parallel()
	file := targetsConfig(t, targetsText)
	r := call(t, "", nil, "target", "test", "crm", "contact.update", `{"id": 7}`, "--key", "contact-7", "--config", file)
	for _, want := range []string{"POST https://crm.example.com/", "idempotency-key: contact-7", `"id": 7`} {
		if !strings.Contains(r.stdout, want) {
			t.Errorf("%q is missing: %s", want, r)
		}
	}
	if r.code != 0 || strings.Contains(r.stdout+r.stderr, "SECRET123") {
		t.Errorf("%s", r)
	}
	r = call(t, "", nil, "target", "test", "audit", "order.placed", "{}", "--config", file, "--json")
	var p struct {
		Do     string
		Header map[string]string
	}
	if err := json.Unmarshal([]byte(r.stdout), &p); err != nil || !strings.HasPrefix(p.Do, "POST https://audit.example.com") || len(p.Header) == 0 {
		t.Errorf("%v: %s", err, r)
	}
	for want, args := range map[string][]string{
		"there is no target nobody":       {"nobody", "x"},
		"does not subscribe to user.born": {"audit", "user.born"},
		"would be refused when":           {"crm", "not a name"},
		"needs a target and an action":    {},
	} {
		r := call(t, "", nil, append(append([]string{"target", "test"}, args...), "--config", file)...)
		if r.code == 0 || !strings.Contains(r.stderr, want) || strings.Contains(r.stderr, "millbridge status") {
			t.Errorf("%q: %s", want, r)
		}
	}
}

func TestConfig_print_shows_what_could_be_read_of_a_wrong_file(t *testing.T) {
	t.Parallel()
	file := targetsConfig(t, targetsText+"  misspelt: {type: webhook, ulr: x}\n")
	for _, flag := range []string{"--json=false", "--json"} {
		r := call(t, "", nil, "config", "print", "--config", file, flag)
		if r.code != 1 || !strings.Contains(r.stdout, "stop_timeout") || !strings.Contains(r.stderr, "did you mean targets.misspelt.url?") || strings.Contains(r.stdout+r.stderr, "SECRET123") {
			t.Errorf("%s", r)
		}
	}
}
