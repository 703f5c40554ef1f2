package router

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/schema"
	"github.com/millbridge/millbridge/subscribers"
)

// grantingInbox lets every run start and takes every result at once.
type grantingInbox struct{ Inbox }

func (grantingInbox) Claim(_ context.Context, run schema.Run) (schema.ClaimResult, error) {
	return schema.ClaimResult{Claim: schema.ClaimRun, Record: schema.InboxRecord{Key: run.Key}}, nil
}

func (grantingInbox) Done(context.Context, schema.Run) error { return nil }

// BenchmarkChain takes one message through the middlewares to a handler that does nothing, without broker and database.
func BenchmarkChain(b *testing.B) {
	for _, mode := range []handlers.Mode{handlers.ModeNone, handlers.ModeLease} {
		b.Run(mode.String(), func(b *testing.B) {
			log := slog.New(slog.NewTextHandler(discard{}, &slog.HandlerOptions{Level: slog.LevelInfo}))
			c := &chain{
				name: "bench", policy: handlers.Policy{Mode: mode}.OrDefault(), lease: 20 * time.Second, inbox: grantingInbox{},
				handler: handlers.HandlerFunc(func(context.Context, schema.Envelope) error { return nil }),
				runs:    newRuns(nil, 20*time.Second, log), slots: make(chan struct{}, 1), pace: newPace(0, nil), log: log, firstPause: firstPause,
			}
			handle := message.HandlerFunc(c.handle)
			for _, m := range slices.Backward(c.middlewares()) {
				handle = m(handle)
			}
			d := delivered(b)
			b.ReportAllocs()
			for b.Loop() {
				msg := message.NewMessage("id", d.Payload)
				msg.SetContext(subscribers.WithDelivery(context.Background(), d))
				if _, err := handle(msg); err != nil {
					b.Fatal(err)
				}
				if !msg.Ack() {
					b.Fatal("the message was given back")
				}
			}
		})
	}
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

// delivered is a job as a forwarder sends it: 256 bytes of payload and six entries of metadata.
func delivered(b *testing.B) *subscribers.Delivery {
	b.Helper()
	e := schema.NewJob("bench", "place", bytes.Repeat([]byte("x"), 256), schema.WithOrderingKey("cust-000001"), schema.WithTenant("acme"),
		schema.WithContentType("application/json"), schema.WithTime(time.Unix(1e9, 0)), schema.WithMetadata(map[string]string{
			"event_type": "OrderPlaced", "aggregate_id": "ord-1", "correlation_id": "3f0e7c1a-5b52-4f0e-9a55-1f6f7a3e2b10",
			"tenant": "acme", "schema": "v1", "source": "checkout",
		}))
	header, err := schema.ParseHeader(schema.EncodeHeader(e))
	if err != nil {
		b.Fatal(err)
	}
	header[schema.HeaderSource] = []string{schema.SourceOf("bench")}
	return &subscribers.Delivery{Stream: "MB_JOBS", Subject: "mb.jobs.bench.place", Sequence: 1, Delivered: 1, Header: header, Payload: e.Payload}
}
