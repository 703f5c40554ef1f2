package cases

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/publishers/jetstream"
	"github.com/millbridge/millbridge/router"
	"github.com/millbridge/millbridge/schema"
	"github.com/millbridge/millbridge/schema/postgres"
	"github.com/millbridge/millbridge/schema/sqlite"
)

// processSpec describes a bridge in a process of its own.
type processSpec struct {
	Name      string // of its forwarder
	DSN, File string
	NATS      string
	Lease     time.Duration // of the forwarder
	Targets   []string      // each handled job is a line on standard output
}

const processEnv = "MILLBRIDGE_TEST_CASES_PROCESS"

// TestProcess is the process of a test; by itself it does nothing.
func TestProcess(t *testing.T) {
	text := os.Getenv(processEnv)
	if text == "" {
		return
	}
	var spec processSpec
	if err := json.Unmarshal([]byte(text), &spec); err != nil {
		t.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	conn, err := nats.Connect(spec.NATS, append(jetstream.ConnectOptions(), nats.ReconnectWait(50*time.Millisecond))...)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	b, err := router.Open(ctx, router.Config{
		Store: spec.store(t), Conn: conn, Heartbeat: time.Second,
		Forwarder: jetstream.ForwarderConfig{Name: spec.Name, Lease: spec.Lease, RetryMax: 500 * time.Millisecond},
		Logger:    slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range spec.Targets {
		err := b.Target(handlers.Target{Name: name, Handler: handlers.HandlerFunc(func(_ context.Context, env schema.Envelope) error {
			fmt.Println("handled", name, env.ID)
			return nil
		})})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Run(ctx); err != nil {
		t.Fatal(err)
	}
}

func (spec processSpec) store(t *testing.T) router.Store {
	if spec.File != "" {
		write, read := testkit.OpenSQLite(t, spec.File)
		return sqlite.New(write, read, sqlite.Options{})
	}
	pool, err := pgxpool.New(t.Context(), spec.DSN)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return postgres.New(pool, postgres.Options{})
}

// process is a process that runs.
type process struct {
	cmd  *exec.Cmd
	mu   sync.Mutex
	text bytes.Buffer // standard output and error
}

func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(b)
}

func (p *process) output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

// says waits until p has printed each of the texts.
func (p *process) says(t *testing.T, texts ...string) {
	t.Helper()
	testkit.Eventually(t, 2*time.Minute, func() error {
		for _, text := range texts {
			if out := p.output(); !strings.Contains(out, text) {
				return fmt.Errorf("it does not say %q:\n%s", text, out)
			}
		}
		return nil
	})
}

// signal sends s to p; after SIGKILL p has ended when it returns.
func (p *process) signal(t *testing.T, s os.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
	if s == os.Kill {
		if err := p.cmd.Wait(); p.cmd.ProcessState == nil {
			t.Fatal(err)
		}
	}
}

// launch starts a process on the world's database and server; the environment may be added to.
func (w *world) launch(t *testing.T, spec processSpec, env ...string) *process {
	t.Helper()
	spec.DSN, spec.File, spec.NATS = w.dsn, w.file, w.nats.URL()
	text, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	p := &process{cmd: exec.Command(os.Args[0], "-test.run=^TestProcess$", "-test.timeout=5m")}
	p.cmd.Env = append(append(os.Environ(), processEnv+"="+string(text)), env...)
	p.cmd.Stdout, p.cmd.Stderr = p, p
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if p.cmd.ProcessState == nil {
			_ = p.cmd.Process.Kill()
			_ = p.cmd.Wait()
		}
		if t.Failed() {
			t.Logf("process %s printed:\n%s", spec.Name, p.output())
		}
	})
	return p
}

// numbered makes n events that count on from first and share an ordering key.
func numbered(first, n int) []schema.Envelope {
	envs := make([]schema.Envelope, n)
	for i := range envs {
		envs[i] = schema.NewEvent("count", fmt.Appendf(nil, "%d", first+i), schema.WithOrderingKey("one"))
	}
	return envs
}

// inOrder checks that the events of numbered are in the stream, each once and in order.
func (w *world) inOrder(t *testing.T, n int) {
	t.Helper()
	stream, err := testkit.JetStream(t, w.conn).Stream(t.Context(), "MB_EVENTS")
	if err != nil {
		t.Fatal(err)
	}
	next := uint64(1)
	for i := range n + 1 {
		m, err := stream.GetMsg(t.Context(), next, natsjs.WithGetMsgSubject("mb.events.>"))
		if i == n {
			if err == nil {
				t.Errorf("the stream has more than %d events, the next is %s", n, m.Data)
			}
			return
		}
		if err != nil {
			t.Fatalf("event %d of %d: %v", i, n, err)
		}
		if string(m.Data) != fmt.Sprint(i) {
			t.Fatalf("event %d of the stream is %s", i, m.Data)
		}
		next = m.Sequence + 1
	}
}
