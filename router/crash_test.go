package router_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/publishers/jetstream"
	"github.com/millbridge/millbridge/router"
	"github.com/millbridge/millbridge/schema"
	"github.com/millbridge/millbridge/schema/postgres"
	"github.com/millbridge/millbridge/schema/sqlite"
)

// process describes a process that handles jobs of the target "fragile" and dies while it does.
type process struct {
	Kind, DSN, NATS string
	Mode            handlers.Mode
	Effect          string // file that gets a line for each effect in the outside world
	AfterEffect     bool   // it dies after the effect, else before
	Breaker         handlers.Breaker
}

const (
	processEnv  = "MILLBRIDGE_TEST_PROCESS"
	processDied = 3 // exit code of a process that died as it should
)

// die starts a process that dies in the handler, and waits for its death.
func (b *bench) die(p process) {
	b.Helper()
	p.Kind, p.DSN, p.NATS = b.kind, b.dsn, b.nats.URL()
	spec, err := json.Marshal(p)
	if err != nil {
		b.Fatal(err)
	}
	cmd := exec.CommandContext(b.Context(), os.Args[0], "-test.run=^TestDyingProcess$", "-test.timeout=1m")
	cmd.Env = append(os.Environ(), processEnv+"="+string(spec))
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != processDied {
		b.Fatalf("the process ended with %v:\n%s", err, out)
	}
}

// TestDyingProcess is what die starts; by itself it does nothing.
func TestDyingProcess(t *testing.T) {
	spec := os.Getenv(processEnv)
	if spec == "" {
		return
	}
	var p process
	if err := json.Unmarshal([]byte(spec), &p); err != nil {
		t.Fatal(err)
	}
	var store router.Store
	if p.Kind == "sqlite" {
		write, read := testkit.OpenSQLite(t, p.DSN)
		store = sqlite.New(write, read, sqlite.Options{})
	} else {
		pool, err := pgxpool.New(t.Context(), p.DSN)
		if err != nil {
			t.Fatal(err)
		}
		defer pool.Close()
		store = postgres.New(pool, postgres.Options{})
	}
	conn, err := nats.Connect(p.NATS, jetstream.ConnectOptions()...)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	bridge, err := router.Open(t.Context(), crashConfig(router.Config{Store: store, Conn: conn, NoForward: true, Logger: testkit.Logger(t)}))
	if err != nil {
		t.Fatal(err)
	}
	policy := crashPolicy(p.Mode)
	policy.Breaker = p.Breaker
	err = bridge.Target(handlers.Target{Name: "fragile", Policy: policy, Handler: handlers.HandlerFunc(
		func(ctx context.Context, _ schema.Envelope) error {
			if p.AfterEffect {
				if err := p.effect(ctx); err != nil {
					return err
				}
			}
			os.Exit(processDied)
			return nil
		})})
	if err != nil {
		t.Fatal(err)
	}
	t.Fatal(bridge.Run(t.Context()))
}

