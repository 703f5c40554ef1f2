package router

import (
	"context"
	"errors"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/internal/deadletters"
	"github.com/millbridge/millbridge/schema"
)

// fate is what becomes of an actor's step.
type fate string

const (
	goOn       fate = "goes on"
	crash      fate = "crashes before it"
	loseAnswer fate = "does it and hears of a failure"
	succeed    fate = "succeeds"
	fail       fate = "fails"
	failGood   fate = "fails for good"
	panics     fate = "panics"
	snoozes    fate = "is not ready"
	cancels    fate = "is not wanted any more"
	crashLater fate = "crashes after the effect"
)

var (
	errCrash = errors.New("crashed")
	errLost  = errors.New("the answer was lost")
)

// actor is a run or an operator.
type actor struct {
	name  string
	world *world
	at    chan string // tells before which step it has stopped
	fates chan fate   // tells it what becomes of that step
	done  chan struct{}

	point   string
	plan    fate // of a handler in a transaction, which cannot stop
	crashed bool
	cancel  context.CancelFunc

	message  *modelMessage // of a run
	life     life
	run      schema.Run
	out      outcome
	inside   bool // its handler runs
	expired  bool // its lease was ended
	recorded bool // its failure is in the inbox

	operates bool
	letter   *modelLetter // of an operator
	err      error
}

func newActor(name string) *actor {
	return &actor{name: name, at: make(chan string), fates: make(chan fate), done: make(chan struct{})}
}

// fatesAt lists what may become of the step that the actor is before; the first one is the best.
func (a *actor) fatesAt() []fate {
	switch a.point {
	case "handler":
		return []fate{succeed, succeed, fail, fail, failGood, panics, snoozes, cancels, crash, crashLater}
	case "unit":
		return []fate{succeed, succeed, fail, fail, failGood, panics, snoozes, cancels, crash, crashLater, loseAnswer}
	}
	return []fate{goOn, goOn, goOn, goOn, loseAnswer, crash}
}

// gate stops the actor before a step until the model lets it go on.
func (a *actor) gate(point string) fate {
	if a.crashed {
		return crash
	}
	a.at <- point
	f := <-a.fates
	if f == crash {
		a.crash()
	}
	return f
}

func (a *actor) crash() {
	a.crashed = true
	if a.cancel != nil {
		a.cancel()
	}
}

// handle is the handler.
func (a *actor) handle(ctx context.Context, env schema.Envelope) error {
	a.checkStart(ctx)
	a.inside = true
	defer func() { a.inside = false }()
	f := a.plan
	if a.world.mode != handlers.ModeTx {
		f = a.gate("handler")
	}
	switch f {
	case fail:
		return errors.New("failed")
	case failGood:
		return handlers.Permanent(errors.New("failed for good"))
	case panics:
		panic("boom")
	case snoozes:
		return handlers.Snooze(errors.New("not ready"), 1)
	case cancels:
		return handlers.Cancel(errors.New("not wanted"))
	case crash:
		a.crash()
		return errCrash
	}
	if a.world.mode != handlers.ModeTx {
		a.effect()
	}
	if f == crashLater {
		a.crash()
		return errCrash
	}
	return nil
}

func (a *actor) effect() {
	w := a.world
	w.effects[a.life] = append(w.effects[a.life], string(a.message.env.Payload))
}

// checkStart holds what must be true whenever a handler starts.
func (a *actor) checkStart(ctx context.Context) {
	w := a.world
	if w.mode == handlers.ModeNone {
		return
	}
	if n := w.replays[a.life.key]; a.life.replay < n {
		w.violate("%s starts, but replay %d has taken over", a.name, n)
	}
	if got, want := handlers.Attempt(ctx), w.failures[a.life]+1; got != want {
		w.violate("%s is attempt %d, want %d", a.name, got, want)
	}
	if w.done[a.life] {
		w.violate("%s starts, but the key is done", a.name)
	}
	for _, l := range w.letters {
		if l.life == a.life && l.Cause != schema.CauseKeyReused {
			w.violate("%s starts, but its letter is written", a.name)
		}
	}
	for _, b := range w.actors {
		if b != a && b.inside && b.life.key == a.life.key && !b.crashed && !b.expired {
			w.violate("%s starts while %s runs", a.name, b.name)
		}
	}
}

