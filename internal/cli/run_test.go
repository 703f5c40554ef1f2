package cli_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"

	"github.com/millbridge/millbridge/handlers/webhook"
	"github.com/millbridge/millbridge/internal/cli"
	"github.com/millbridge/millbridge/internal/embedded"
	"github.com/millbridge/millbridge/internal/filelock"
	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/publishers/jetstream"
)

// process is a command that stays up.
type process struct {
	stop func()
	code chan int

	mu       sync.Mutex
	out, err bytes.Buffer
}

type lockedWriter struct {
	p *process
	b *bytes.Buffer
}

func (w lockedWriter) Write(b []byte) (int, error) {
	w.p.mu.Lock()
	defer w.p.mu.Unlock()
	return w.b.Write(b)
}

func (p *process) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.String() + p.err.String()
}

func start(t *testing.T, args ...string) *process {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	p := &process{stop: stop, code: make(chan int, 1)}
	go func() {
		p.code <- cli.Main(ctx, args, cli.Env{
			Stdin: strings.NewReader(""), Stdout: lockedWriter{p, &p.out}, Stderr: lockedWriter{p, &p.err}, Now: time.Now,
			Getenv: func(string) string { return "" },
		})
	}()
	t.Cleanup(func() {
		stop()
		select {
		case code := <-p.code:
			p.code <- code
		case <-time.After(testTimeout):
			t.Errorf("%v does not stop", args)
		}
		if t.Failed() {
			t.Logf("%v printed\n%s", args, p.text())
		}
	})
	return p
}

// end stops the process and returns its exit code.
func (p *process) end() int {
	p.stop()
	code := <-p.code
	p.code <- code
	return code
}

const testSecret = "whsec_dGVzdHRlc3R0ZXN0dGVzdHRlc3R0ZXN0"

// receiver is somebody's HTTP server. It fails as long as broken says so.
type receiver struct {
	url string

	mu     sync.Mutex
	broken bool
	got    []string
}

func newReceiver(t *testing.T) *receiver {
	r := &receiver{}
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	r.url = server.URL + "/hook"
	return r
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err != nil || webhook.Verify(testSecret, req.Header, body, 0) != nil:
		http.Error(w, "bad signature", http.StatusUnauthorized)
	case r.broken:
		http.Error(w, "broken", http.StatusInternalServerError)
	default:
		r.got = append(r.got, string(body))
	}
}

func (r *receiver) has(want ...string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if fmt.Sprint(r.got) != fmt.Sprint(want) {
		return fmt.Errorf("received %q, want %q", r.got, want)
	}
	return nil
}

func (r *receiver) set(broken bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.broken = broken
}

// targetsFile writes a configuration with a target crm and a subscription audit at the receiver.
func targetsFile(t *testing.T, r *receiver) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "millbridge.yaml")
	text := fmt.Sprintf(`
nats: {replicas: 1}
targets:
  crm:
    type: webhook
    url: %s
    secrets: [%s]
    retry: {max_attempts: 2, base: 50ms, factor: 1}
    allow_private: true
  audit:
    type: webhook
    url: %s
    secrets: [%s]
    events: [order.>]
    allow_private: true
`, r.url, testSecret, r.url, testSecret)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestRun_serves_webhooks_and_recovers_by_replay(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		r := newReceiver(t)
		p := start(t, append([]string{"run", "--config", targetsFile(t, r)}, w.flags...)...)
		w.must(t, "publish", "job", "crm", "x", "one")
		testkit.Eventually(t, testTimeout, func() error { return r.has("one") })
		w.must(t, "publish", "event", "order.placed", "two")
		testkit.Eventually(t, testTimeout, func() error { return r.has("one", "two") })

		r.set(true)
		id := w.must(t, "publish", "job", "crm", "x", "three", "--json").objects(t)[0]["id"].(string)
		testkit.Eventually(t, testTimeout, func() error {
			if n := len(w.must(t, "poison", "list", "--json").objects(t)); n != 1 {
				return fmt.Errorf("%d messages in the poison queue", n)
			}
			return nil
		})
		contains(t, w.must(t, "show", id).stdout, "inbox of crm: dead (exhausted) after 2 failed attempts", "500")
		r.set(false)
		w.must(t, "poison", "replay", id)
		testkit.Eventually(t, testTimeout, func() error { return r.has("one", "two", "three") })
		testkit.Eventually(t, testTimeout, func() error {
			if st := w.run(t, "status", "--tally", "--json"); st.code != 0 || !strings.Contains(st.stdout, `"balanced":true`) {
				return fmt.Errorf("%s", st)
			}
			return nil
		})
		contains(t, w.must(t, "show", id).stdout, "inbox of crm: done replay 1", "dead of crm: replayed")
		if code := p.end(); code != 0 {
			t.Errorf("run ended with %d:\n%s", code, p.text())
		}
		contains(t, p.text(), "bridge runs", "bridge stopped")
	})
}