func crashConfig(c router.Config) router.Config {
	c.Lease, c.AckWait, c.Heartbeat = 0, time.Second, 500*time.Millisecond
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func crashPolicy(mode handlers.Mode) handlers.Policy {
	p := quick(3)
	p.Mode = mode
	return p
}

// effect is the handler's work: a row in its transaction, or a line in a file for a world without transactions.
func (p process) effect(ctx context.Context) error {
	if p.Mode == handlers.ModeTx {
		return insertEffect(ctx, p.Kind)
	}
	f, err := os.OpenFile(p.Effect, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(handlers.Key(ctx) + "\n")
	return errors.Join(err, f.Close())
}

func insertEffect(ctx context.Context, kind string) error {
	const insert = "INSERT INTO effects (what) VALUES (1)"
	if kind == "sqlite" {
		tx, err := handlers.Tx[*sql.Tx](ctx)
		if err == nil {
			_, err = tx.ExecContext(ctx, insert)
		}
		return err
	}
	tx, err := handlers.Tx[pgx.Tx](ctx)
	if err == nil {
		_, err = tx.Exec(ctx, insert)
	}
	return err
}

// effects counts the effects, wherever they are.
func (b *bench) effects(p process) int {
	b.Helper()
	if p.Mode == handlers.ModeTx {
		return b.count("SELECT count(*) FROM effects")
	}
	data, err := os.ReadFile(p.Effect)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		b.Fatal(err)
	}
	return strings.Count(string(data), "\n")
}

// forwardJob puts one job of the fragile target into the stream.
func (b *bench) forwardJob() schema.Envelope {
	b.Helper()
	bridge := b.open()
	job := schema.NewJob("fragile", "break", nil, schema.WithKey("the-key"))
	b.publish(bridge, job)
	if _, err := bridge.Drain(b.Context()); err != nil {
		b.Fatal(err)
	}
	return job
}

func (b *bench) newProcess(mode handlers.Mode) process {
	if mode == handlers.ModeTx {
		b.exec("CREATE TABLE effects (what integer)")
	}
	return process{Kind: b.kind, Mode: mode, Effect: filepath.Join(b.TempDir(), "effects")}
}

// The process is killed between "key recorded" and "handler done": the key must not count as done.
func TestC04_process_dies_before_the_effect(t *testing.T) {
	for _, mode := range []handlers.Mode{handlers.ModeLease, handlers.ModeTx} {
		t.Run(mode.String(), func(t *testing.T) {
			onBoth(t, func(t *testing.T, b *bench) {
				job := b.forwardJob()
				p := b.newProcess(mode)
				b.die(p)
				b.restartNATS()
				bridge := b.open(func(c *router.Config) { *c = crashConfig(*c) })
				var seen calls
				b.target(bridge, "fragile", crashPolicy(mode), func(ctx context.Context, env schema.Envelope) error {
					seen.add(env)
					return p.effect(ctx)
				})
				b.run(bridge)
				b.eventually(seen.reaches(1))
				b.awaitNoJobs()
				if n := b.effects(p); n != 1 || seen.count() != 1 || seen.all()[0].ID != job.ID {
					t.Errorf("%d effects, %d calls", n, seen.count())
				}
				recs, err := b.store.InboxByMessage(t.Context(), job.ID)
				if err != nil || len(recs) != 1 || recs[0].State != schema.InboxDone || recs[0].Attempts != 0 {
					t.Errorf("the inbox has %+v, error %v", recs, err)
				}
			})
		})
	}
}

// The process dies after the effect. In the handler's transaction the effect is undone with the mark; in an outside
// world it happens again with the same key, which is what the key is for.
func TestC04_process_dies_after_the_effect(t *testing.T) {
	for mode, want := range map[handlers.Mode]int{handlers.ModeLease: 2, handlers.ModeTx: 1} {
		t.Run(mode.String(), func(t *testing.T) {
			onBoth(t, func(t *testing.T, b *bench) {
				b.forwardJob()
				p := b.newProcess(mode)
				p.AfterEffect = true
				b.die(p)
				bridge := b.open(func(c *router.Config) { *c = crashConfig(*c) })
				b.target(bridge, "fragile", crashPolicy(mode), func(ctx context.Context, _ schema.Envelope) error {
					if key := handlers.Key(ctx); key != "the-key" {
						t.Errorf("the key is %q", key)
					}
					return p.effect(ctx)
				})
				b.run(bridge)
				b.awaitNoJobs()
				if n := b.effects(p); n != want {
					t.Errorf("%d effects, want %d", n, want)
				}
			})
		})
	}
}

// A target that kills its worker on each try never comes to report a failure. The deliveries without a result count.
func TestC12_target_that_kills_the_worker(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		job := b.forwardJob()
		p := b.newProcess(handlers.ModeLease)
		for range 5 {
			b.die(p)
		}
		bridge := b.open(func(c *router.Config) { *c = crashConfig(*c) })
		b.target(bridge, "fragile", crashPolicy(handlers.ModeLease), func(context.Context, schema.Envelope) error {
			t.Error("the handler was called again")
			return nil
		})
		b.run(bridge)
		letter := b.awaitLetters(1)[0]
		b.awaitNoJobs()
		if letter.Cause != schema.CauseCrashing || letter.ID != job.ID || letter.Deliveries != 6 || letter.Attempts != 0 ||
			!strings.Contains(letter.Reason, "5 deliveries in a row") {
			t.Errorf("the letter is %+v", letter)
		}
	})
}
