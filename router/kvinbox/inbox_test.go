package kvinbox_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/router/kvinbox"
	"github.com/millbridge/millbridge/schema"
	"github.com/millbridge/millbridge/schema/schematest"
)

func open(t *testing.T, js jetstream.JetStream, cfg kvinbox.Config) *kvinbox.Inbox {
	t.Helper()
	in, err := kvinbox.Open(t.Context(), js, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return in
}

// last remembers the key that was asked for last, which is the one that gets older.
type last struct {
	*kvinbox.Inbox
	key atomic.Pointer[schema.InboxKey]
}

func (l *last) Claim(ctx context.Context, run schema.Run) (schema.ClaimResult, error) {
	l.key.Store(&run.Key)
	return l.Inbox.Claim(ctx, run)
}

func (l *last) Fail(ctx context.Context, run schema.Run, f schema.Failure) (schema.InboxRecord, error) {
	l.key.Store(&run.Key)
	return l.Inbox.Fail(ctx, run, f)
}

// opener returns inboxes in buckets of their own on one server.
func opener(t *testing.T) func(t *testing.T) schematest.InboxHarness {
	t.Helper()
	srv := testkit.NATS(t)
	var n atomic.Int64
	return func(t *testing.T) schematest.InboxHarness {
		cfg := kvinbox.Config{Subjects: schema.Subjects{Prefix: fmt.Sprint("p", n.Add(1))}}
		in := &last{Inbox: open(t, srv.JetStream(t), cfg)}
		return schematest.InboxHarness{
			Inbox:   in,
			Another: open(t, srv.JetStream(t), cfg),
			Age: func(ctx context.Context, d time.Duration) error {
				if key := in.key.Load(); key != nil {
					return in.Age(ctx, *key, d)
				}
				return nil
			},
		}
	}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	open := opener(t)
	schematest.RunInbox(t, open)
	t.Run("model", func(t *testing.T) { schematest.RunInboxModel(t, open) })
}

func run(key, owner string) schema.Run {
	return schema.Run{Key: schema.InboxKey{Handler: "crm", Source: "s", Key: key}, Owner: owner, MessageID: key, BodyHash: [32]byte{1}, Lease: time.Minute}
}

func claim(t *testing.T, in *kvinbox.Inbox, r schema.Run, want schema.Claim) schema.ClaimResult {
	t.Helper()
	res, err := in.Claim(t.Context(), r)
	if err != nil || res.Claim != want {
		t.Fatalf("claim %v, %v; want %v", res.Claim, err, want)
	}
	return res
}

// A lease is over when the server says so, without anybody's help.
func TestInbox_leases_end_by_the_servers_clock(t *testing.T) {
	t.Parallel()
	srv := testkit.NATS(t)
	one, two := open(t, srv.JetStream(t), kvinbox.Config{}), open(t, srv.JetStream(t), kvinbox.Config{})
	paused, other := run("k", "paused"), run("k", "other")
	paused.Lease = 300 * time.Millisecond
	claim(t, one, paused, schema.ClaimRun)
	if res := claim(t, two, other, schema.ClaimBusy); res.Wait <= 0 || res.Wait > paused.Lease {
		t.Errorf("wait %v, want at most the lease", res.Wait)
	}
	testkit.Eventually(t, time.Minute, func() error {
		res, err := two.Claim(t.Context(), other)
		if err == nil && res.Claim != schema.ClaimRun {
			err = fmt.Errorf("claim %v, want a run", res.Claim)
		}
		return err
	})
	if err := one.Done(t.Context(), paused); schema.KindOf(err) != schema.NotMine {
		t.Fatalf("the run that stood still: %v, want that its lease is gone", err)
	}
	if held, err := one.Extend(t.Context(), []schema.Run{paused}, time.Minute); len(held) != 0 || err != nil {
		t.Errorf("extended %v, %v", held, err)
	}
	if err := two.Done(t.Context(), other); err != nil {
		t.Error(err)
	}
}

// What a process's clock says must not matter.
func TestPackage_never_asks_for_the_processs_time(t *testing.T) {
	t.Parallel()
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".go") || strings.HasSuffix(f.Name(), "_test.go") {
			continue
		}
		text, err := os.ReadFile(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		for _, call := range []string{"time.Now(", "time.Since(", "time.Until("} {
			if strings.Contains(string(text), call) {
				t.Errorf("%s has %s", f.Name(), call)
			}
		}
	}
}