func TestRun_drain_works_until_nothing_is_due(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		r := newReceiver(t)
		for i := range 20 {
			w.must(t, "publish", "job", "crm", "x", fmt.Sprint(i))
		}
		w.must(t, "publish", "job", "crm", "later", "--due", "1h")
		got := w.must(t, "run", "--drain", "--config", targetsFile(t, r)).objects(t)[0]
		if got["handled"] != 20.0 || got["forwarder"].(map[string]any)["sent"] != 20.0 {
			t.Errorf("tally: %v", got)
		}
		if rows := w.must(t, "outbox", "list", "--status", "scheduled", "--json").objects(t); len(rows) != 1 {
			t.Errorf("scheduled: %v", rows)
		}
		if got := w.must(t, "run", "--drain", "--config", targetsFile(t, r)).objects(t)[0]; got["handled"] != 0.0 {
			t.Errorf("a second time: %v", got)
		}
	})
}

func TestRun_refuses_a_database_that_is_not_migrated(t *testing.T) {
	t.Parallel()
	pool, server := testkit.EmptyPostgres(t), testkit.NATS(t)
	flags := []string{"--database-url", testkit.PostgresURL(pool), "--nats-url", server.URL(), "--set", "nats.replicas=1"}
	r := call(t, "", nil, append([]string{"run"}, flags...)...)
	if r.code != 1 || !strings.Contains(r.stderr, "millbridge run --migrate") {
		t.Errorf("got %s", r)
	}
	if r = call(t, "", nil, append([]string{"verify"}, flags...)...); r.code != 1 || !strings.Contains(r.stderr, "Try: `millbridge migrate up`") {
		t.Errorf("verify: %s", r)
	}
	if r = call(t, "", nil, append([]string{"migrate", "up"}, flags...)...); r.code != 0 {
		t.Errorf("migrate: %s", r)
	}
	r = call(t, "", nil, append([]string{"status"}, flags...)...)
	if r.code != 3 || strings.Count(r.stdout, "`millbridge run` makes it") != 3 || strings.Contains(r.stdout, "repair") {
		t.Errorf("status before the first run: %s", r)
	}
	if r = call(t, "", nil, append([]string{"migrate", "down", "--yes"}, flags...)...); r.code != 0 {
		t.Errorf("migrate down: %s", r)
	}
	if r = call(t, "", nil, append([]string{"run", "--migrate", "--drain"}, flags...)...); r.code != 0 {
		t.Errorf("with --migrate: %s", r)
	}
}

func TestRun_waits_for_NATS_and_says_so(t *testing.T) {
	t.Parallel()
	pool, server := testkit.Postgres(t), testkit.NATS(t)
	server.Stop()
	r := newReceiver(t)
	flags := []string{"--config", targetsFile(t, r), "--database-url", testkit.PostgresURL(pool), "--nats-url", server.URL()}
	p := start(t, append([]string{"run"}, flags...)...)
	if pub := call(t, "", nil, append([]string{"publish", "job", "crm", "x", "one"}, flags...)...); pub.code != 0 {
		t.Fatal(pub)
	}
	testkit.Eventually(t, testTimeout, func() error {
		if !strings.Contains(p.text(), "waiting for database and NATS") || !strings.Contains(p.text(), "NATS cannot be reached: dial tcp") {
			return fmt.Errorf("it says %q", p.text())
		}
		return nil
	})
	server.Restart()
	testkit.Eventually(t, testTimeout, func() error { return r.has("one") })
	if code := p.end(); code != 0 {
		t.Errorf("run ended with %d", code)
	}
}

