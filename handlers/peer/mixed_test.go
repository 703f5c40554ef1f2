package peer_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/handlers/natslink"
	"github.com/millbridge/millbridge/handlers/natsrelay"
	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/schema"
)

// A circle of both kinds ends, too. Its last part asks nobody, so the message comes back once, as docs/targets/peer.md says.
func TestBridges_in_a_circle_of_HTTP_and_NATS(t *testing.T) {
	t.Parallel()
	a, b := newBridge(t, "a", "none"), newBridge(t, "b", "a")
	a.passTo(t, b)
	back, err := natsrelay.New(natsrelay.Config{
		Settings: natslink.Settings{URLs: []string{a.js.Conn().ConnectedUrl()}}, Origin: "b", Prefix: schema.DefaultPrefix,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := back.(interface{ Close() error }).Close(); err != nil {
			t.Error(err)
		}
	})
	if err := b.router.Subscribe(handlers.Subscription{Name: "back", Events: []string{">"}, Handler: back}); err != nil {
		t.Fatal(err)
	}
	a.run(t)
	b.run(t)
	a.publish(t, schema.NewEvent("order.placed", nil, schema.WithID("a-1")))
	b.publish(t, schema.NewEvent("order.placed", nil, schema.WithID("b-1")))
	testkit.Eventually(t, time.Minute, func() error {
		atA, atB, loops := slices.Sorted(slices.Values(a.handled())), slices.Sorted(slices.Values(b.handled())), a.loops.Load()
		if fmt.Sprint(atA, atB, loops) != "[a-1 a-1 b-1] [a-1 b-1] 2" { // a does not send a-1 again, and b does not take b-1
			return fmt.Errorf("a has handled %q, b %q, %d loops", atA, atB, loops)
		}
		return nil
	})
}
