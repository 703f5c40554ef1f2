package jetstream

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/millbridge/millbridge/schema"
)

// The storage of the server is used up in the middle of a batch, of which it then stores a part and says nothing. When there
// is room again every row is there once, in order, even if the forwarder has ended meanwhile and another one takes over.
func TestForwarder_server_without_room(t *testing.T) {
	t.Parallel()
	databases(t, func(t *testing.T, open func(testing.TB) *database) {
		for _, ended := range []bool{false, true} {
			t.Run(fmt.Sprintf("ended=%v", ended), func(t *testing.T) {
				t.Parallel()
				serverWithoutRoom(t, open(t), ended)
			})
		}
	})
}

func serverWithoutRoom(t *testing.T, db *database, ended bool) {
	const storage, batch = 1 << 20, 200
	b := openBroker(t, func(o *server.Options) { o.JetStreamMaxStore = storage })
	if _, err := b.js.CreateStream(t.Context(), natsjs.StreamConfig{Name: "OTHER", Subjects: []string{"other"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.js.Publish(t.Context(), "other", make([]byte, storage*3/4)); err != nil {
		t.Fatal(err)
	}
	var envs []schema.Envelope
	for i := range 3 * batch {
		envs = append(envs, schema.NewJob("shop", "order.paid", bytes.Repeat([]byte("x"), 400), schema.WithOrderingKey("one"), schema.WithID(fmt.Sprintf("n%d", i))))
	}
	db.mustPublish(t, envs...)
	cfg := quick(t)
	cfg.AckTimeout, cfg.BatchRows, cfg.Lease = time.Second, batch, time.Minute
	f := newForwarder(t, db, b.nc, cfg)
	stop := start(t, f)
	part := 0
	eventually(t, func() error {
		for _, s := range f.Status() {
			if s.State == ShardWaiting {
				part = len(stored(t, b.js, "MB_JOBS"))
				return nil
			}
		}
		return errors.New("no shard waits")
	})
	if part == 0 || part%batch == 0 {
		t.Fatalf("%d rows are stored, which is no part of a batch: the test shows nothing", part)
	}
	if ended {
		_ = stop()
		f = newForwarder(t, db, b.nc, cfg)
	}
	if err := b.js.DeleteStream(t.Context(), "OTHER"); err != nil {
		t.Fatal(err)
	}
	sent := 0
	if ended {
		start(t, f)
		sent = part // by the one before
	}
	wantSent(t, f, len(envs)-sent)
	wantStored(t, b, "MB_JOBS", envs)
}
