package peer_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/handlers/peer"
	"github.com/millbridge/millbridge/schema"
)

// largest is a job with the largest header block that an outbox takes, and a payload of that size.
func largest(t *testing.T, payload int) schema.Envelope {
	t.Helper()
	env := schema.NewJob("crm", "book", make([]byte, payload), schema.WithMetadata(map[string]string{"m": ""}))
	for room := 1 << 16; room > 0; room /= 2 {
		more := env
		more.Metadata = map[string]string{"m": env.Metadata["m"] + strings.Repeat("x", room)}
		if more.Validate(payload) == nil {
			env = more
		}
	}
	return env
}

// What one bridge has accepted fits into each further one, although every one adds its name.
func TestPeer_passes_on_the_largest_message(t *testing.T) {
	onBoth(t, func(t *testing.T, db store) {
		const hops = schema.MaxVia
		env := largest(t, schema.DefaultPayload)
		env.Source = "/millbridge/" + schema.NewID()
		name := func(n int) string { return fmt.Sprint(strings.Repeat("b", schema.MaxTarget-2), n+10) }
		for n := range hops {
			server := serve(t, receiver(t, peer.StoreIn(db, nil), func(c *peer.ReceiverConfig) {
				c.Senders = map[string]peer.Sender{name(n): {Secrets: secrets(secretA), Allow: []string{"jobs.>"}}}
			}))
			h := sender(t, server.URL, func(c *peer.Config) { c.Origin = name(n) })
			if err := h.Handle(t.Context(), env); err != nil {
				t.Fatalf("hop %d: %v", n+1, err)
			}
			envs := published(t, db)
			next := envs[len(envs)-1]
			if len(envs) != n+1 || len(next.Via) != n+1 {
				t.Fatalf("hop %d: %d messages, by way of %v", n+1, len(envs), next.Via)
			}
			next.Source, next.Payload = env.Source, nil // one of a megabyte is enough
			env = next
		}
	})
}

func TestPeer_takes_any_source(t *testing.T) {
	onBoth(t, func(t *testing.T, db store) {
		server := serve(t, receiver(t, peer.StoreIn(db, nil)))
		for _, source := range []string{"", "a\x00b", "\xff", strings.Repeat("s", 9000), "x\r\ny"} {
			env := schema.NewJob("crm", "book", nil)
			env.Source = source
			if err := sender(t, server.URL).Handle(t.Context(), env); err != nil {
				t.Errorf("source %.10q: %v", source, err)
			}
		}
	})
}

// Two targets here may be one there: then their keys are of one kind, too.
func TestPeer_says_when_a_key_was_used_before(t *testing.T) {
	onBoth(t, func(t *testing.T, db store) {
		server := serve(t, receiver(t, peer.StoreIn(db, nil)))
		h := sender(t, server.URL, func(c *peer.Config) { c.Target = "crm" })
		for _, c := range []struct{ target, payload, want string }{{"one", "1", "}"}, {"two", "1", `"duplicate":true}`}} {
			ctx := handlers.WithCall(t.Context(), handlers.Call{})
			err := h.Handle(ctx, schema.NewJob(c.target, "book", c.payload, schema.WithKey("k")))
			if got := string(handlers.ReportOf(ctx)); err != nil || !strings.HasSuffix(got, c.want) {
				t.Errorf("%s: reported %s, %v", c.target, got, err)
			}
		}
		err := h.Handle(t.Context(), schema.NewJob("two", "book", "2", schema.WithKey("k")))
		if schema.KindOf(err) != schema.Permanent || !strings.Contains(fmt.Sprint(err), "answered 409 ") || !strings.Contains(fmt.Sprint(err), "already used with different content") {
			t.Errorf("other content: %v", err)
		}
		if got := ids(published(t, db)); len(got) != 1 {
			t.Errorf("published %q", got)
		}
	})
}

// Tenants have ids and keys of their own.
func TestPeer_keeps_tenants_apart(t *testing.T) {
	onBoth(t, func(t *testing.T, db store) {
		server := serve(t, receiver(t, peer.StoreIn(db, nil)))
		h := sender(t, server.URL)
		for _, tenant := range []string{"one", "two", "one", ""} {
			if err := h.Handle(t.Context(), schema.NewJob("crm", "book", "1", schema.WithID("7"), schema.WithTenant(tenant))); err != nil {
				t.Error(err)
			}
		}
		if got := ids(published(t, db)); len(got) != 3 {
			t.Errorf("published %q, want that of each tenant", got)
		}
	})
}
