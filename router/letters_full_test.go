package router_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/schema"
)

// While the poison queue is full, what is given up stays in its stream, and its handler is not called again; others go on.
func TestLetters_stream_is_full(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		bridge := b.open()
		var doomed, healthy calls
		b.target(bridge, "doomed", quick(5), func(_ context.Context, env schema.Envelope) error {
			doomed.add(env)
			return handlers.Permanent(errors.New("no such customer"))
		})
		b.target(bridge, "healthy", quick(5), func(_ context.Context, env schema.Envelope) error {
			healthy.add(env)
			return nil
		})
		limit := func(bytes int64) {
			s, err := b.js.Stream(t.Context(), "MB_DEAD")
			if err != nil {
				t.Fatal(err)
			}
			cfg := s.CachedInfo().Config
			cfg.MaxBytes = bytes
			if _, err := b.js.UpdateStream(t.Context(), cfg); err != nil {
				t.Fatal(err)
			}
		}
		limit(1)
		b.publish(bridge, schema.NewJob("doomed", "charge", []byte("keep me")), schema.NewJob("healthy", "charge", nil))
		b.run(bridge)
		b.eventually(func() error {
			if p := strings.Join(bridge.Health(t.Context()).Problems, "\n"); !strings.Contains(p, "write dead letter") {
				return errors.New("it says " + p)
			}
			return nil
		})
		b.publish(bridge, schema.NewJob("healthy", "charge", nil))
		b.eventually(func() error {
			if n := len(healthy.times()); n != 2 {
				return errors.New("the other target does not go on")
			}
			return nil
		})
		s, err := b.js.Stream(t.Context(), "MB_JOBS")
		if err != nil {
			t.Fatal(err)
		}
		info, err := s.Info(t.Context(), jetstream.WithSubjectFilter("mb.jobs.doomed.>"))
		if err != nil || info.State.Subjects["mb.jobs.doomed.charge"] != 1 {
			t.Errorf("the message has left its stream: %v, error %v", info.State.Subjects, err)
		}
		limit(-1)
		letter := b.awaitLetters(1)[0]
		b.awaitNoJobs()
		env, err := letter.Envelope(b.subjects)
		if n := len(doomed.times()); err != nil || n != 1 || string(env.Payload) != "keep me" {
			t.Errorf("%d calls, want 1; letter with %q, error %v", n, env.Payload, err)
		}
	})
}

// What the streams take can be kept as a dead letter, whatever its headers are full of.
func TestLetters_of_the_largest_messages(t *testing.T) {
	short := nats.Header{}
	for i := range 3_000 {
		short[fmt.Sprint("nats-", i)] = []string{""}
	}
	for name, header := range map[string]nats.Header{
		"percent": {"X": {strings.Repeat("%", 61_000)}},
		"invalid": {"X": {strings.Repeat("\xff", 61_000)}},
		"short":   short,
	} {
		t.Run(name, func(t *testing.T) {
			b := onSQLite(t)
			bridge := b.open()
			b.target(bridge, "billing", quick(1), func(context.Context, schema.Envelope) error { return nil })
			stream, err := b.js.Stream(t.Context(), "MB_JOBS")
			if err != nil {
				t.Fatal(err)
			}
			size := len("NATS/1.0\r\n\r\n")
			for k, vs := range header {
				size += len(k) + len(vs[0]) + len(": \r\n")
			}
			msg := &nats.Msg{Subject: "mb.jobs.billing.charge", Header: header, Data: make([]byte, int(stream.CachedInfo().Config.MaxMsgSize)-size)}
			if err := b.conn.PublishMsg(msg); err != nil {
				t.Fatal(err)
			}
			b.run(bridge)
			l := b.awaitLetters(1)[0]
			b.awaitNoJobs()
			if len(l.Payload) != len(msg.Data) || len(l.Header) != len(header) {
				t.Errorf("letter with %d headers and %d bytes, want %d and %d", len(l.Header), len(l.Payload), len(header), len(msg.Data))
			}
		})
	}
}
