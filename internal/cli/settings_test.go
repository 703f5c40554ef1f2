package cli_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/millbridge/millbridge/internal/testkit"
)

// What somebody has changed in database and streams is in the status, with what to do or what it costs.
func TestStatus_settings(t *testing.T) {
	t.Parallel()
	w := postgresWorld(t)
	if r := w.run(t, "status"); r.code != 0 || strings.Contains(r.stdout, "note the database") {
		t.Fatalf("as it should be: %s", r)
	}
	if _, err := w.pool.Exec(t.Context(), `ALTER SEQUENCE millbridge.outbox_seq CACHE 5`); err != nil {
		t.Fatal(err)
	}
	dead, err := w.js.Stream(t.Context(), "MB_DEAD")
	if err != nil {
		t.Fatal(err)
	}
	cfg := dead.CachedInfo().Config
	cfg.MaxAge = time.Hour
	if _, err := w.js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	until := time.Now().Add(time.Hour)
	if _, err := w.js.CreateConsumer(t.Context(), "MB_JOBS", natsjs.ConsumerConfig{
		Durable: "crm", FilterSubject: "mb.jobs.crm.>", AckPolicy: natsjs.AckExplicitPolicy, MaxDeliver: 3, PauseUntil: &until,
	}); err != nil {
		t.Fatal(err)
	}
	r := w.run(t, "status")
	for _, want := range []string{
		"millbridge.outbox_seq has CACHE 5", "stream MB_DEAD: max_age is 1h0m0s", "consumer crm of stream MB_JOBS: its max deliver is 3",
		"it is paused until " + until.UTC().Format(time.RFC3339),
	} {
		if r.code != 3 || !strings.Contains(r.stdout, want) {
			t.Errorf("%q is missing: %s", want, r)
		}
	}
}

func TestStatus_weak_settings_are_notes(t *testing.T) {
	t.Parallel()
	w := postgresWorld(t)
	flags := []string{"--database-url", testkit.DirectPostgresURL(t, w.pool) + "&synchronous_commit=off", "--nats-url", w.flags[3]}
	r := call(t, "", nil, append([]string{"status"}, flags...)...)
	if r.code != 0 || !strings.Contains(r.stdout, "synchronous_commit = off") || !strings.Contains(r.stdout, "sync_interval: always") {
		t.Errorf("got %s", r)
	}
	r = call(t, "", nil, append([]string{"run", "--drain", "--set", "nats.replicas=1"}, flags...)...)
	if r.code != 0 || !strings.Contains(r.stderr, "weak setting") || !strings.Contains(r.stderr, "synchronous_commit = off") {
		t.Errorf("run does not warn: %s", r)
	}
}

// Behind a pooler that hands out connections for a statement nothing works, and everything says why.
func TestC27_commands_behind_a_statement_pooler(t *testing.T) {
	t.Parallel()
	w := postgresWorld(t)
	flags := []string{"--database-url", testkit.PgBouncer(t, w.pool, "statement", 2, "cache_describe"), "--nats-url", w.flags[3], "--set", "nats.replicas=1"}
	for _, c := range []struct {
		args []string
		code int
	}{
		{[]string{"status"}, 3}, {[]string{"run"}, 1}, {[]string{"run", "--drain"}, 1}, {[]string{"migrate", "up"}, 1}, {[]string{"publish", "job", "crm", "x"}, 1},
	} {
		// A busy machine may not answer before status gives up.
		testkit.Eventually(t, testTimeout, func() error {
			r := call(t, "", nil, append(c.args, flags...)...)
			if r.code != c.code || !strings.Contains(r.stdout+r.stderr, "pool_mode = transaction") {
				return fmt.Errorf("%v: want exit code %d and what to set, got %s", c.args, c.code, r)
			}
			return nil
		})
	}
}

// A bridge and all commands work through a pooler in transaction mode with two connections, with the documented setting.
func TestC27_commands_behind_a_transaction_pooler(t *testing.T) {
	t.Parallel()
	w := postgresWorld(t)
	r := newReceiver(t)
	w.flags[1] = testkit.PgBouncer(t, w.pool, "transaction", 2, "cache_describe")
	w.flags = append(w.flags, "--config", targetsFile(t, r), "--set", "nats.replicas=1")
	w.must(t, "migrate", "up")
	for range 20 {
		w.must(t, "publish", "job", "crm", "x")
	}
	if got := w.must(t, "run", "--drain").objects(t)[0]; got["handled"] != 20.0 {
		t.Errorf("handled: %v", got)
	}
	for _, args := range [][]string{{"status"}, {"status", "--tally"}, {"poison", "list"}, {"outbox", "list"}} {
		w.must(t, args...)
	}
}
