package router

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"pgregory.net/rapid"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/internal/deadletters"
	"github.com/millbridge/millbridge/schema"
	"github.com/millbridge/millbridge/subscribers"
)

// The model explores how the inbox, verdicts, dead letters, replays and drops behave when runs overlap, crash at any
// point, lose answers and acks and outlive their leases. Runs and operators are goroutines that stop before each step
// that others could see; the model decides who goes on and what becomes of the step. The stream and the box of dead
// letters are simple fakes; middlewares, operator and inbox are the real ones.

func TestModel(t *testing.T) {
	t.Parallel()
	for name, open := range modelStores {
		for _, mode := range []handlers.Mode{handlers.ModeLease, handlers.ModeTx, handlers.ModeNone} {
			t.Run(name+"/"+mode.String(), func(t *testing.T) {
				t.Parallel()
				store := open(t)
				worlds := 0
				rapid.Check(t, func(rt *rapid.T) {
					worlds++ // each has a handler of its own, so that they can share the database
					w := newWorld(rt, store, mode, fmt.Sprintf("h%d", worlds))
					defer w.abandon()
					for range rapid.IntRange(1, 120).Draw(rt, "steps") {
						w.move()
					}
					w.finish()
					w.checkNothingVanished()
				})
			})
		}
	}
}

// modelMessage is a message in the fake stream.
type modelMessage struct {
	env       schema.Envelope
	seq       uint64
	delivered uint64
	acked     bool
}

// life is one life of a key: the first, or the one after its n-th replay.
type life struct {
	key    string
	replay int
}

// modelLetter is a letter in the fake box.
type modelLetter struct {
	deadletters.Letter
	life    life
	body    string
	changes int // how often an operator's replay or drop of it has committed
}

type world struct {
	*rapid.T
	store   modelStore
	mode    handlers.Mode
	policy  handlers.Policy
	handler string
	runs    *runs

	stream  []*modelMessage
	outbox  []schema.Envelope // committed replays that are not in the stream yet
	letters map[string]*modelLetter
	actors  []*actor // that run
	crashed []*actor

	effects    map[life][]string // bodies of completed effects
	cancelled  map[life][]string // bodies of what was not wanted any more
	done       map[life]bool     // marked as handled
	failures   map[life]int      // recorded failed attempts
	doubled    map[life]bool     // an attempt was counted twice
	replays    map[string]int    // highest replay number that has committed, by key
	last       map[string]*actor // who has asked the inbox for a key last
	violations []string
}

func newWorld(rt *rapid.T, store modelStore, mode handlers.Mode, handler string) *world {
	return &world{
		T: rt, store: store, mode: mode, handler: handler,
		policy: handlers.Policy{
			Retry: schema.RetryPolicy{MaxAttempts: rapid.IntRange(2, 3).Draw(rt, "attempts"), Base: 1, Factor: 1}, Mode: mode, MaxCrashes: 4, Timeout: time.Hour,
		}.OrDefault(),
		runs:    newRuns(store, time.Hour, slog.New(slog.DiscardHandler)),
		letters: map[string]*modelLetter{}, effects: map[life][]string{}, cancelled: map[life][]string{}, done: map[life]bool{},
		failures: map[life]int{}, doubled: map[life]bool{}, replays: map[string]int{}, last: map[string]*actor{},
	}
}

func (w *world) violate(format string, args ...any) {
	w.violations = append(w.violations, fmt.Sprintf(format, args...))
}

