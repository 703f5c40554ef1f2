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
