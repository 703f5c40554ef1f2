//go:build long

package dbdown

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/internal/testkit/netproxy"
	"github.com/millbridge/millbridge/internal/testkit/pgserver"
	"github.com/millbridge/millbridge/internal/testkit/proof"
	"github.com/millbridge/millbridge/publishers"
	"github.com/millbridge/millbridge/schema"
	"github.com/millbridge/millbridge/schema/postgres"
)

// The real binary has the addresses of a primary and its standby. The primary's machine vanishes, so that nobody even
// refuses a connection: the process goes on with the other, without a restart, and status says how things are.
func TestBinary_follows_a_fail_over(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	bin := filepath.Join(t.TempDir(), "millbridge")
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", bin, "../../cmd/millbridge").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	primary := server(t, pgserver.Options{})
	standby := follow(t, primary, true)
	u, err := url.Parse(primary.URL())
	if err != nil {
		t.Fatal(err)
	}
	proxy := netproxy.Start(t, u.Host)
	addresses := strings.Replace(either(t, primary, standby), u.Host, proxy.Addr(), 1)
	addresses = strings.Replace(addresses, "&connect_timeout=5", "", 1)
	nats := testkit.NATS(t)
	env := append(os.Environ(), "MILLBRIDGE_DATABASE_URL="+addresses, "MILLBRIDGE_NATS_URL="+nats.URL(), "MILLBRIDGE_NATS_REPLICAS=1")
	run := exec.CommandContext(context.WithoutCancel(ctx), bin, "run")
	var mu sync.Mutex
	var log strings.Builder
	run.Env, run.Stderr = env, writer(func(b []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		return log.Write(b)
	})
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = run.Process.Signal(syscall.SIGTERM)
		if err := run.Wait(); err != nil {
			t.Errorf("run: %v", err)
		}
		mu.Lock()
		defer mu.Unlock()
		if t.Failed() {
			t.Log(log.String())
		}
	})
	status := func(want string) error {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		cmd := exec.CommandContext(ctx, bin, "status")
		cmd.Env = env
		out, err := cmd.CombinedOutput()
		if !strings.Contains(string(out), want) {
			return fmt.Errorf("%v: status lacks %q:\n%s", err, want, out)
		}
		return nil
	}
	book := proof.OnPostgres(pool(t, primary.URL(), nil))
	publish := func(server string, n int) error {
		p := pool(t, server, nil)
		defer p.Close()
		store := postgres.New(p, postgres.Options{})
		outbox := publishers.NewOutbox(store, publishers.Config{})
		book = proof.OnPostgres(pool(t, server, nil))
		if err := book.Create(ctx); err != nil {
			return err
		}
		for i := range n {
			env := schema.NewEvent("happened", i, schema.WithOrderingKey("k"))
			err := store.InTx(ctx, func(tx pgx.Tx) error {
				if _, err := outbox.Publish(ctx, tx, env); err != nil {
					return err
				}
				return book.EnterPostgres(ctx, tx, env)
			})
			if err != nil {
				return err
			}
		}
		return nil
	}
	js := nats.JetStream(t)
	sent := func() error {
		report, err := book.Check(ctx, js, schema.Subjects{})
		switch {
		case err != nil:
			return err
		case report.Waiting > 0:
			return fmt.Errorf("%v", report)
		case len(report.Faults(true)) > 0:
			t.Errorf("%v", report)
		}
		return nil
	}
	testkit.Eventually(t, time.Minute, func() error { return status("ok") })
	if err := publish(primary.URL(), 100); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, time.Minute, sent)

	proxy.Freeze(netproxy.Both)
	if err := primary.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(standby.Promote(), publish(standby.URL(), 100)); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	testkit.Eventually(t, 3*time.Minute, sent)
	t.Logf("the binary sends again %v after the standby was promoted", time.Since(began).Round(time.Millisecond))
}

type writer func([]byte) (int, error)

func (w writer) Write(b []byte) (int, error) { return w(b) }
