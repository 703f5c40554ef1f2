package router_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/internal/deadletters"
	"github.com/millbridge/millbridge/router"
	"github.com/millbridge/millbridge/schema"
)

// poison makes n messages die at the target "billing" and returns the bridge, which runs, and the switch that repairs
// the target.
func poison(b *bench, n int, policy handlers.Policy) (bridge *router.Bridge, seen *calls, repaired *atomic.Bool) {
	b.Helper()
	bridge, seen, repaired = b.open(), new(calls), new(atomic.Bool)
	b.target(bridge, "billing", policy, func(_ context.Context, env schema.Envelope) error {
		seen.add(env)
		if repaired.Load() && env.Metadata["hopeless"] == "" {
			return nil
		}
		return errFlaky
	})
	var jobs []schema.Envelope
	for i := range n {
		jobs = append(jobs, schema.NewJob("billing", "charge", fmt.Appendf(nil, "payload %d \xff\x00", i), schema.WithKey(fmt.Sprintf("key %d", i)),
			schema.WithMetadata(map[string]string{"n": fmt.Sprint(i), "umlaut": " ü "}), schema.WithTenant("t"), schema.WithActor("ann"), schema.WithRequestID("r")))
	}
	b.publish(bridge, jobs...)
	b.run(bridge)
	b.awaitLetters(n)
	b.awaitNoJobs()
	return bridge, seen, repaired
}

func open(letters []deadletters.Letter) []deadletters.Letter {
	var still []deadletters.Letter
	for _, l := range letters {
		if l.Tombstone == "" {
			still = append(still, l)
		}
	}
	return still
}

// Replay all, stopped halfway and run again: each message is delivered exactly once more and the list is empty.
func TestC35_replay_all(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		const n = 100
		_, seen, repaired := poison(b, n, quick(2))
		before := maps.Collect(func(yield func(string, schema.Envelope) bool) {
			for _, env := range seen.all() {
				if !yield(env.Key, env) {
					return
				}
			}
		})
		repaired.Store(true)
		op := b.operator()
		for i, l := range b.letters() {
			if i == n/2 {
				break
			}
			if err := op.Replay(t.Context(), l); err != nil {
				t.Fatal(err)
			}
		}
		if left := open(b.letters()); len(left) != n/2 {
			t.Fatalf("%d letters are left, want %d", len(left), n/2)
		}
		for _, l := range open(b.letters()) {
			if err := op.Replay(t.Context(), l); err != nil {
				t.Fatal(err)
			}
		}
		b.eventually(seen.reaches(2*n + n))
		b.awaitNoJobs()
		letters := b.letters()
		if len(open(letters)) != 0 || len(letters) != n || seen.count() != 3*n {
			t.Errorf("%d letters are open, %d are there, %d calls", len(open(letters)), len(letters), seen.count())
		}
		for _, l := range letters {
			if l.Tombstone != deadletters.Replayed || l.Attempts != 2 || l.Reason != "error: "+errFlaky.Error() {
				t.Errorf("the tombstone says %+v", l.DeadLetter)
			}
		}
		for _, env := range seen.all()[2*n:] {
			first := before[env.Key]
			if env.Replay == nil || env.Replay.Of != first.ID || env.Replay.Number != 1 || env.ID == first.ID {
				t.Errorf("the replay is %+v, of %s", env.Replay, first.ID)
			}
			env.ID, env.Replay = first.ID, nil
			if fmt.Sprint(env) != fmt.Sprint(first) {
				t.Errorf("the replay differs:\n%v\n%v", env, first)
			}
		}
	})
}

// A fresh budget of attempts, and back on the list once with a higher number if it fails again.
func TestC35_replay_that_fails_again(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		_, seen, _ := poison(b, 1, quick(3))
		first := b.letters()[0]
		for n := 1; n <= 2; n++ {
			letter := open(b.letters())[0]
			if err := b.operator().Replay(t.Context(), letter); err != nil {
				t.Fatal(err)
			}
			b.eventually(seen.reaches(3 + 3*n))
			b.awaitNoJobs()
			again := open(b.awaitLetters(n + 1))
			if len(again) != 1 || again[0].Replay != n || again[0].ID != first.ID || again[0].Attempts != 3 || again[0].Cause != schema.CauseExhausted {
				t.Fatalf("after replay %d the list has %+v", n, again)
			}
		}
		if seen.count() != 9 {
			t.Errorf("%d calls, want 9", seen.count())
		}
	})
}

