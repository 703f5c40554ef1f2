package cli

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/millbridge/millbridge/internal/config"
	"github.com/millbridge/millbridge/internal/ops"
	"github.com/millbridge/millbridge/schema"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares text with a file in testdata; -update writes the file.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v; go test ./internal/cli -update writes it", err)
	}
	if got != string(want) {
		t.Errorf("%s differs; go test ./internal/cli -update writes it anew. Got\n%s", file, got)
	}
}

// testApp writes to a buffer.
func testApp() (*app, *bytes.Buffer) {
	var out bytes.Buffer
	return &app{env: Env{
		Stdin: strings.NewReader(""), Stdout: &out, Stderr: &out, Getenv: func(string) string { return "" },
		Now: func() time.Time { return time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC) },
	}}, &out
}

func TestHelp_of_every_command(t *testing.T) {
	t.Parallel()
	var all bytes.Buffer
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		if !cmd.IsAvailableCommand() && cmd.HasParent() {
			return
		}
		path := strings.Fields(cmd.CommandPath())[1:]
		a, out := testApp()
		root := a.root()
		root.SetArgs(append(path, "--help"))
		if err := root.ExecuteContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		text, _, _ := strings.Cut(out.String(), "\nGlobal Flags:")
		all.WriteString("$ " + cmd.CommandPath() + " --help\n" + text + "\n")
		if cmd.HasParent() && !cmd.HasSubCommands() && cmd.Example == "" {
			t.Errorf("%s has no example", cmd.CommandPath())
		}
		for line := range strings.Lines(text) {
			if len([]rune(strings.TrimSuffix(line, "\n"))) > 120 {
				t.Errorf("%s: a line of the help is longer than 120 characters: %s", cmd.CommandPath(), line)
			}
		}
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	a, _ := testApp()
	walk(a.root())
	golden(t, "help", all.String())
}

func TestErrors_are_printed_without_secrets_and_control_characters(t *testing.T) {
	t.Parallel()
	a, out := testApp()
	c, err := config.Parse("m.yaml", []byte("database: {url: 'postgres://u:SECRET123@h/d'}\nnats: {url: 'nats://h'}"))
	if err != nil {
		t.Fatal(err)
	}
	a.flags.config = c
	failed := withHint(errors.New("cannot dial postgres://u:SECRET123@h/d\nno \x1b[31mroute"), "look at SECRET123")
	if code := a.finish(a.root(), failed); code != exitFailed {
		t.Errorf("exit code %d", code)
	}
	if want := "Error: cannot dial postgres://u:***@h/d\n       no \\x1b[31mroute\nTry: look at ***\n"; out.String() != want {
		t.Errorf("got\n%swant\n%s", out, want)
	}
	out.Reset()
	a.logger(c).Warn("lost", "error", "dial postgres://u:SECRET123@h/d")
	if strings.Contains(out.String(), "SECRET123") || !strings.Contains(out.String(), "lost") {
		t.Errorf("the log has %s", out)
	}
}

func TestStatus_rendering(t *testing.T) {
	t.Parallel()
	a, out := testApp()
	at := time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC)
	a.printStatus("postgres://app:***@db/shop and nats://n1:4222", ops.Status{
		Reasons:  []string{"target erp has no consumer, messages waiting (stream): 3; start a process that knows the target"},
		Notes:    []string{"dead letters: 2; see `millbridge poison list`"},
		Database: ops.Database{Reachable: true, SchemaVersion: 1, SchemaWanted: 1, Outbox: "4f1b", Bound: true},
		NATS:     ops.NATS{Reachable: true, Version: "2.15.3"},
		Backlogs: []ops.Backlog{{Where: "outbox", Stream: schema.Jobs, Group: "crm", Rows: 1200, OldestSeconds: 75}, {Where: "scheduled", Stream: schema.Events, Group: "order.placed", Rows: 2, OldestSeconds: 0.25}},
		Shards:   []ops.Shard{{Stream: schema.Jobs, Owner: "01980a5e-3c1f-7c55-9d0e-1a2b3c4d5e6f", LeaseSeconds: 9.4, Batch: 12, Sent: 4711}, {Stream: schema.Events, Shard: 1}},
		Streams: []ops.Stream{
			{Name: "MB_JOBS", Messages: 3, OldestSeconds: 7300, Bytes: 12345, Replicas: 3, Groups: map[string]int64{"erp": 3, "a\x1b": 1}},
			{Name: "MB_EVENTS", Missing: true},
		},
		Consumers: []ops.Consumer{{Name: "crm", Handlers: []string{"crm"}, Waiting: 5, InFlight: 2, Redelivered: 1, Pulling: true, LastActive: at}},
		Dead:      ops.Dead{Letters: 2, Replayed: 1, AtLeast: true},
	})
	golden(t, "status", out.String())
}

func TestTally_rendering(t *testing.T) {
	t.Parallel()
	a, out := testApp()
	a.printTally(out, ops.Tally{
		Balanced: true, Settled: true,
		Handlers: []ops.HandlerTally{{Name: "crm", Done: 10, Dead: 1, Replays: 2}, {Name: "reports", Subscription: true, Done: 7}},
		Checks:   []ops.Check{{Name: "jobs sent are waiting or settled", Left: 13, Right: 13, How: "0 in the stream + 11 settled + 2 replays", OK: true}},
	})
	a.printTally(out, ops.Tally{
		Waiting: ops.Waiting{Outbox: 2, Jobs: 1},
		Checks:  []ops.Check{{Name: "events sent are in the stream", Left: 5, Right: 4, How: "4 in the stream"}},
	})
	golden(t, "tally", out.String())
}

func TestShow_rendering(t *testing.T) {
	t.Parallel()
	a, out := testApp()
	at := time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC)
	a.printFound(ops.Found{
		ID: "m-1",
		Message: &ops.Message{
			ID: "m-1", Kind: "job", Target: "crm", Name: "contact.update", Key: "k\n1", Tenant: "acme", Time: at, ContentType: "application/json",
			Metadata: map[string]string{"b": "2", "a": "1\x1b"}, Payload: []byte(`{"a":[1,2]}`),
		},
		Places: []ops.Place{
			{At: "inbox", Handler: "crm", State: "running", Attempts: 2, LastError: "error: boom\x1b[31m", NextTry: at.Add(time.Minute), Since: at},
			{At: "stream", Stream: "MB_JOBS", Sequence: 7, Subject: "jobs.crm.contact.update", Since: at},
		},
		Unknown: []string{"dead letters: only a part could be looked through in 1.5s"},
	})
	a.printItem(ops.PoisonItem{
		At: ops.AtHandler, ID: "seq-9", Target: "crm", Cause: "undecodable", Error: "undecodable message", Attempts: 0, Deliveries: 1, Time: at,
		Stack: "goroutine 1:\n\tboom", Message: &ops.Message{Headers: map[string][]string{"X": {"1", "2"}}, Undecodable: "no id", Payload: []byte{0, 1, 0xff}},
	})
	golden(t, "show", out.String())
}