// gatedInbox is the inbox of one run.
type gatedInbox struct {
	Inbox
	a *actor
}

func (g gatedInbox) Claim(ctx context.Context, run schema.Run) (schema.ClaimResult, error) {
	g.a.run = run
	f := g.a.gate("claim")
	if f == crash {
		return schema.ClaimResult{}, errCrash
	}
	g.a.world.last[g.a.life.key] = g.a
	res, err := g.Inbox.Claim(ctx, run)
	if f == loseAnswer && err == nil {
		err = errLost
	}
	return res, err
}

func (g gatedInbox) Done(ctx context.Context, run schema.Run) error {
	f := g.a.gate("done")
	if f == crash {
		return errCrash
	}
	err := g.Inbox.Done(ctx, run)
	if err == nil {
		if g.a.world.done[g.a.life] {
			g.a.world.violate("%s: the key is done twice", g.a.name)
		}
		g.a.world.done[g.a.life] = true
		if f == loseAnswer {
			return errLost
		}
	}
	return err
}

func (g gatedInbox) Fail(ctx context.Context, run schema.Run, failure schema.Failure) (schema.InboxRecord, error) {
	f := g.a.gate("fail")
	if f == crash {
		return schema.InboxRecord{}, errCrash
	}
	w := g.a.world
	alone := w.last[g.a.life.key] == g.a
	w.last[g.a.life.key] = g.a
	rec, err := g.Inbox.Fail(ctx, run, failure)
	if err != nil {
		return rec, err
	}
	switch {
	case !g.a.recorded && failure.Attempted:
		w.failures[g.a.life]++
	case g.a.recorded && !alone && rec.Attempts == w.failures[g.a.life]+1:
		// The first call's answer was lost and another run came between: this attempt counts twice, which costs the
		// message a try and nothing else.
		w.failures[g.a.life]++
		w.doubled[g.a.life] = true
	}
	g.a.recorded = true
	if rec.Attempts != w.failures[g.a.life] {
		w.violate("%s: the inbox counts %d attempts, want %d", g.a.name, rec.Attempts, w.failures[g.a.life])
	}
	if failure.Cancelled {
		w.done[g.a.life] = true
		w.cancelled[g.a.life] = append(w.cancelled[g.a.life], string(g.a.message.env.Payload))
		if rec.State != schema.InboxDone || rec.Cause != schema.CauseCancelled {
			w.violate("%s is cancelled, and the record is %+v", g.a.name, rec)
		}
	}
	if failure.Dead != (rec.State == schema.InboxDead) {
		w.violate("%s: the verdict is %v and the state %s", g.a.name, failure.Dead, rec.State)
	}
	if n := w.policy.Retry.MaxAttempts; failure.Cause == schema.CauseExhausted && rec.Attempts != n &&
		(rec.Attempts < n || w.mode == handlers.ModeLease && !w.doubled[g.a.life]) { // without a lease, runs may overlap
		w.violate("%s is exhausted after %d attempts", g.a.name, rec.Attempts)
	}
	if f == loseAnswer {
		return schema.InboxRecord{}, errLost
	}
	return rec, nil
}

func (g gatedInbox) Free(ctx context.Context, run schema.Run) error {
	if g.a.gate("free") == crash {
		return errCrash
	}
	return g.Inbox.Free(ctx, run)
}

