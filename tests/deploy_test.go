package tests

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millbridge/millbridge/internal/config"
)

// credentials is where systemd hands secrets to the unit.
const credentials = "/run/credentials/millbridge.service/"

// unit is a systemd unit's settings: key -> values, in order.
func unit(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("../deploy/millbridge.service")
	if err != nil {
		t.Fatal(err)
	}
	settings := map[string][]string{}
	for line := range strings.SplitSeq(string(text), "\n") {
		if line == "" || strings.HasPrefix(line, "#") || strings.HasPrefix(line, "[") {
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		if !ok {
			t.Fatalf("not a setting: %q", line)
		}
		settings[key] = append(settings[key], value)
	}
	return settings
}

// exampleConfig writes the example configuration with its secrets in a place of this test's, and returns its path.
func exampleConfig(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../deploy/millbridge.yaml")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir() + "/"
	for name, content := range map[string]string{
		"database-url":      "postgres://bridge:SECRET123@db.internal:5432/shop?sslmode=verify-full\n",
		"nats-creds":        "SECRET123\n",
		"crm-secrets":       "whsec_U0VDUkVUMTIzU0VDUkVUMTIzU0VDUkVUMTIz\n",
		"warehouse-secrets": "whsec_U0VDUkVUMTIzU0VDUkVUMTIzU0VDUkVUMTI0\n",
	} {
		if err := os.WriteFile(dir+name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(dir, "millbridge.yaml")
	if err := os.WriteFile(file, bytes.ReplaceAll(text, []byte(credentials), []byte(dir)), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestDeploy_configuration_is_accepted(t *testing.T) {
	t.Parallel()
	c, err := config.Load(config.Source{File: exampleConfig(t)})
	if err != nil {
		t.Fatalf("the example configuration: %v", err)
	}
	if c.Embedded() || c.Replicas() != 3 || len(c.NATS.URLs) != 3 {
		t.Errorf("embedded %v, %d replicas, %d NATS servers; want a cluster of three", c.Embedded(), c.Replicas(), len(c.NATS.URLs))
	}
	if got := c.TargetNames(); !slices.Equal(got, []string{"crm", "warehouse"}) {
		t.Errorf("targets %v", got)
	}
	for _, name := range c.TargetNames() {
		for _, v := range c.Values() {
			unsigned := v.Key == "targets."+name+".secrets" && fmt.Sprint(v.Value) == "[]"
			if unsigned || v.Key == "targets."+name+".allow_private" && v.Value != false {
				t.Errorf("%s is %v; want signed and public", v.Key, v.Value)
			}
		}
	}
}

func TestDeploy_unit_starts_what_the_configuration_describes(t *testing.T) {
	t.Parallel()
	settings := unit(t)
	exec := strings.Fields(strings.Join(settings["ExecStart"], " "))
	if len(exec) < 2 || exec[1] != "run" {
		t.Fatalf("ExecStart=%v, want millbridge run", exec)
	}
	if fault := help(t, exec[1:]); fault != "" {
		t.Errorf("ExecStart=%v: %s", exec, fault)
	}

	text, err := os.ReadFile("../deploy/millbridge.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var wanted, given []string
	for _, m := range regexp.MustCompile(regexp.QuoteMeta(credentials)+`(\S+)`).FindAllSubmatch(text, -1) {
		wanted = append(wanted, string(m[1]))
	}
	for _, c := range settings["LoadCredential"] {
		name, _, _ := strings.Cut(c, ":")
		given = append(given, name)
	}
	slices.Sort(wanted)
	slices.Sort(given)
	if len(wanted) == 0 || !slices.Equal(wanted, given) {
		t.Errorf("the configuration reads the credentials %v, the unit loads %v", wanted, given)
	}

	c, err := config.Load(config.Source{File: exampleConfig(t)})
	if err != nil {
		t.Fatal(err)
	}
	stop, err := time.ParseDuration(strings.Join(settings["TimeoutStopSec"], ""))
	if err != nil || stop <= time.Duration(c.StopTimeout) {
		t.Errorf("TimeoutStopSec=%v (%v) is not longer than stop_timeout %v", stop, err, time.Duration(c.StopTimeout))
	}
}

func TestDeploy_unit_is_hardened(t *testing.T) {
	t.Parallel()
	settings := unit(t)
	for key, want := range map[string]string{
		"DynamicUser": "yes", "NoNewPrivileges": "yes", "ProtectSystem": "strict", "ProtectHome": "yes", "PrivateTmp": "yes",
		"PrivateDevices": "yes", "RestrictNamespaces": "yes", "MemoryDenyWriteExecute": "yes", "CapabilityBoundingSet": "",
		"Restart": "always", "UMask": "0077",
	} {
		if got, ok := settings[key]; !ok || strings.Join(got, " ") != want {
			t.Errorf("%s=%v, want %q", key, got, want)
		}
	}
}
