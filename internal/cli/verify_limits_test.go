package cli_test

import (
	"context"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/internal/ops"
	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/router"
	"github.com/millbridge/millbridge/schema"
)

// TestVerify_counts_a_second_message_of_a_key publishes a key again after publishers have forgotten it: the second message
// is sent, and acked without being handled.
func TestVerify_counts_a_second_message_of_a_key(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		crm, _ := w.served(t)
		crm.repair()
		w.publish(t, "job", "crm", "x", "--key", "k")
		w.until(t, "handled", func(v ops.Verification) bool { return handlerOf(v, "crm").Done == 1 })
		w.exec(t, "DELETE FROM millbridge.keys", "DELETE FROM millbridge_keys")
		w.publish(t, "job", "crm", "x", "--key", "k")
		v := w.until(t, "acked", func(v ops.Verification) bool { return streamOf(t, v, schema.Jobs).Settled == 2 })
		if handlerOf(v, "crm").Done != 1 {
			t.Errorf("handled twice: %+v", v)
		}
		w.exec(t, "DELETE FROM millbridge.keys", "DELETE FROM millbridge_keys")
		w.publish(t, "job", "crm", "x", "--key", "k", "--content-type", "text/other")
		w.until(t, "once more", func(v ops.Verification) bool { return streamOf(t, v, schema.Jobs).Settled == 3 })
	})
}

// TestVerify_says_what_it_cannot_know counts jobs that are handled without a record, and jobs of others.
func TestVerify_says_what_it_cannot_know(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		done := make(chan string, 10)
		w.bridgeWith(t, func(b *router.Bridge) error {
			return b.Target(handlers.Target{
				Name: "plain", Policy: handlers.Policy{Mode: handlers.ModeNone},
				Handler: handlers.HandlerFunc(func(_ context.Context, env schema.Envelope) error { done <- env.ID; return nil }),
			})
		})
		for range 3 {
			w.publish(t, "job", "plain", "x")
		}
		for range 3 {
			<-done
		}
		v := w.until(t, "handled", func(v ops.Verification) bool { return streamOf(t, v, schema.Jobs).Unrecorded == 3 })
		if len(v.Notes) != 1 {
			t.Errorf("notes: %q", v.Notes)
		}
		foreign := nats.NewMsg("mb.jobs.crm.x")
		foreign.Header.Set(schema.HeaderID, "f-1")
		if _, err := w.js.PublishMsg(t.Context(), foreign); err != nil {
			t.Fatal(err)
		}
		w.publish(t, "job", "crm", "x")
		w.until(t, "a foreign job", func(v ops.Verification) bool { return streamOf(t, v, schema.Jobs).Foreign == 1 })
	})
}

// TestVerify_proves_nothing_without_servers wants another exit code than that of a finding.
func TestVerify_proves_nothing_without_servers(t *testing.T) {
	t.Parallel()
	pool, server := testkit.Postgres(t), testkit.NATS(t)
	server.Stop()
	r := call(t, "", nil, "verify", "--database-url", testkit.PostgresURL(pool), "--nats-url", server.URL())
	if r.code != 1 {
		t.Errorf("NATS down: %s", r)
	}
}
