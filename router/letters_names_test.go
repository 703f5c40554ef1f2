package router_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/schema"
)

// Ids are the publishers': two tenants may give two messages one id, and so may who gives them two keys. Each is handled,
// each is kept when it dies, and each comes back by itself.
func TestLetters_of_messages_with_one_id(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		bridge := b.open()
		var seen calls
		var works atomic.Bool
		b.target(bridge, "billing", quick(1), func(_ context.Context, env schema.Envelope) error {
			if !works.Load() {
				return handlers.Permanent(errors.New("no such customer"))
			}
			seen.add(env)
			return nil
		})
		id := schema.WithID("order-7")
		b.publish(bridge,
			schema.NewJob("billing", "charge", []byte("a"), id, schema.WithTenant("a")),
			schema.NewJob("billing", "charge", []byte("b"), id, schema.WithTenant("b")),
			schema.NewJob("billing", "charge", []byte("c"), id, schema.WithKey("first")),
			schema.NewJob("billing", "charge", []byte("d"), id, schema.WithKey("second")))
		b.run(bridge)
		letters := b.awaitLetters(4)
		b.awaitNoJobs()
		works.Store(true)
		for _, letter := range letters {
			if letter.MessageID() != "order-7" {
				t.Errorf("letter %s is of message %s", letter.ID, letter.MessageID())
			}
			if err := b.operator().Replay(t.Context(), letter); err != nil {
				t.Error(err)
			}
		}
		b.eventually(seen.reaches(4))
		b.awaitNoJobs()
		var got []string
		for _, env := range seen.all() {
			got = append(got, env.Tenant+env.Key+string(env.Payload))
		}
		slices.Sort(got)
		if want := []string{"aa", "bb", "firstc", "secondd"}; !slices.Equal(got, want) {
			t.Errorf("handled %q, want %q", got, want)
		}
		for _, letter := range b.letters() {
			if letter.Tombstone == "" {
				t.Errorf("letter %s is still open", letter.ID)
			}
		}
	})
}
