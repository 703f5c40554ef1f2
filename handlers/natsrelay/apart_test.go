package natsrelay_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/schema"
)

// Tenants have ids of their own, and no part of one message is taken for another part of another.
func TestRelay_keeps_tenants_apart(t *testing.T) {
	t.Parallel()
	s := testkit.NATS(t)
	js := s.JetStream(t)
	stream(t, js, jetstream.StreamConfig{Name: "S", Subjects: []string{"in"}})
	h := relay(t, s, toSubject("in"))
	for _, of := range [][2]string{{"/a", "one"}, {"/a", "two"}, {"/a", ""}, {"/a", "one"}, {"/a one", ""}, {"/a\r\nNats-TTL: 1s", ""}, {"/b", "t\r\n\r\nx"}} {
		env := schema.NewJob("x", "a", "1", schema.WithID("7"), schema.WithTenant(of[1]))
		env.Source = of[0]
		if err := h.Handle(t.Context(), env); err != nil {
			t.Errorf("%q: %v", of, err)
		}
	}
	if msgs := all(t.Context(), t, js, "S"); len(msgs) != 6 {
		t.Errorf("%d messages, want 6", len(msgs))
	}
}

// A stream that takes the subjects of a Millbridge that is not there is not taken for it.
func TestRelay_gives_another_Millbridge_nothing_by_way_of_other_streams(t *testing.T) {
	t.Parallel()
	s := testkit.NATS(t)
	js := s.JetStream(t)
	stream(t, js, jetstream.StreamConfig{Name: "ARCHIVE", Subjects: []string{"other.>"}})
	h := relay(t, s, toMillbridge)
	envs := []schema.Envelope{schema.NewJob("x", "a", "1"), schema.NewEvent("a", "1")}
	for _, env := range envs {
		if err := h.Handle(t.Context(), env); schema.KindOf(err) != schema.Temporary || !strings.Contains(fmt.Sprint(err), "expected stream") {
			t.Errorf("%s: %v", env.Kind, err)
		}
	}
	if msgs := all(t.Context(), t, js, "ARCHIVE"); len(msgs) != 0 {
		t.Errorf("%d messages were stored", len(msgs))
	}
	if err := js.DeleteStream(t.Context(), "ARCHIVE"); err != nil {
		t.Fatal(err)
	}
	streams(t, js, "other")
	for _, env := range envs {
		if err := h.Handle(t.Context(), env); err != nil {
			t.Errorf("%s: %v", env.Kind, err)
		}
	}
}

// What answers without having stored the message has not stored it.
func TestRelay_believes_no_answer_but_that_of_a_stream(t *testing.T) {
	t.Parallel()
	s := testkit.NATS(t)
	nc := s.Conn(t)
	h := relay(t, s, toSubject("in"))
	for _, answer := range []string{"", "ok", "{}", "null", `{"seq":1}`, `{"stream":"S"}`} {
		sub, err := nc.Subscribe("in", func(m *nats.Msg) { _ = m.Respond([]byte(answer)) })
		if err != nil {
			t.Fatal(err)
		}
		if err := nc.Flush(); err != nil {
			t.Fatal(err)
		}
		if err := h.Handle(t.Context(), schema.NewJob("x", "a", "1")); err == nil || schema.KindOf(err) != schema.Temporary {
			t.Errorf("%q: %v", answer, err)
		}
		if err := sub.Unsubscribe(); err != nil {
			t.Fatal(err)
		}
	}
}
