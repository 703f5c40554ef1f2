package router_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/millbridge/millbridge/router"
	"github.com/millbridge/millbridge/schema"
)

// Messages of other publishers: each is handled, or is a dead letter with its bytes and headers.
func TestC10_foreign_messages(t *testing.T) {
	many := nats.Header{schema.HeaderID: {"many"}}
	for i := range 200 {
		many[fmt.Sprintf("X-%d", i)] = []string{strings.Repeat("v", 20)}
	}
	for name, c := range map[string]struct {
		header  nats.Header
		payload string
		handled bool
	}{
		"key_twice":      {nats.Header{schema.HeaderID: {"twice"}, "X": {"a", "b"}}, "body", false},
		"our_key_twice":  {nats.Header{schema.HeaderID: {"twice2"}, "mb-version": {"1"}, "Mb-Version": {"1"}}, "body", false},
		"no_id":          {nats.Header{"X": {"a"}}, "body", false},
		"no_headers":     {nil, "body", false},
		"binary":         {nil, "\x00\xff\xfe", false},
		"empty_body":     {nats.Header{schema.HeaderID: {"empty"}}, "", true},
		"cloud_event":    {nats.Header{"Ce-Id": {"id with spaces"}, "ce-time": {"nonsense"}}, "body", true},
		"200_headers":    {many, "body", true},
		"invalid_utf_8":  {nats.Header{schema.HeaderID: {"utf8"}, "X": {"\xff\xfe"}}, "body", true},
		"newer_version":  {nats.Header{schema.HeaderID: {"v2"}, schema.HeaderVersion: {"2.0"}}, "body", false},
		"broker_headers": {nats.Header{"Nats-Rollup-X": {"sub"}, "Nats-Thing": {"x"}}, "body", false},
		"claims_replay":  {nats.Header{schema.HeaderID: {"r"}, schema.HeaderReplayOf: {"x"}, schema.HeaderReplay: {"1"}}, "body", false},
	} {
		t.Run(name, func(t *testing.T) {
			onBoth(t, func(t *testing.T, b *bench) {
				bridge := b.open()
				var seen calls
				b.target(bridge, "billing", quick(3), func(_ context.Context, env schema.Envelope) error { seen.add(env); return nil })
				b.run(bridge)
				sent := &nats.Msg{Subject: "mb.jobs.billing.charge", Header: maps.Clone(c.header), Data: []byte(c.payload)}
				ack, err := b.js.PublishMsg(t.Context(), sent)
				if err != nil {
					t.Fatal(err)
				}
				b.awaitNoJobs()
				b.publish(bridge, schema.NewJob("billing", "charge", nil)) // the process lives
				b.eventually(func() error {
					if calls := seen.all(); len(calls) == 0 || calls[len(calls)-1].Source == "" {
						return fmt.Errorf("%d calls", len(calls))
					}
					return nil
				})
				letters := b.letters()
				if c.handled {
					first := seen.all()[0]
					if len(letters) != 0 || seen.count() != 2 || string(first.Payload) != c.payload {
						t.Fatalf("%d letters, calls %+v", len(letters), seen.all())
					}
					for k, v := range c.header {
						if strings.HasPrefix(k, "X") && first.Metadata[k] != v[0] {
							t.Errorf("metadata %s is %q, want %q", k, first.Metadata[k], v[0])
						}
					}
					return
				}
				if len(letters) != 1 || seen.count() != 1 {
					t.Fatalf("%d letters, %d calls", len(letters), seen.count())
				}
				l := letters[0]
				if l.Cause != schema.CauseUndecodable || l.ID != fmt.Sprintf("seq-%d", ack.Sequence) || l.Attempts != 0 || l.Deliveries != 1 ||
					l.Sequence != ack.Sequence || l.Subject != sent.Subject || !bytes.Equal(l.Payload, []byte(c.payload)) {
					t.Errorf("the letter is %+v", l.DeadLetter)
				}
				got := nats.Header(l.Header)
				for _, k := range slices.Collect(maps.Keys(got)) {
					if strings.HasPrefix(k, "Nats-Expected") || k == "Nats-Msg-Id" {
						delete(got, k)
					}
				}
				if !maps.EqualFunc(got, c.header, slices.Equal[[]string]) {
					t.Errorf("headers are %q, want %q", got, c.header)
				}
			})
		})
	}
}

