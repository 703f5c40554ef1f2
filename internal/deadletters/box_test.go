package deadletters_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/millbridge/millbridge/internal/deadletters"
	"github.com/millbridge/millbridge/internal/testkit"
	pubjs "github.com/millbridge/millbridge/publishers/jetstream"
	"github.com/millbridge/millbridge/schema"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newBox(t *testing.T) (*deadletters.Box, jetstream.JetStream) {
	t.Helper()
	js := testkit.NATS(t).JetStream(t)
	if err := pubjs.EnsureStreams(t.Context(), js, pubjs.StreamsConfig{}); err != nil {
		t.Fatal(err)
	}
	return deadletters.New(js, schema.Subjects{}, 0), js
}

func letter(handler, id string, edits ...func(*schema.DeadLetter)) schema.DeadLetter {
	l := schema.DeadLetter{
		Handler: handler, ID: id, Cause: schema.CauseExhausted, Reason: "error: boom", Attempts: 3, Deliveries: 4, Time: time.Now().UTC(),
		Stream: schema.Jobs, Subject: "mb.jobs." + handler + ".charge", Sequence: 7,
		Header: map[string][]string{schema.HeaderID: {id}, schema.HeaderTenant: {"t1"}}, Payload: []byte("payload of " + id),
	}
	for _, edit := range edits {
		edit(&l)
	}
	return l
}

func write(t *testing.T, box *deadletters.Box, letters ...schema.DeadLetter) {
	t.Helper()
	for _, l := range letters {
		if err := box.Write(t.Context(), l); err != nil {
			t.Fatal(err)
		}
	}
}

