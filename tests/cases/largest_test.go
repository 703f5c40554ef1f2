package cases

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/internal/deadletters"
	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/schema"
)

// What is a byte too large is refused when it is published, with limit and size. What is not goes the whole way: to the
// handler, to the poison queue and back, more than once.
func TestC03_largest_message(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		largest := func(payload, metadata int) schema.Envelope {
			return schema.NewJob("a", "do", bytes.Repeat([]byte{0xff}, payload), schema.WithKey("k"), schema.WithTime(time.Unix(1, 0)),
				schema.WithMetadata(map[string]string{"m": strings.Repeat("x", metadata)}))
		}
		fault := func(field string, env schema.Envelope) schema.Fault {
			var invalid *schema.ValidationError
			if err := w.refused(t, env); !errors.As(err, &invalid) || len(invalid.Faults) != 1 || invalid.Faults[0].Field != field {
				t.Fatalf("want a fault of %s, got %v", field, err)
			}
			return invalid.Faults[0]
		}
		if f := fault("payload", largest(schema.DefaultPayload+1, 0)); f.Length != schema.DefaultPayload+1 || f.Limit != schema.DefaultPayload {
			t.Errorf("a byte too many is refused with %+v", f)
		}
		most := schema.MaxHeaderBytes // of metadata, that still fit beside the other headers
		f := fault("headers", largest(0, most))
		most -= f.Length - f.Limit
		if f := fault("headers", largest(schema.DefaultPayload, most+1)); f.Length != schema.MaxHeaderBytes+1 || f.Limit != schema.MaxHeaderBytes {
			t.Errorf("a byte too many in the headers is refused with %+v", f)
		}

		r := &recorder{}
		refuses := handlers.HandlerFunc(func(ctx context.Context, env schema.Envelope) error {
			if env.Replay == nil || env.Replay.Number < 3 {
				return handlers.Permanent(errors.New(strings.Repeat("no", 2_000)))
			}
			return r.Handle(ctx, env)
		})
		run(t, w.open(t, handlers.Target{Name: "a", Handler: refuses}))
		want := largest(schema.DefaultPayload, most)
		w.publish(t, want)
		for n := range 3 {
			w.replay(t, n)
		}
		testkit.Eventually(t, 2*time.Minute, func() error {
			if n := len(r.all()); n != 1 {
				return fmt.Errorf("handled %d times", n)
			}
			return nil
		})
		if got := r.all()[0]; !bytes.Equal(got.Payload, want.Payload) || !maps.Equal(got.Metadata, want.Metadata) || got.IdempotencyKey() != "k" {
			t.Errorf("%d bytes and %d of metadata arrived, key %s", len(got.Payload), len(got.Metadata["m"]), got.IdempotencyKey())
		}
		if rows, err := w.parked(); err != nil || len(rows) != 0 {
			t.Errorf("%d rows are parked, %v", len(rows), err)
		}
	})
}

// replay replays the letter that was written after n replays.
func (w *world) replay(t *testing.T, n int) {
	t.Helper()
	var letter deadletters.Letter
	testkit.Eventually(t, 2*time.Minute, func() error {
		for _, l := range w.dead(t) {
			if l.Tombstone == "" && l.Replay == n {
				letter = l
				return nil
			}
		}
		return fmt.Errorf("no letter of replay %d", n)
	})
	operator := &deadletters.Operator{Store: w.store.(deadletters.Store), Letters: w.letters}
	if err := operator.Replay(t.Context(), letter); err != nil {
		t.Fatalf("replay %d: %v", n+1, err)
	}
}

// A message of another publisher, beyond all of our limits but the server's, has died at a handler. It is replayed like
// one of ours.
func TestC35_replay_of_a_foreign_message(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		r := &recorder{}
		b := w.open(t, handlers.Target{Name: "a", Handler: handlers.HandlerFunc(func(ctx context.Context, env schema.Envelope) error {
			if env.Replay == nil {
				return handlers.Permanent(errors.New("no"))
			}
			return r.Handle(ctx, env)
		})})
		run(t, b)
		forwarding(t, b)
		long := strings.Repeat("long", 100)
		want := map[string]string{}
		msg := &nats.Msg{Subject: "mb.jobs.a.Do_It", Header: nats.Header{schema.HeaderID: {"x"}, schema.HeaderKey: {long}, schema.HeaderTenant: {long}}}
		for i := range 100 {
			name := fmt.Sprintf("X-%d", i)
			want[name] = long
			msg.Header[name] = []string{long}
		}
		js := testkit.JetStream(t, w.conn)
		stream, err := js.Stream(t.Context(), "MB_JOBS")
		if err != nil {
			t.Fatal(err)
		}
		const headers = 43_000 // and what a replay adds
		msg.Data = bytes.Repeat([]byte{0xff}, int(stream.CachedInfo().Config.MaxMsgSize)-headers)
		if _, err := js.PublishMsg(t.Context(), msg); err != nil {
			t.Fatal(err)
		}
		w.replay(t, 0)
		testkit.Eventually(t, 2*time.Minute, func() error {
			if n := len(r.all()); n != 1 {
				return fmt.Errorf("handled %d times", n)
			}
			return nil
		})
		if got := r.all()[0]; !bytes.Equal(got.Payload, msg.Data) || !maps.Equal(got.Metadata, want) || got.IdempotencyKey() != long || got.Name != "Do_It" {
			t.Errorf("%d bytes, %d of metadata and the name %s arrived", len(got.Payload), len(got.Metadata), got.Name)
		}
		w.settled(t, "a")
	})
}