// Many operators at one letter, with both orders: exactly one succeeds, the others are told.
func TestC35_second_operator(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		const n, operators = 8, 6
		_, seen, repaired := poison(b, n, quick(1))
		repaired.Store(true)
		var replayed, dropped, late atomic.Int64
		var wg sync.WaitGroup
		for _, l := range b.letters() {
			for i := range operators {
				wg.Go(func() {
					op, count, what := b.operator().Replay, &replayed, "replay"
					if i%2 == 1 {
						op, count, what = b.operator().Drop, &dropped, "drop"
					}
					err := op(context.Background(), l)
					switch {
					case err == nil:
						count.Add(1)
					case errors.Is(err, schema.ErrAlreadyReplayed):
						late.Add(1)
					default:
						t.Errorf("%s: %v", what, err)
					}
				})
			}
		}
		wg.Wait()
		if replayed.Load()+dropped.Load() != n || late.Load() != n*(operators-1) {
			t.Errorf("%d replayed, %d dropped, %d late", replayed.Load(), dropped.Load(), late.Load())
		}
		b.eventually(seen.reaches(n + int(replayed.Load())))
		b.awaitNoJobs()
		letters := b.letters()
		if len(open(letters)) != 0 || seen.count() != n+int(replayed.Load()) {
			t.Errorf("%d open, %d calls for %d replays", len(open(letters)), seen.count(), replayed.Load())
		}
		words := map[string]int{}
		for _, l := range letters {
			words[l.Tombstone]++
		}
		if words[deadletters.Replayed] != int(replayed.Load()) || words[deadletters.Dropped] != int(dropped.Load()) {
			t.Errorf("tombstones %v, %d replayed, %d dropped", words, replayed.Load(), dropped.Load())
		}
	})
}

// One letter is replayed and another dropped: each stays what it is, and the dropped key is not run again.
func TestC35_replay_one_drop_another(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		bridge, seen, repaired := poison(b, 2, quick(1))
		repaired.Store(true)
		letters := b.letters()
		if err := b.operator().Replay(t.Context(), letters[0]); err != nil {
			t.Fatal(err)
		}
		if err := b.operator().Drop(t.Context(), letters[1]); err != nil {
			t.Fatal(err)
		}
		b.eventually(seen.reaches(3))
		b.awaitNoJobs()
		for i, word := range []string{deadletters.Replayed, deadletters.Dropped} {
			for what, op := range map[string]func(context.Context, deadletters.Letter) error{"replay": b.operator().Replay, "drop": b.operator().Drop} {
				err := op(t.Context(), letters[i])
				if !errors.Is(err, schema.ErrAlreadyReplayed) || !strings.Contains(err.Error(), word) {
					t.Errorf("%s of a %s letter: %v", what, word, err)
				}
			}
		}
		recs, err := b.store.InboxByMessage(t.Context(), letters[1].ID)
		if err != nil || len(recs) != 1 || recs[0].State != schema.InboxDropped {
			t.Errorf("the inbox has %+v, error %v", recs, err)
		}
		b.publish(bridge, schema.NewJob("billing", "charge", nil)) // the target works
		b.eventually(seen.reaches(4))
	})
}

// An operator whose process ends between the decision and the tombstone: the letter is still listed, and the next
// operator is told and clears it.
func TestC35_operator_that_dies(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		_, seen, repaired := poison(b, 2, quick(1))
		repaired.Store(true)
		letters := b.letters()
		dying := b.operator()
		dying.Letters = noTombstones{}
		if err := dying.Replay(t.Context(), letters[0]); err == nil || !strings.Contains(err.Error(), "still listed") {
			t.Errorf("replay without a tombstone: %v", err)
		}
		if err := dying.Drop(t.Context(), letters[1]); err == nil || !strings.Contains(err.Error(), "still listed") {
			t.Errorf("drop without a tombstone: %v", err)
		}
		b.eventually(seen.reaches(3))
		b.awaitNoJobs()
		if n := len(open(b.letters())); n != 2 {
			t.Fatalf("%d letters are listed", n)
		}
		for i, word := range []string{deadletters.Replayed, deadletters.Dropped} {
			if err := b.operator().Replay(t.Context(), letters[i]); !errors.Is(err, schema.ErrAlreadyReplayed) || !strings.Contains(err.Error(), word) {
				t.Errorf("the next operator is told %v, want %s", err, word)
			}
		}
		if n := len(open(b.letters())); n != 0 || seen.count() != 3 {
			t.Errorf("%d letters are listed, %d calls", n, seen.count())
		}
	})
}