// A user that the server does not know yet, or whose password was changed there first, is let in when that is put right.
func TestRun_waits_for_NATS_to_let_it_in(t *testing.T) {
	t.Parallel()
	const password = "the-new-password"
	pool, server := testkit.Postgres(t), testkit.NATS(t, func(o *natsserver.Options) { o.Username, o.Password = "bridge", "the-old-password" })
	r := newReceiver(t)
	flags := []string{
		"--config", targetsFile(t, r), "--database-url", testkit.PostgresURL(pool), "--nats-url", server.URL(),
		"--set", "nats.user=bridge", "--set", "nats.password=" + password,
	}
	p := start(t, append([]string{"run"}, flags...)...)
	if pub := call(t, "", nil, append([]string{"publish", "job", "crm", "x", "one"}, flags...)...); pub.code != 0 {
		t.Fatal(pub)
	}
	awaitText(t, p, "NATS cannot be reached: nats: Authorization Violation")
	testkit.Eventually(t, testTimeout, func() error { // a client that gives up gives up at the second refusal
		if n := strings.Count(p.text(), "waiting for database and NATS"); n < 4 {
			return fmt.Errorf("it has asked %d times", n)
		}
		return nil
	})
	server.Reload(func(o *natsserver.Options) { o.Password = password })
	testkit.Eventually(t, testTimeout, func() error { return r.has("one") })
	if code := p.end(); code != 0 {
		t.Errorf("run ended with %d", code)
	}
	if strings.Contains(p.text(), password) {
		t.Error("the password is printed")
	}
}

func TestRun_asks_for_three_copies_unless_told(t *testing.T) {
	t.Parallel()
	pool, server := testkit.Postgres(t), testkit.NATS(t)
	r := call(t, "", nil, "run", "--drain", "--database-url", testkit.PostgresURL(pool), "--nats-url", server.URL())
	if r.code != 1 || !strings.Contains(r.stderr, "nats.replicas") {
		t.Errorf("one server cannot hold three copies: %s", r)
	}
	if err := jetstream.EnsureStreams(t.Context(), server.JetStream(t), jetstream.StreamsConfig{}); err != nil {
		t.Fatal(err)
	}
	r = call(t, "", nil, "run", "--drain", "--database-url", testkit.PostgresURL(pool), "--nats-url", server.URL())
	if r.code != 1 || !strings.Contains(r.stderr, "replicas is 1, want 3 or more, as nats.replicas (Replicas in Go) asks for") {
		t.Errorf("streams with one copy: %s", r)
	}
}

func TestDev_says_how_to_connect_and_echoes(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	p := start(t, "dev", "--data-dir", dir)
	awaitText(t, p, "NATS    nats://", filepath.Join(dir, "millbridge.db"), "millbridge publish job echo say")
	flags := []string{"--data-dir", dir}
	run := func(args ...string) result {
		r := call(t, "", nil, append(args, flags...)...)
		if r.code != 0 {
			t.Fatalf("%v: %s", args, r)
		}
		return r
	}
	run("publish", "job", "echo", "say", "hello\x1b")
	run("publish", "event", "order.placed", "seven")
	run("publish", "job", "echo", "fail")
	awaitText(t, p, `hello\x1b`, "order.placed", "seven", "failed")
	testkit.Eventually(t, testTimeout, func() error {
		if n := len(run("poison", "list", "--json").objects(t)); n != 1 {
			return fmt.Errorf("%d given up", n)
		}
		return nil
	})
	run("poison", "replay", "--all")
	awaitText(t, p, "job    fail")
	if r := call(t, "", nil, "dev", "--data-dir", dir); r.code != 1 || !strings.Contains(r.stderr, "another process runs") {
		t.Errorf("dev twice: %s", r)
	}
	if code := p.end(); code != 0 {
		t.Errorf("dev ended with %d", code)
	}
	if r := call(t, "", nil, "dev", "--database-url", "postgres://h/d", "--nats-url", "nats://h"); r.code != 2 {
		t.Errorf("dev with servers: %s", r)
	}
}

