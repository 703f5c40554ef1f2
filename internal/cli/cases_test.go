package cli_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/router"
	"github.com/millbridge/millbridge/schema"
)

// bridge runs a bridge with these targets until the test ends.
func (w *world) bridge(t *testing.T, log *slog.Logger, targets ...handlers.Target) {
	t.Helper()
	w.logger = log
	w.bridgeWith(t, func(b *router.Bridge) error {
		var errs []error
		for _, target := range targets {
			errs = append(errs, b.Target(target))
		}
		return errors.Join(errs...)
	})
}

func (w *world) bridgeWith(t *testing.T, add func(b *router.Bridge) error) {
	t.Helper()
	b, err := router.Open(t.Context(), router.Config{Store: w.store, Conn: w.js.Conn(), Logger: w.logger})
	if err == nil {
		err = add(b)
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- b.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// quick is a policy for tests.
func quick(attempts int) handlers.Policy {
	return handlers.Policy{Retry: schema.RetryPolicy{MaxAttempts: attempts, Base: 20 * time.Millisecond, Factor: 1}}
}

// patience is how long n messages may take on a machine that is busy with other tests: each costs several syncs.
func patience(n int) time.Duration { return testTimeout + time.Duration(n)*200*time.Millisecond }

// given waits until n messages were given up and returns them.
func (w *world) given(t *testing.T, n int) []map[string]any {
	t.Helper()
	var items []map[string]any
	testkit.Eventually(t, patience(n), func() error {
		dead, err := w.js.Stream(t.Context(), "MB_DEAD")
		if err != nil {
			return err
		}
		rows, err := w.store.ListParked(t.Context(), schema.RowFilter{})
		if err != nil {
			return err
		}
		if most := int(dead.CachedInfo().State.Msgs) + len(rows); most < n { // cheaper than the list
			return fmt.Errorf("at most %d messages were given up, want %d", most, n)
		}
		items = w.must(t, "poison", "list", "--limit", "2000", "--json").objects(t)
		if len(items) != n {
			return fmt.Errorf("%d messages were given up, want %d", len(items), n)
		}
		return nil
	})
	return items
}

// TestC03_poison_show_has_the_payload checks what an operator sees of the case: the whole payload of a row that cannot
// be sent, and nothing of it in the logs.
func TestC03_poison_show_has_the_payload(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		const payload = "PAYLOAD-77 that nobody can send"
		id := w.must(t, "publish", "job", "crm", "x", payload, "--json").objects(t)[0]["id"].(string)
		w.spoil(t, id)
		w.must(t, "publish", "job", "crm", "x", "good")
		var log lockedBuffer
		got := make(chan string, 10)
		w.bridge(t, slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})), handlers.Target{
			Name: "crm", Handler: handlers.HandlerFunc(func(_ context.Context, env schema.Envelope) error {
				got <- string(env.Payload)
				return nil
			}),
		})
		item := w.given(t, 1)[0]
		if item["at"] != "forwarder" || item["cause"] != "unsendable" || item["target"] != "crm" {
			t.Errorf("the list has %v", item)
		}
		contains(t, w.must(t, "poison", "show", item["id"].(string)).stdout, payload, "undecodable")
		select {
		case p := <-got:
			if p != "good" {
				t.Errorf("handled %q", p)
			}
		case <-time.After(testTimeout):
			t.Error("the good row was not handled")
		}
		if strings.Contains(log.String(), "PAYLOAD-77") {
			t.Errorf("the log has the payload:\n%s", log.String())
		}
	})
}

// lockedBuffer is a buffer that goroutines may share.
type lockedBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// TestC09_poison_show_has_the_stack checks what an operator sees of the case.
func TestC09_poison_show_has_the_stack(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.bridge(t, nil,
			handlers.Target{Name: "wild", Policy: quick(3), Handler: handlers.HandlerFunc(func(_ context.Context, env schema.Envelope) error {
				switch env.Name {
				case "string":
					panic("boom\nin two lines")
				case "error":
					panic(errors.New("boom"))
				case "nil":
					panic(nil) //nolint:govet // that is the case
				}
				var none []string
				return errors.New(none[len(env.Name)])
			})},
			handlers.Target{Name: "calm", Policy: quick(3), Handler: handlers.HandlerFunc(func(context.Context, schema.Envelope) error { return nil })},
		)
		wants := map[string]string{
			"string": "panic: boom in two lines", "error": "panic: boom", "nil": "panic called with nil argument", "runtime": "index out of range",
		}
		for action := range wants {
			w.must(t, "publish", "job", "wild", action)
		}
		calm := w.must(t, "publish", "job", "calm", "x", "--json").objects(t)[0]["id"].(string)
		for _, item := range w.given(t, len(wants)) {
			shown := w.must(t, "poison", "show", item["id"].(string)).stdout
			contains(t, shown, wants[item["name"].(string)], "3 attempts", "cause         exhausted", "stack\n    goroutine", "cases_test.go")
			if line := item["error"].(string); strings.Contains(line, "\n") {
				t.Errorf("the error is %q", line)
			}
		}
		testkit.Eventually(t, testTimeout, func() error {
			if text := w.must(t, "show", calm).stdout; !strings.Contains(text, "inbox of calm: done") {
				return errors.New(text)
			}
			return nil
		})
	})
}

