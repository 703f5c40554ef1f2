package deadletters

import (
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/schema"
)

// Two outboxes may use the same id for different messages, and so may two tenants or the publisher of two keys: neither
// letter may stand for the other.
func TestBox_keeps_letters_of_two_messages_with_one_id(t *testing.T) {
	t.Parallel()
	letter := func(what string, seq uint64) schema.DeadLetter {
		return schema.DeadLetter{
			Handler: "h", ID: "x", Cause: schema.CauseExhausted, Stream: schema.Events, Subject: "mb.events.public.a", Sequence: seq,
			Header: map[string][]string{schema.HeaderID: {"x"}}, Payload: []byte(what),
		}
	}
	t.Run("sources", func(t *testing.T) {
		keepsApart(t, func(what string, seq uint64) schema.DeadLetter {
			l := letter(what, seq)
			l.Header[schema.HeaderSource] = []string{what}
			return l
		})
		there, here := letter("same", 1), letter("same", 2)
		there.Header[schema.HeaderSource], here.Header[schema.HeaderSource] = []string{"/a"}, []string{"/b"}
		if sameMessage(there, here) {
			t.Error("one body from two sources is taken for one message")
		}
	})
	t.Run("keys", func(t *testing.T) {
		keepsApart(t, func(what string, seq uint64) schema.DeadLetter {
			l := letter(what, seq)
			l.Key = schema.InboxKey{Handler: "h", Tenant: what, Key: "x"}.Hash()
			return l
		})
	})
}

// keepsApart is for letters with one name of messages whose bodies tell them apart.
func keepsApart(t *testing.T, letter func(what string, seq uint64) schema.DeadLetter) {
	js := testkit.NATS(t).JetStream(t)
	subjects := schema.Subjects{}
	stream, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: subjects.DeadStreamName(), Subjects: []string{subjects.Full("dead.>")}, AllowRollup: true, AllowMsgTTL: true})
	if err != nil {
		t.Fatal(err)
	}
	box := New(js, subjects, time.Hour)
	payloads := func() []string {
		t.Helper()
		info, err := stream.Info(t.Context(), jetstream.WithSubjectFilter(">"))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for subject := range info.State.Subjects {
			l, err := box.last(t.Context(), subject)
			if err != nil {
				t.Fatal(err)
			}
			if l.MessageID() != "x" {
				t.Errorf("letter %s is of message %s", l.ID, l.MessageID())
			}
			got = append(got, l.Tombstone+string(l.Payload))
		}
		slices.Sort(got)
		return got
	}
	write := func(l schema.DeadLetter) {
		t.Helper()
		if err := box.Write(t.Context(), l); err != nil {
			t.Fatal(err)
		}
	}
	write(letter("/a", 1))
	write(letter("/a", 1)) // delivered again: the same letter
	if got := payloads(); !slices.Equal(got, []string{"/a"}) {
		t.Fatalf("letters %q", got)
	}
	write(letter("/b", 2))
	write(letter("/b", 2))
	if got := payloads(); !slices.Equal(got, []string{"/a", "/b"}) {
		t.Fatalf("letters %q", got)
	}
	first, err := box.last(t.Context(), subjects.Dead(schema.Events, "h", "x", 0))
	if err != nil {
		t.Fatal(err)
	}
	if won, err := box.Tombstone(t.Context(), first, Dropped); err != nil || !won {
		t.Fatalf("tombstone: %v, %v", won, err)
	}
	write(letter("/a", 1)) // a late delivery finds the tombstone
	write(letter("/c", 3)) // another message does not take it for its own
	if got := payloads(); !slices.Equal(got, []string{"/b", "/c", "dropped"}) {
		t.Fatalf("letters %q", got)
	}
}