// move makes one thing happen that could happen now.
func (w *world) move() {
	type possible struct {
		name string
		do   func()
	}
	var moves []possible
	add := func(do func(), format string, args ...any) {
		moves = append(moves, possible{fmt.Sprintf(format, args...), do})
	}
	if len(w.stream) < 4 {
		add(w.publish, "publish")
	}
	for _, m := range w.stream {
		if !m.acked && len(w.actors) < 4 {
			add(func() { w.deliver(m) }, "deliver %s", m.env.ID)
		}
	}
	for _, m := range w.stream {
		if m.delivered > 0 && !m.acked && !slices.ContainsFunc(w.actors, func(a *actor) bool { return a.message == m }) {
			add(func() { m.delivered = 0 }, "the consumer counts deliveries of %s anew", m.env.ID)
		}
	}
	for _, a := range w.actors {
		step := func() { w.step(a, rapid.SampledFrom(a.fatesAt()).Draw(w.T, "fate")) }
		for range 4 { // more likely than others, so that something comes to an end
			add(step, "%s goes on", a.name)
		}
	}
	for _, a := range slices.Concat(w.actors, w.crashed) {
		if a.run.Owner != "" && !a.expired {
			add(func() { w.expire(a) }, "the lease of %s ends", a.name)
		}
	}
	if len(w.outbox) > 0 {
		add(w.forward, "forward a replay")
	}
	for _, l := range w.openLetters() {
		if len(w.actors) < 4 {
			add(func() { w.operate(l, true) }, "replay the letter of %s", l.ID)
			add(func() { w.operate(l, false) }, "drop the letter of %s", l.ID)
		}
	}
	if len(moves) == 0 {
		return
	}
	names := make([]string, len(moves))
	for i, m := range moves {
		names[i] = m.name
	}
	i := rapid.IntRange(0, len(moves)-1).Draw(w.T, "move")
	w.Logf("%s", names[i])
	moves[i].do()
	w.checkViolations()
}

func (w *world) checkViolations() {
	if len(w.violations) > 0 {
		w.Fatalf("%v", w.violations)
	}
}

// publish puts a message into the stream. Keys and bodies come from few, so that they repeat.
func (w *world) publish() {
	key := rapid.SampledFrom([]string{"k1", "k2", ""}).Draw(w.T, "key")
	body := rapid.SampledFrom([]string{"a", "a", "a", "b"}).Draw(w.T, "body")
	id := fmt.Sprintf("m%d", len(w.stream)+1)
	w.add(schema.NewJob(w.handler, "do", []byte(body), schema.WithID(id), schema.WithKey(key)))
}

func (w *world) add(env schema.Envelope) {
	w.stream = append(w.stream, &modelMessage{env: env, seq: uint64(len(w.stream) + 1)})
}

func (w *world) forward() {
	w.add(w.outbox[0])
	w.outbox = w.outbox[1:]
}

func (w *world) openLetters() []*modelLetter {
	var open []*modelLetter
	for _, l := range w.letters {
		if l.Tombstone == "" {
			open = append(open, l)
		}
	}
	slices.SortFunc(open, func(a, b *modelLetter) int { return int(a.Seq) - int(b.Seq) })
	return open
}

// deliver starts a run of m.
func (w *world) deliver(m *modelMessage) {
	m.delivered++
	header, err := schema.ParseHeader(schema.EncodeHeader(m.env))
	if err != nil {
		w.Fatal(err)
	}
	d := &subscribers.Delivery{
		Stream: "MB_JOBS", Subject: "mb." + m.env.Subject(), Sequence: m.seq, Delivered: m.delivered,
		Header: header, Payload: m.env.Payload,
	}
	a := newActor(fmt.Sprintf("run %d of %s", m.delivered, m.env.ID))
	a.message, a.life, a.world = m, life{m.env.IdempotencyKey(), m.replay()}, w
	c := &chain{
		name: w.handler, handler: handlers.HandlerFunc(a.handle), policy: w.policy, lease: time.Hour,
		inbox: gatedInbox{w.store, a}, letters: gatedLetters{a}, runs: w.runs, slots: make(chan struct{}, 9), pace: newPace(0, nil),
		log: slog.New(slog.DiscardHandler), firstPause: time.Microsecond,
	}
	ctx, cancel := context.WithCancel(context.Background())
	a.cancel = cancel
	msg := message.NewMessage(m.env.ID, m.env.Payload)
	msg.SetContext(ctx)
	w.start(a, func() { a.out = c.process(msg, d, c.timeout(c.idempotency(c.observe(c.recover(c.handle))))) })
}

func (m *modelMessage) replay() int {
	if m.env.Replay == nil {
		return 0
	}
	return m.env.Replay.Number
}

