package cli_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/millbridge/millbridge/internal/testkit"
)

func scrape(address string) (string, error) {
	res, err := http.Get("http://" + address + "/metrics")
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if res.StatusCode != http.StatusOK || !strings.HasPrefix(res.Header.Get("Content-Type"), "text/plain; version=0.0.4") {
		err = errors.Join(err, fmt.Errorf("%s, %s", res.Status, res.Header.Get("Content-Type")))
	}
	return string(body), err
}

// TestRun_serves_metrics scrapes a running bridge, which stops with the listener.
func TestRun_serves_metrics(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	dir, address := t.TempDir(), taken.Addr().String()
	if r := call(t, "", nil, "run", "--migrate", "--data-dir", dir, "--set", "metrics.listen="+address); r.code != 1 || !strings.Contains(r.stderr, "metrics.listen") {
		t.Errorf("the address is in use: %s", r)
	}
	taken.Close()
	run := start(t, "run", "--migrate", "--data-dir", dir, "--set", "metrics.listen="+address)
	testkit.Eventually(t, testTimeout, func() error {
		text, err := scrape(address)
		if err == nil && !strings.Contains(text, "millbridge_unaccounted_messages") {
			err = errors.New(text)
		}
		return err
	})
	text, err := scrape(address)
	if err != nil {
		t.Fatal(err)
	}
	contains(t, text, "# TYPE millbridge_unaccounted_messages gauge\nmillbridge_unaccounted_messages{stream=\"jobs\"} 0\nmillbridge_unaccounted_messages{stream=\"events\"} 0\n",
		`millbridge_waiting_rows{stream="jobs",table="outbox"} 0`, "millbridge_verification_failing 0\n", "millbridge_dead_letters 0\n",
		"# TYPE millbridge_circuit_open gauge\n", "# TYPE millbridge_handler_disabled gauge\n")
	seen := map[string]bool{}
	for line := range strings.Lines(text) {
		name, _, _ := strings.Cut(line, " ")
		if !strings.HasPrefix(line, "#") && (seen[name] || !strings.HasPrefix(name, "millbridge_")) {
			t.Errorf("a bad line, or twice: %s", line)
		}
		seen[name] = !strings.HasPrefix(line, "#")
	}
	if res, err := http.Get("http://" + address + "/"); err != nil || res.StatusCode != http.StatusNotFound {
		t.Errorf("another path: %v %v", res, err)
	} else {
		res.Body.Close()
	}
	if code := run.end(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if _, err := scrape(address); err == nil {
		t.Error("it listens after the end")
	}
}