// A message that names another target than its subject, and a replay for another handler, are not run by mistake.
func TestC10_messages_for_somebody_else(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		bridge := b.open()
		b.target(bridge, "billing", quick(3), func(_ context.Context, env schema.Envelope) error {
			if env.Replay != nil {
				t.Errorf("handled %+v", env)
			}
			return nil
		})
		for subject, header := range map[string]nats.Header{
			"mb.replay.billing.charge": {schema.HeaderID: {"r1"}, schema.HeaderReplayOf: {"x"}, schema.HeaderReplay: {"0"}, schema.HeaderType: {"job.billing.charge"}},
			"mb.replay.billing.refund": {schema.HeaderID: {"r2"}}, // says not what it replays
		} {
			if _, err := b.js.PublishMsg(t.Context(), &nats.Msg{Subject: subject, Header: header, Data: []byte("x")}); err != nil {
				t.Fatal(err)
			}
		}
		tally, err := bridge.Drain(t.Context())
		if err != nil || tally.Counts != (router.Counts{Dead: 2}) {
			t.Errorf("tally %+v, error %v", tally, err)
		}
		for _, l := range b.letters() {
			if l.Cause != schema.CauseUndecodable {
				t.Errorf("letter %+v", l.DeadLetter)
			}
		}
	})
}

// A message that names our outbox as its source, but has an id that no database takes.
func TestC10_forged_messages_with_impossible_ids(t *testing.T) {
	var long strings.Builder // not to be compressed
	for range 200 {
		long.WriteString(rand.Text())
	}
	for name, id := range map[string]string{"not_utf_8": "\xff\xfe", "long": long.String(), "none": ""} {
		t.Run(name, func(t *testing.T) {
			onBoth(t, func(t *testing.T, b *bench) {
				bridge := b.open()
				b.target(bridge, "billing", quick(1), func(context.Context, schema.Envelope) error { return nil })
				info, err := b.store.Info(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				msg := &nats.Msg{Subject: "mb.jobs.billing.charge", Header: nats.Header{
					schema.HeaderID: {id}, schema.HeaderVersion: {"2"}, schema.HeaderSource: {schema.SourceOf(info.ID)},
				}, Data: []byte("x")}
				ack, err := b.js.PublishMsg(t.Context(), msg)
				if err != nil {
					t.Fatal(err)
				}
				b.run(bridge)
				l := b.awaitLetters(1)[0]
				b.awaitNoJobs()
				if l.Cause != schema.CauseUndecodable || l.ID != fmt.Sprintf("seq-%d", ack.Sequence) || nats.Header(l.Header).Get(schema.HeaderID) != id {
					t.Errorf("letter %+v", l.DeadLetter)
				}
			})
		})
	}
}

// A replay with a number that no column holds is not run: its end could not be noted.
func TestC10_replays_with_impossible_numbers(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		bridge := b.open()
		b.target(bridge, "billing", quick(3), func(_ context.Context, env schema.Envelope) error {
			t.Errorf("handled %+v", env)
			return nil
		})
		numbers := []string{"2147483648", "4294967297", "9223372036854775808"}
		for _, number := range numbers {
			msg := &nats.Msg{Subject: "mb.replay.billing.charge", Header: nats.Header{
				schema.HeaderID: {"r"}, schema.HeaderType: {"job.billing.charge"}, schema.HeaderReplayOf: {"x"}, schema.HeaderReplay: {number},
			}, Data: []byte("x")}
			if _, err := b.js.PublishMsg(t.Context(), msg); err != nil {
				t.Fatal(err)
			}
		}
		tally, err := bridge.Drain(t.Context())
		if err != nil || tally.Counts != (router.Counts{Dead: int64(len(numbers))}) {
			t.Errorf("tally %+v, error %v", tally, err)
		}
		for _, l := range b.letters() {
			if l.Cause != schema.CauseUndecodable {
				t.Errorf("letter %+v", l.DeadLetter)
			}
		}
	})
}

// Two foreign messages under one id: the second is not taken for the first, and both letters are kept.
func TestC10_foreign_messages_that_share_an_id(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		bridge := b.open()
		b.target(bridge, "billing", quick(1), func(context.Context, schema.Envelope) error { return errFlaky })
		for _, body := range []string{"one", "two"} {
			msg := &nats.Msg{Subject: "mb.jobs.billing.charge", Header: nats.Header{schema.HeaderID: {"same"}}, Data: []byte(body)}
			if _, err := b.js.PublishMsg(t.Context(), msg); err != nil {
				t.Fatal(err)
			}
			if _, err := bridge.Drain(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		letters := b.letters()
		if len(letters) != 2 || letters[0].Cause != schema.CauseExhausted || string(letters[0].Payload) != "one" ||
			letters[1].Cause != schema.CauseKeyReused || string(letters[1].Payload) != "two" {
			t.Errorf("letters %+v", letters)
		}
	})
}
