package subscribers_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millbridge/millbridge/internal/testkit"
)

// A server that is killed may come back with a message in the work queue that its consumer takes for acked.
func TestStranded_messages_come_again(t *testing.T) {
	t.Parallel()
	var dir string
	b := &bundle{server: testkit.NATS(t, func(o *server.Options) { dir = o.StoreDir })}
	b.js = b.server.JetStream(t)
	b.stream(t, jetstream.WorkQueuePolicy)
	b.publish(t, 3)
	messages := filepath.Join(dir, "jetstream", "$G", "streams", "ORDERS", "msgs")
	kept := filepath.Join(t.TempDir(), "msgs")
	b.server.Stop()
	if err := os.CopyFS(kept, os.DirFS(messages)); err != nil {
		t.Fatal(err)
	}
	b.server.Restart()

	sub := b.subscriber(t)
	msgs := subscribe(t, sub)
	for range 3 {
		next(t, msgs).Ack()
	}
	b.awaits(t, 0)
	sub.Close()
	b.server.Stop()
	if err := errors.Join(os.RemoveAll(messages), os.CopyFS(messages, os.DirFS(kept))); err != nil {
		t.Fatal(err)
	}
	b.server.Restart()
	b.awaits(t, 3)
	if info := b.info(t); info.AckFloor.Stream != 3 || info.NumPending+uint64(info.NumAckPending) != 0 {
		t.Fatalf("the consumer is %+v: this is not what the test is about", info)
	}

	msgs = subscribe(t, b.subscriber(t))
	came := make(map[string]bool)
	for range 3 {
		m := next(t, msgs)
		came[m.UUID] = true
		m.Ack()
	}
	if len(came) != 3 {
		t.Errorf("only %v came again", came)
	}
	b.awaits(t, 0)
}

// awaits waits until the stream has n messages.
func (b *bundle) awaits(t *testing.T, n uint64) {
	t.Helper()
	testkit.Eventually(t, patience, func() error {
		stream, err := b.js.Stream(t.Context(), "ORDERS")
		if err != nil {
			return err
		}
		if have := stream.CachedInfo().State.Msgs; have != n {
			return fmt.Errorf("the stream has %d messages, want %d", have, n)
		}
		return nil
	})
}