type noTombstones struct{}

func (noTombstones) Tombstone(context.Context, deadletters.Letter, string) (bool, error) {
	return false, errFlaky
}

// A copy of the original that comes late, after its replay was published: it is acked and never runs, whether the replay
// has succeeded or died.
func TestC35_late_original(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		_, seen, repaired := poison(b, 2, quick(1))
		letters := b.letters()
		if err := b.operator().Replay(t.Context(), letters[0]); err != nil {
			t.Fatal(err)
		}
		b.eventually(seen.reaches(3))
		b.awaitLetters(3) // it died again
		repaired.Store(true)
		if err := b.operator().Replay(t.Context(), letters[1]); err != nil {
			t.Fatal(err)
		}
		b.eventually(seen.reaches(4))
		b.awaitNoJobs()
		for _, l := range letters {
			late := &nats.Msg{Subject: l.Subject, Header: nats.Header{}, Data: l.Payload}
			for k, v := range l.Header {
				if !strings.HasPrefix(k, "Nats-") {
					late.Header[k] = v
				}
			}
			if _, err := b.js.PublishMsg(t.Context(), late); err != nil {
				t.Fatal(err)
			}
		}
		b.awaitNoJobs()
		if n := len(b.letters()); n != 3 || seen.count() != 4 {
			t.Errorf("%d letters, want 3; %d calls, want 4", n, seen.count())
		}
	})
}

// An event's dead letter is replayed only for the subscription that gave it up.
func TestC35_replay_of_an_event(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		bridge := b.open()
		var good, bad calls
		var repaired atomic.Bool
		subscribe := func(name string, h func(schema.Envelope) error) {
			err := bridge.Subscribe(handlers.Subscription{
				Name: name, Events: []string{"order.>"}, Policy: quick(2),
				Handler: handlers.HandlerFunc(func(_ context.Context, env schema.Envelope) error { return h(env) }),
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		subscribe("good", func(env schema.Envelope) error { good.add(env); return nil })
		subscribe("bad", func(env schema.Envelope) error {
			bad.add(env)
			if repaired.Load() {
				return nil
			}
			return errFlaky
		})
		b.run(bridge)
		b.healthy(bridge)
		event := schema.NewEvent("order.placed", "x", schema.WithPublic())
		b.publish(bridge, event)
		letter := b.awaitLetters(1)[0]
		if letter.Stream != schema.Events || letter.Handler != "bad" || letter.Attempts != 2 {
			t.Errorf("the letter is %+v", letter.DeadLetter)
		}
		b.eventually(good.reaches(1))
		repaired.Store(true)
		if err := b.operator().Replay(t.Context(), letter); err != nil {
			t.Fatal(err)
		}
		b.eventually(bad.reaches(3))
		b.awaitNoJobs()
		replayed := bad.all()[2]
		if replayed.Kind != schema.KindEvent || replayed.Name != "order.placed" || replayed.Visibility != schema.Public ||
			replayed.Replay == nil || replayed.IdempotencyKey() != event.ID || string(replayed.Payload) != `"x"` {
			t.Errorf("the replay is %+v", replayed)
		}
		wait(200 * time.Millisecond)
		if good.count() != 1 {
			t.Errorf("the other subscription got %d", good.count())
		}
	})
}

// What cannot be read, or has another message's key, is not replayed but can be dropped.
func TestC35_letters_that_cannot_be_replayed(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		bridge := b.open()
		b.target(bridge, "billing", quick(1), func(context.Context, schema.Envelope) error { return nil })
		if _, err := b.js.Publish(t.Context(), "mb.jobs.billing.charge", []byte("raw")); err != nil {
			t.Fatal(err)
		}
		if _, err := bridge.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		letter := b.letters()[0]
		err := b.operator().Replay(t.Context(), letter)
		if !errors.Is(err, schema.ErrUndecodable) || schema.KindOf(err) != schema.Permanent {
			t.Errorf("replay: %v", err)
		}
		if err := b.operator().Drop(t.Context(), letter); err != nil {
			t.Errorf("drop: %v", err)
		}
		if err := b.operator().Drop(t.Context(), letter); !errors.Is(err, schema.ErrAlreadyReplayed) {
			t.Errorf("second drop: %v", err)
		}
		if n := len(open(b.letters())); n != 0 {
			t.Errorf("%d letters are listed", n)
		}
	})
}