func awaitText(t *testing.T, p *process, wants ...string) {
	t.Helper()
	testkit.Eventually(t, testTimeout, func() error {
		for _, want := range wants {
			if !strings.Contains(p.text(), want) {
				return fmt.Errorf("%q was not printed", want)
			}
		}
		return nil
	})
}

func TestDemo_command(t *testing.T) {
	t.Parallel()
	r := call(t, "", nil, "demo")
	if r.code != 0 {
		t.Fatal(r)
	}
	contains(t, r.stdout, "A small shop", "rolled back", "into the poison queue", "stored", "balanced: nothing lost, nothing doubled")
	if strings.Contains(r.stdout, "\x1b") {
		t.Error("there are colours where nobody looks")
	}
	_, rest, _ := strings.Cut(r.stdout, "data in ")
	dir, _, _ := strings.Cut(rest, "\n")
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the demo left %s behind: %v", dir, err)
	}

	kept := filepath.Join(t.TempDir(), "kept")
	r = call(t, "", nil, "demo", "--orders", "3", "--seed", "9", "--json", "--data-dir", kept)
	if r.code != 0 {
		t.Fatal(r)
	}
	all := r.objects(t)
	if report := all[len(all)-1]; report["tried"] != 3.0 || report["tally"].(map[string]any)["balanced"] != true {
		t.Errorf("report: %v", report)
	}
	r = call(t, "", nil, "status", "--tally", "--data-dir", kept)
	contains(t, r.stdout, "balanced: nothing lost", "archive")
	if r = call(t, "", nil, "demo", "--data-dir", kept); r.code != 1 {
		t.Errorf("a second demo in the same directory: %s", r)
	}
	if r = call(t, "", nil, "demo", "--orders", "0"); r.code != 2 {
		t.Errorf("no orders: %s", r)
	}
}

// A stop while the data directory is being opened is a stop like any other.
func TestRun_stopped_while_it_opens(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if r := callContext(ctx, "", nil, "run", "--data-dir", filepath.Join(t.TempDir(), "data")); r.code != 0 {
		t.Errorf("run ends with %d: %s", r.code, r.stderr)
	}
}

// The process that runs the data directory dies while run attaches to it: run takes its place.
func TestRun_follows_a_process_that_dies_meanwhile(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	lock, err := filelock.Acquire(filepath.Join(dir, "lock"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(lock.Release)
	dying, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dying.Close() })
	address := fmt.Sprintf(`{"version": 1, "pid": %d, "address": %q, "token": "x"}`, os.Getpid(), dying.Addr())
	if err := os.WriteFile(filepath.Join(dir, "millbridge.json"), []byte(address), 0o600); err != nil {
		t.Fatal(err)
	}
	p := start(t, "run", "--data-dir", dir)
	conn, err := dying.Accept()
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	lock.Release()
	testkit.Eventually(t, testTimeout, func() error {
		if text := p.text(); !strings.Contains(text, "bridge runs") {
			return fmt.Errorf("it says %q", text)
		}
		return nil
	})
}

// A command that looks into the data directory may run it when `run` starts. When the command ends, `run` goes on alone.
func TestRun_succeeds_the_command_it_has_found(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	command, err := embedded.Open(t.Context(), dir, embedded.Options{Logger: testkit.Logger(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer command.Close()
	r := newReceiver(t)
	p := start(t, "run", "--data-dir", dir, "--config", targetsFile(t, r))
	awaitText(t, p, "bridge runs")
	if err := command.Close(); err != nil {
		t.Fatal(err)
	}
	awaitText(t, p, "runs the data directory")
	if res := call(t, "", nil, "publish", "job", "crm", "x", "one", "--data-dir", dir); res.code != 0 {
		t.Fatal(res)
	}
	testkit.Eventually(t, testTimeout, func() error { return r.has("one") })
	if code := p.end(); code != 0 {
		t.Errorf("run ended with %d:\n%s", code, p.text())
	}
}