func TestInbox_records_expire_unless_dead(t *testing.T) {
	t.Parallel()
	js := testkit.NATS(t).JetStream(t)
	in := open(t, js, kvinbox.Config{Keep: time.Second})
	for _, key := range []string{"done", "dead", "cancelled"} {
		claim(t, in, run(key, key), schema.ClaimRun)
	}
	if err := in.Done(t.Context(), run("done", "done")); err != nil {
		t.Fatal(err)
	}
	for key, f := range map[string]schema.Failure{"dead": {Reason: "no", Dead: true, Cause: schema.CausePermanent}, "cancelled": {Reason: "no", Cancelled: true}} {
		if _, err := in.Fail(t.Context(), run(key, key), f); err != nil {
			t.Fatal(err)
		}
	}
	left := func() (keys []string) {
		for _, key := range []string{"done", "dead", "cancelled"} {
			_, found, err := in.LookupInbox(t.Context(), run(key, "").Key)
			if err != nil {
				t.Fatal(err)
			}
			if found {
				keys = append(keys, key)
			}
		}
		return keys
	}
	testkit.Eventually(t, time.Minute, func() error {
		if keys := left(); !slices.Equal(keys, []string{"dead"}) {
			return fmt.Errorf("left are %v", keys)
		}
		return nil
	})
	claim(t, in, run("done", "again"), schema.ClaimRun)
	claim(t, in, run("dead", "again"), schema.ClaimDead)
}

func TestInbox_has_no_transactions(t *testing.T) {
	t.Parallel()
	in := open(t, testkit.NATS(t).JetStream(t), kvinbox.Config{})
	err := in.Unit(t.Context(), func(schema.Unit) error {
		t.Error("it ran")
		return nil
	})
	if schema.KindOf(err) != schema.Permanent || !strings.Contains(err.Error(), "database") {
		t.Errorf("%v, want a permanent error that says what is needed", err)
	}
	if err := in.Settled(t.Context(), run("k", "o")); err != nil {
		t.Error(err)
	}
}

func TestOpen_refuses_a_bucket_that_would_lose_records(t *testing.T) {
	t.Parallel()
	js := testkit.NATS(t).JetStream(t)
	if _, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "MB_INBOX", TTL: time.Hour, Storage: jetstream.MemoryStorage}); err != nil {
		t.Fatal(err)
	}
	_, err := kvinbox.Open(t.Context(), js, kvinbox.Config{})
	for _, want := range []string{"MB_INBOX", "max_age", "memory", "allow_msg_ttl", "allow_direct"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v leaves out %s", err, want)
		}
	}
	if schema.KindOf(err) != schema.Permanent {
		t.Errorf("kind %v", schema.KindOf(err))
	}
	if _, err := kvinbox.Open(t.Context(), js, kvinbox.Config{Subjects: schema.Subjects{Prefix: "A B"}}); err == nil {
		t.Error("a bad prefix was taken")
	}
}

// What operators see with the tools of NATS is a KV bucket; what they delete there was never handled.
func TestInbox_is_a_bucket_for_the_tools(t *testing.T) {
	t.Parallel()
	js := testkit.NATS(t).JetStream(t)
	in := open(t, js, kvinbox.Config{Subjects: schema.Subjects{Prefix: "loan"}})
	claim(t, in, run("k", "one"), schema.ClaimRun)
	kv, err := js.KeyValue(t.Context(), "LOAN_INBOX")
	if err != nil {
		t.Fatal(err)
	}
	keys, err := kv.Keys(t.Context())
	hash := run("k", "").Key.Hash()
	if err != nil || len(keys) != 1 || keys[0] != fmt.Sprintf("%x", hash) {
		t.Fatalf("keys %v, %v", keys, err)
	}
	if err := kv.Delete(t.Context(), keys[0]); err != nil {
		t.Fatal(err)
	}
	claim(t, in, run("k", "two"), schema.ClaimRun)
	if err := in.Done(t.Context(), run("k", "one")); schema.KindOf(err) != schema.NotMine {
		t.Errorf("the first run: %v", err)
	}
}

// Who cannot reach the server is told that waiting helps; who is refused by it is not.
func TestInbox_says_whether_waiting_helps(t *testing.T) {
	t.Parallel()
	srv := testkit.NATS(t)
	in := open(t, srv.JetStream(t), kvinbox.Config{})
	run := schema.Run{Key: schema.InboxKey{Handler: "h", Key: "k"}, MessageID: "m", Owner: "me", Lease: time.Minute}
	if _, err := in.Claim(t.Context(), run); err != nil {
		t.Fatal(err)
	}
	other := run
	other.Owner = "other"
	if err := in.Done(t.Context(), other); err == nil || errors.Is(err, schema.ErrUnavailable) {
		t.Errorf("a run without a lease: %v", err)
	}
	srv.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := in.Done(ctx, run); !errors.Is(err, schema.ErrUnavailable) || strings.Contains(err.Error(), "database") {
		t.Errorf("without a server: %v", err)
	}
	if _, _, err := in.LookupInbox(ctx, run.Key); !errors.Is(err, schema.ErrUnavailable) {
		t.Errorf("look-up without a server: %v", err)
	}
}