func (g gatedInbox) Unit(ctx context.Context, f func(schema.Unit) error) error {
	a := g.a
	a.plan = a.gate("unit")
	lost := a.plan == loseAnswer
	switch {
	case a.plan == crash:
		return errCrash
	case lost:
		a.plan = succeed
	}
	a.world.last[a.life.key] = a
	ran := false
	err := g.Inbox.Unit(ctx, func(u schema.Unit) error {
		err := f(u)
		ran = err == nil
		return err
	})
	if err == nil && ran {
		if len(a.world.effects[a.life]) > 0 {
			a.world.violate("%s: the effect happens twice in life %v", a.name, a.life)
		}
		a.effect()
		a.world.done[a.life] = true
		if lost {
			return errLost
		}
	}
	return err
}

// gatedLetters is the box of dead letters as one actor sees it.
type gatedLetters struct{ a *actor }

func (g gatedLetters) Write(_ context.Context, letter schema.DeadLetter) error {
	f := g.a.gate("letter")
	if f == crash {
		return errCrash
	}
	w := g.a.world
	place := schema.Subjects{}.Dead(letter.Stream, letter.Handler, letter.ID, letter.Replay)
	if w.letters[place] == nil {
		g.a.checkLetter(letter)
		w.letters[place] = &modelLetter{
			Letter: deadletters.Letter{DeadLetter: letter, Seq: uint64(len(w.letters) + 1)},
			life:   g.a.life, body: string(letter.Payload),
		}
	}
	if f == loseAnswer {
		return errLost
	}
	return nil
}

// checkLetter holds what must be true whenever a letter is new.
func (a *actor) checkLetter(letter schema.DeadLetter) {
	w := a.world
	if letter.Cause == schema.CauseKeyReused {
		return
	}
	for _, l := range w.letters {
		if l.life == a.life && l.Cause != schema.CauseKeyReused {
			w.violate("%s: a second letter in life %v, after the one of %s", a.name, a.life, l.ID)
		}
	}
	if w.done[a.life] {
		w.violate("%s: a letter of a key that is done", a.name)
	}
	if letter.Attempts != w.failures[a.life] {
		w.violate("%s: the letter says %d attempts, want %d", a.name, letter.Attempts, w.failures[a.life])
	}
}

func (g gatedLetters) Tombstone(_ context.Context, letter deadletters.Letter, word string) (bool, error) {
	f := g.a.gate("tombstone")
	if f == crash {
		return false, errCrash
	}
	won := g.a.letter.Tombstone == ""
	if won {
		g.a.letter.Tombstone = word
	}
	if f == loseAnswer {
		return false, errLost
	}
	return won, nil
}

// gatedStore is the database as an operator sees it.
type gatedStore struct {
	deadletters.Store
	a *actor
}

func (g gatedStore) Unit(ctx context.Context, f func(schema.Unit) error) error {
	fate := g.a.gate("decide")
	if fate == crash {
		return errCrash
	}
	var replay []schema.Envelope
	err := g.Store.Unit(ctx, func(u schema.Unit) error { return f(replayUnit{u, &replay}) })
	if err != nil {
		return err
	}
	w, l := g.a.world, g.a.letter
	if l.changes++; l.changes > 1 {
		w.violate("%s: the letter was replayed or dropped before", g.a.name)
	}
	for _, env := range replay {
		w.outbox = append(w.outbox, env)
		w.replays[l.life.key] = env.Replay.Number
	}
	if fate == loseAnswer {
		return errLost
	}
	return nil
}

func (g gatedStore) LookupInbox(ctx context.Context, key schema.InboxKey) (schema.InboxRecord, bool, error) {
	if g.a.gate("look up") == crash {
		return schema.InboxRecord{}, false, errCrash
	}
	return g.Store.LookupInbox(ctx, key)
}

// replayUnit notes what is published in a unit.
type replayUnit struct {
	schema.Unit
	envs *[]schema.Envelope
}

func (u replayUnit) Append(ctx context.Context, envs []schema.Envelope) ([]schema.Receipt, error) {
	*u.envs = append(*u.envs, envs...)
	return u.Unit.Append(ctx, envs)
}