// TestC15_stream_is_missing goes through the whole case with a running process: the row waits, status is red and names
// subject and stream, others go on, and it recovers by itself.
func TestC15_stream_is_missing(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		r := newReceiver(t)
		p := start(t, append([]string{"run", "--config", targetsFile(t, r)}, w.flags...)...)
		awaitText(t, p, "bridge runs")
		w.must(t, "publish", "event", "order.placed", "before")
		testkit.Eventually(t, testTimeout, func() error { return r.has("before") })
		listener, err := w.js.Conn().Subscribe("mb.jobs.>", func(*nats.Msg) {})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = listener.Unsubscribe() }()
		if err := w.js.DeleteStream(t.Context(), "MB_JOBS"); err != nil {
			t.Fatal(err)
		}
		w.must(t, "publish", "job", "crm", "x", "job")
		testkit.Eventually(t, testTimeout, func() error {
			if list := w.reasons(t); !has(list, "stream MB_JOBS is missing", "mb.jobs.>", "rows waiting in the outbox: 1") {
				return fmt.Errorf("status says %q", list)
			}
			return nil
		})
		w.must(t, "publish", "event", "order.shipped", "meanwhile")
		testkit.Eventually(t, testTimeout, func() error { return r.has("before", "meanwhile") })
		testkit.Eventually(t, testTimeout, func() error { // a row that was sent leaves a moment later
			if rows := w.must(t, "outbox", "list", "--json").objects(t); len(rows) != 1 {
				return fmt.Errorf("the outbox holds %v", rows)
			}
			return nil
		})
		w.ensureStreams(t)
		testkit.Eventually(t, testTimeout, func() error { return r.has("before", "meanwhile", "job") })
		testkit.Eventually(t, testTimeout, func() error {
			if list := w.reasons(t); len(list) > 0 {
				return fmt.Errorf("status says %q", list)
			}
			return nil
		})
	})
}

// TestC34_target_known_to_some goes through the case with two processes whose targets differ, and a rolling deploy.
func TestC34_target_known_to_some(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		var mu sync.Mutex
		handled := map[string]int{}
		target := func(name string) handlers.Target {
			return handlers.Target{Name: name, Policy: quick(3), Handler: handlers.HandlerFunc(func(_ context.Context, env schema.Envelope) error {
				mu.Lock()
				defer mu.Unlock()
				handled[name+" "+string(env.Payload)]++
				return nil
			})}
		}
		has := func(n int) func() error {
			return func() error {
				mu.Lock()
				defer mu.Unlock()
				if len(handled) != n {
					return fmt.Errorf("handled %v", handled)
				}
				return nil
			}
		}
		w.bridge(t, nil, target("crm"))
		w.bridge(t, nil, target("mail"))
		const each = 4
		for i := range each {
			for _, name := range []string{"crm", "mail", "erp"} {
				w.must(t, "publish", "job", name, "x", fmt.Sprint(i))
			}
		}
		testkit.Eventually(t, testTimeout, has(2*each))
		testkit.Eventually(t, testTimeout, func() error {
			if list := w.reasons(t); !strings.Contains(fmt.Sprint(list), fmt.Sprint("target erp has no consumer, messages waiting (stream): ", each)) {
				return fmt.Errorf("status says %q", list)
			}
			return nil
		})
		w.bridge(t, nil, target("crm"), target("erp")) // the deploy with the new target
		testkit.Eventually(t, testTimeout, has(3*each))
		mu.Lock()
		defer mu.Unlock()
		for what, n := range handled {
			if n != 1 {
				t.Errorf("%s was handled %d times", what, n)
			}
		}
		w.given(t, 0)
	})
}