// operate starts an operator who has just read l.
func (w *world) operate(l *modelLetter, replay bool) {
	a := newActor("operator of " + l.ID)
	a.letter, a.world, a.operates = l, w, true
	op := &deadletters.Operator{Store: gatedStore{w.store, a}, Letters: gatedLetters{a}}
	letter := l.Letter
	w.start(a, func() {
		if replay {
			a.err = op.Replay(context.Background(), letter)
		} else {
			a.err = op.Drop(context.Background(), letter)
		}
	})
}

func (w *world) start(a *actor, f func()) {
	w.actors = append(w.actors, a)
	go func() {
		defer close(a.done)
		f()
	}()
	w.await(a)
}

// step lets a go on to where it stops next, or to its end.
func (w *world) step(a *actor, f fate) {
	w.Logf("  %s: %s", a.point, f)
	a.fates <- f
	w.await(a)
}

func (w *world) await(a *actor) {
	select {
	case a.point = <-a.at:
		return
	case <-a.done:
	case <-time.After(time.Minute):
		w.Fatalf("%s hangs", a.name)
	}
	w.actors = slices.DeleteFunc(w.actors, func(b *actor) bool { return a == b })
	switch {
	case a.crashed:
		w.crashed = append(w.crashed, a)
	case a.operates:
		w.checkOperator(a)
	case a.out.ack && !rapid.Bool().Draw(w.T, "ack is lost"):
		a.message.acked = true
	}
	if a.cancel != nil {
		a.cancel()
	}
}

// expire ends a lease as if its time were over. In that time all other runs have had theirs renewed, or were stopped.
func (w *world) expire(a *actor) {
	a.expired = true
	ctx := context.Background()
	if _, err := w.store.Extend(ctx, []schema.Run{a.run}, -time.Second); err != nil {
		w.Fatal(err)
	}
	for r := range w.runs.leases {
		if r.inbox.Owner == a.run.Owner {
			continue
		}
		held, err := w.store.Extend(ctx, []schema.Run{r.inbox}, time.Hour)
		if err != nil {
			w.Fatal(err)
		}
		if len(held) == 0 {
			r.cancel(errLeaseLost)
		}
	}
}

// abandon ends all actors, whatever the model found.
func (w *world) abandon() {
	for _, a := range w.actors {
		for a.crashed = true; ; {
			select {
			case <-a.at:
				continue
			case a.fates <- crash:
				continue
			case <-a.done:
			}
			break
		}
	}
}

// finish lets everything happen that is left to happen, and succeed.
func (w *world) finish() {
	for range 100 {
		for len(w.actors) > 0 {
			w.step(w.actors[0], w.actors[0].fatesAt()[0])
			w.checkViolations()
		}
		for _, a := range w.crashed {
			w.expire(a)
		}
		w.crashed = nil
		for len(w.outbox) > 0 {
			w.forward()
		}
		i := slices.IndexFunc(w.stream, func(m *modelMessage) bool { return !m.acked })
		if i < 0 {
			return
		}
		w.deliver(w.stream[i])
	}
	w.Fatalf("messages stay in the stream")
}

// checkNothingVanished proves that each message was handled, is an open letter or was dropped by an operator.
func (w *world) checkNothingVanished() {
	for _, m := range w.stream {
		key, body := m.env.IdempotencyKey(), string(m.env.Payload)
		found := false
		for _, ends := range []map[life][]string{w.effects, w.cancelled} {
			for l, bodies := range ends {
				found = found || l.key == key && slices.Contains(bodies, body)
			}
		}
		for _, l := range w.letters {
			found = found || l.life.key == key && l.body == body && l.Tombstone != deadletters.Replayed
		}
		if !found {
			w.Fatalf("message %s with key %s and body %s has vanished", m.env.ID, key, body)
		}
	}
}

func (w *world) checkOperator(a *actor) {
	changed := a.letter.changes > 0 || a.letter.Tombstone != ""
	switch {
	case a.err == nil && !changed:
		w.violate("%s succeeded and changed nothing", a.name)
	case errors.Is(a.err, schema.ErrAlreadyReplayed) && !changed:
		w.violate("%s was told that somebody was quicker: %v", a.name, a.err)
	}
}