func list(t *testing.T, box *deadletters.Box, f deadletters.Filter) []deadletters.Letter {
	t.Helper()
	letters, _, err := box.List(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	return letters
}

func TestWrite_keeps_one_letter_of_a_message(t *testing.T) {
	t.Parallel()
	box, _ := newBox(t)
	first := letter("billing", "m1", func(l *schema.DeadLetter) { l.Stack = "goroutine 1" })
	again := letter("billing", "m1", func(l *schema.DeadLetter) { l.Reason, l.Sequence = "error: another story", 99 })
	write(t, box, first, again)
	got := list(t, box, deadletters.Filter{})
	if len(got) != 1 || fmt.Sprint(got[0].DeadLetter) != fmt.Sprint(first) {
		t.Errorf("the box has %+v, want %+v", got, first)
	}
	write(t, box, letter("billing", "m1", func(l *schema.DeadLetter) { l.Replay = 1 }), letter("shipping", "m1"))
	if n := len(list(t, box, deadletters.Filter{})); n != 3 {
		t.Errorf("%d letters, want one for each handler and replay", n)
	}
}

// Sequences come again when a stream is made anew, so the name of a foreign message is not enough.
func TestWrite_keeps_foreign_messages_apart(t *testing.T) {
	t.Parallel()
	box, _ := newBox(t)
	foreign := func(payload string, seq uint64) schema.DeadLetter {
		return letter("billing", "seq-7", func(l *schema.DeadLetter) {
			l.Cause, l.Payload, l.Sequence, l.Header = schema.CauseUndecodable, []byte(payload), seq, nil
		})
	}
	write(t, box, foreign("one", 7), foreign("one", 7), foreign("two", 7), foreign("two", 7))
	got := list(t, box, deadletters.Filter{})
	if len(got) != 2 || string(got[0].Payload) != "one" || string(got[1].Payload) != "two" || got[1].ID == got[0].ID {
		t.Fatalf("the box has %+v", got)
	}
	if won, err := box.Tombstone(t.Context(), got[0], deadletters.Dropped); err != nil || !won {
		t.Fatal(won, err)
	}
	write(t, box, foreign("one", 7), foreign("three", 8))
	if got = list(t, box, deadletters.Filter{}); len(got) != 2 || string(got[1].Payload) != "three" {
		t.Errorf("the box has %+v", got)
	}
}

func TestWrite_without_a_stream(t *testing.T) {
	t.Parallel()
	box := deadletters.New(testkit.NATS(t).JetStream(t), schema.Subjects{}, 0)
	if err := box.Write(t.Context(), letter("billing", "m1")); err == nil {
		t.Error("a letter was kept nowhere")
	}
}

func TestTombstone_takes_the_place_of_the_letter(t *testing.T) {
	t.Parallel()
	box, js := newBox(t)
	write(t, box, letter("billing", "m1"))
	first := list(t, box, deadletters.Filter{})[0]
	if won, err := box.Tombstone(t.Context(), first, deadletters.Replayed); err != nil || !won {
		t.Fatalf("first: %v, %v", won, err)
	}
	if won, err := box.Tombstone(t.Context(), first, deadletters.Dropped); err != nil || won {
		t.Errorf("second: %v, %v", won, err)
	}
	write(t, box, letter("billing", "m1")) // of a run that wakes up late
	if n := len(list(t, box, deadletters.Filter{})); n != 0 {
		t.Errorf("%d letters are open", n)
	}
	all := list(t, box, deadletters.Filter{Tombstones: true})
	if len(all) != 1 || all[0].Tombstone != deadletters.Replayed || all[0].Reason != first.Reason || all[0].Attempts != 3 || len(all[0].Payload) != 0 {
		t.Errorf("the box has %+v", all)
	}
	stream, err := js.Stream(t.Context(), "MB_DEAD")
	if err != nil {
		t.Fatal(err)
	}
	if n := stream.CachedInfo().State.Msgs; n != 1 {
		t.Errorf("the stream has %d messages", n)
	}
	msg, err := stream.GetMsg(t.Context(), all[0].Seq)
	if err != nil || msg.Header.Get("Nats-TTL") == "" {
		t.Errorf("the tombstone has the headers %v, error %v", msg.Header, err)
	}
}

// A server that is killed after it has stored a tombstone and before it has taken out the letter has both. Whoever replays or
// drops the letter then is told that this was done, and the letter is gone.
func TestTombstone_whose_letter_is_still_there(t *testing.T) {
	t.Parallel()
	box, js := newBox(t)
	write(t, box, letter("billing", "m1"))
	first := list(t, box, deadletters.Filter{})[0]
	stream, err := js.Stream(t.Context(), "MB_DEAD")
	if err != nil {
		t.Fatal(err)
	}
	msg, err := stream.GetMsg(t.Context(), first.Seq)
	if err != nil {
		t.Fatal(err)
	}
	mark := first.DeadLetter
	mark.Tombstone, mark.Payload = deadletters.Replayed, nil
	header, body := mark.Encode()
	if _, err := js.PublishMsg(t.Context(), &nats.Msg{Subject: msg.Subject, Header: header, Data: body}); err != nil {
		t.Fatal(err)
	}
	if n := len(list(t, box, deadletters.Filter{})); n != 1 {
		t.Fatalf("%d letters are listed, want the one beside its tombstone", n)
	}
	if won, err := box.Tombstone(t.Context(), first, deadletters.Dropped); err != nil || won {
		t.Errorf("%v, %v", won, err)
	}
	all := list(t, box, deadletters.Filter{Tombstones: true})
	if len(all) != 1 || all[0].Tombstone != deadletters.Replayed {
		t.Errorf("the box has %+v, want the tombstone alone", all)
	}
}

func TestList_filters_and_pages(t *testing.T) {
	t.Parallel()
	box, js := newBox(t)
	early := time.Now().Add(-time.Hour).UTC()
	write(t, box,
		letter("billing", "m1", func(l *schema.DeadLetter) { l.Time = early }),
		letter("billing", "m2", func(l *schema.DeadLetter) { l.Reason, l.Cause = "error: Card Refused", schema.CausePermanent }),
		letter("shipping", "m3", func(l *schema.DeadLetter) { l.Subject = "mb.jobs.shipping.send" }),
		letter("shipping", "m4", func(l *schema.DeadLetter) { l.Header = map[string][]string{schema.HeaderID: {"m4"}} }),
		letter("mail", "m5"))
	if won, err := box.Tombstone(t.Context(), list(t, box, deadletters.Filter{ID: "m5"})[0], deadletters.Dropped); err != nil || !won {
		t.Fatal(won, err)
	}
	if _, err := js.Publish(t.Context(), "mb.dead.jobs.billing.strange", []byte("no letter")); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		f    deadletters.Filter
		want []string
	}{
		"all":        {deadletters.Filter{}, []string{"m1", "m2", "m3", "m4", "dead-7"}},
		"tombstones": {deadletters.Filter{Tombstones: true}, []string{"m1", "m2", "m3", "m4", "m5", "dead-7"}},
		"handler":    {deadletters.Filter{Handler: "shipping"}, []string{"m3", "m4"}},
		"wild":       {deadletters.Filter{Handler: "*"}, nil},
		"id":         {deadletters.Filter{ID: "m3"}, []string{"m3"}},
		"name":       {deadletters.Filter{Name: "send"}, []string{"m3"}},
		"tenant":     {deadletters.Filter{Tenant: "t1"}, []string{"m1", "m2", "m3"}},
		"cause":      {deadletters.Filter{Cause: schema.CausePermanent}, []string{"m2"}},
		"text":       {deadletters.Filter{Text: "card refused"}, []string{"m2"}},
		"until":      {deadletters.Filter{Until: early.Add(time.Minute)}, []string{"m1"}},
		"since":      {deadletters.Filter{Since: early.Add(time.Minute), Handler: "billing"}, []string{"m2"}},
		"none":       {deadletters.Filter{Handler: "nobody"}, nil},
	} {
		var got []string
		for _, l := range list(t, box, c.f) {
			got = append(got, l.ID)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	var pages []string
	f := deadletters.Filter{Limit: 2}
	for {
		letters, next, err := box.List(t.Context(), f)
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, fmt.Sprint(len(letters)))
		if f.After = next; next == 0 {
			break
		}
	}
	if !slices.Equal(pages, []string{"2", "2", "1"}) {
		t.Errorf("pages of %q", pages)
	}
	if got, err := box.Get(t.Context(), "m1"); err != nil || len(got) != 1 {
		t.Errorf("get m1: %v, error %v", got, err)
	}
	for _, id := range []string{"m5", "nothing", "", "a.b", ">"} {
		if _, err := box.Get(t.Context(), id); id != "" && !errors.Is(err, schema.ErrNotFound) {
			t.Errorf("get %q: %v", id, err)
		}
	}
}
