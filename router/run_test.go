package router

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/schema"
	"github.com/millbridge/millbridge/subscribers"
)

func TestNewRun(t *testing.T) {
	t.Parallel()
	c := &chain{name: "billing", lease: time.Second}
	read := func(subject string, header map[string][]string) (*run, error) {
		return c.newRun(&subscribers.Delivery{Stream: "MB_JOBS", Subject: subject, Header: header, Payload: []byte("x")})
	}
	id := map[string][]string{schema.HeaderID: {"m1"}}
	r, err := read("mb.jobs.billing.charge", id)
	if err != nil || r.inbox.MessageID != "m1" || r.inbox.Replay != 0 || r.inbox.Key.Handler != "billing" || r.inbox.Key.Key != "m1" ||
		r.inbox.Owner == "" || r.inbox.Lease != time.Second || r.stream != schema.Jobs {
		t.Errorf("job: %+v, error %v", r.inbox, err)
	}
	replay := map[string][]string{
		schema.HeaderID: {"m2"}, schema.HeaderType: {"job.billing.charge"}, schema.HeaderReplayOf: {"m1"}, schema.HeaderReplay: {"3"},
	}
	if r, err = read("mb.replay.billing.charge", replay); err != nil || r.inbox.MessageID != "m1" || r.inbox.Replay != 3 || r.inbox.Key.Key != "m1" {
		t.Errorf("replay: %+v, error %v", r.inbox, err)
	}
	for subject, want := range map[string]string{
		"mb.jobs.other.charge":   `a job for target "other"`,
		"mb.replay.other.charge": `a replay for handler "other"`,
		"xx.jobs.billing.charge": "has another prefix",
		"mb.cursor.x":            "names no message",
	} {
		header := id
		if strings.Contains(subject, "replay") {
			header = replay
		}
		if _, err := read(subject, header); !errors.Is(err, schema.ErrUndecodable) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v lacks %q", subject, err, want)
		}
	}
}

func TestRun_counts_deliveries_without_result(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ delivered, recorded, want uint64 }{
		{1, 0, 0},
		{2, 0, 1},
		{6, 0, 5},
		{4, 3, 0}, // the one before was recorded
		{7, 3, 3},
		{1, 3, 0}, // a new consumer counts from 1
		{3, 7, 2},
		{3, 3, 0}, // a process that died has noted that this one does not count
		{0, 0, 0},
	} {
		r := &run{delivery: &subscribers.Delivery{Delivered: c.delivered}, record: schema.InboxRecord{Deliveries: c.recorded}}
		if got := r.fruitless(); got != c.want {
			t.Errorf("delivery %d after %d recorded: %d, want %d", c.delivered, c.recorded, got, c.want)
		}
	}
}

// After a delivery that does not count, the next one comes after as many without a result as it did.
func TestRun_counts_without_a_delivery(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ delivered, recorded, want uint64 }{
		{1, 0, 1},
		{2, 0, 1},
		{6, 0, 1},
		{4, 3, 4},
		{7, 3, 4},
		{3, 3, 3},
		{3, 7, 1}, // a new consumer
		{7, trialMark, trialMark},
	} {
		r := &run{delivery: &subscribers.Delivery{Delivered: c.delivered}, record: schema.InboxRecord{Deliveries: c.recorded}}
		before, got := r.fruitless(), r.without()
		next := &run{delivery: &subscribers.Delivery{Delivered: c.delivered + 1}, record: schema.InboxRecord{Deliveries: got}}
		if got != c.want || got != trialMark && next.fruitless() != before {
			t.Errorf("delivery %d after %d recorded: %d, want %d; %d without a result, then %d", c.delivered, c.recorded, got, c.want, before, next.fruitless())
		}
	}
}

// A handler that ends its goroutine cannot be caught, but its message must not hang: what is deferred gives it back.
func TestSettle_gives_back_what_ends_its_goroutine(t *testing.T) {
	t.Parallel()
	c := newTestChain(t)
	d := &subscribers.Delivery{Stream: "MB_JOBS", Subject: "mb.jobs.billing.x", Delivered: 1, Header: map[string][]string{schema.HeaderID: {"m1"}}}
	msg := message.NewMessage("m1", nil)
	msg.SetContext(subscribers.WithDelivery(context.Background(), d))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = c.settle(func(*message.Message) ([]*message.Message, error) {
			runtime.Goexit()
			return nil, nil
		})(msg)
	}()
	<-done
	select {
	case <-msg.Nacked():
	default:
		t.Error("the message was not given back")
	}
	if len(c.slots) != 0 || len(c.runs.active) != 0 {
		t.Errorf("%d slots are taken, %d runs active", len(c.slots), len(c.runs.active))
	}
}

// A message of a subscriber that is not ours is refused and not acked.
func TestSettle_needs_a_delivery(t *testing.T) {
	t.Parallel()
	_, err := newTestChain(t).settle(func(*message.Message) ([]*message.Message, error) {
		t.Error("the handler was called")
		return nil, nil
	})(message.NewMessage("m1", nil))
	if !errors.Is(err, errNotDelivered) {
		t.Errorf("settle returned %v", err)
	}
}

// Without an answer of the database a run may rely on its lease until it could be somebody else's, not longer.
func TestRuns_stop_when_leases_cannot_be_renewed(t *testing.T) {
	t.Parallel()
	const lease = 30 * time.Second
	now := time.Now()
	s := newRuns(awayInbox{}, lease, slog.New(slog.DiscardHandler))
	s.now = func() time.Time { return now }
	ctx, cancel := context.WithCancelCause(t.Context())
	r := &run{ctx: ctx, cancel: cancel, inbox: schema.Run{Owner: "me"}}
	s.begin(r)
	s.keep(r, now)
	for _, step := range []struct {
		at    time.Duration
		alive bool
	}{{10 * time.Second, true}, {20 * time.Second, true}, {21 * time.Second, false}} {
		now = now.Add(step.at - now.Sub(s.leases[r].Add(-lease)))
		s.renew(t.Context())
		if alive := ctx.Err() == nil; alive != step.alive {
			t.Errorf("after %v: alive is %v", step.at, alive)
		}
	}
	if cause := context.Cause(ctx); schema.KindOf(cause) != schema.NotMine {
		t.Errorf("the run was stopped with %v", cause)
	}
}

// Once a stop has begun, a message that was handed out before is given back instead of being run.
func TestRuns_begin_nothing_when_stopping(t *testing.T) {
	t.Parallel()
	c := newTestChain(t)
	c.runs.stop()
	d := &subscribers.Delivery{Stream: "MB_JOBS", Subject: "mb.jobs.billing.x", Delivered: 1, Header: map[string][]string{schema.HeaderID: {"m1"}}}
	msg := message.NewMessage("m1", nil)
	msg.SetContext(subscribers.WithDelivery(context.Background(), d))
	_, err := c.settle(func(*message.Message) ([]*message.Message, error) {
		t.Error("a run has begun")
		return nil, nil
	})(msg)
	if err != nil {
		t.Error(err)
	}
	select {
	case <-msg.Nacked():
	default:
		t.Error("the message was not given back")
	}
}

// A stop that comes while a message waits for its turn makes it no suspect: its delivery does not count.
func TestRuns_a_stop_before_the_turn_is_no_crash(t *testing.T) {
	t.Parallel()
	store := testkit.SQLiteStore(t)
	c := newTestChain(t)
	c.inbox, c.runs.inbox = store, store
	c.slots <- struct{}{} // another runs
	d := &subscribers.Delivery{
		Stream: "MB_JOBS", Subject: "mb.jobs.billing.x", Delivered: uint64(c.policy.MaxCrashes), Header: map[string][]string{schema.HeaderID: {"m1"}},
	}
	msg := message.NewMessage("m1", nil)
	msg.SetContext(subscribers.WithDelivery(context.Background(), d))
	done := make(chan error)
	go func() {
		_, err := c.settle(func(*message.Message) ([]*message.Message, error) { return nil, errors.New("a run has begun") })(msg)
		done <- err
	}()
	testkit.Eventually(t, time.Minute, func() error {
		c.runs.mu.Lock()
		defer c.runs.mu.Unlock()
		if len(c.runs.active) == 0 {
			return errors.New("not yet in hand")
		}
		return nil
	})
	c.runs.stop()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	recs, err := store.InboxByMessage(t.Context(), "m1")
	if err != nil || len(recs) != 1 || recs[0].Deliveries != 1 || recs[0].LeaseOwner != "" || recs[0].Attempts != 0 {
		t.Errorf("the inbox has %+v, error %v", recs, err)
	}
}

type awayInbox struct{ Inbox }

func (awayInbox) Extend(context.Context, []schema.Run, time.Duration) ([]string, error) {
	return nil, errors.New("the database is away")
}

// oddInbox answers with one error after the other, and with nil when there are no more.
type oddInbox struct {
	Inbox
	errs []error
}

func (in *oddInbox) Done(context.Context, schema.Run) (err error) {
	if len(in.errs) > 0 {
		err, in.errs = in.errs[0], in.errs[1:]
	}
	return err
}

func (in *oddInbox) Claim(ctx context.Context, run schema.Run) (schema.ClaimResult, error) {
	return schema.ClaimResult{}, in.Done(ctx, run)
}

func (in *oddInbox) Fail(ctx context.Context, run schema.Run, _ schema.Failure) (schema.InboxRecord, error) {
	return schema.InboxRecord{}, in.Done(ctx, run)
}

// A handler that has finished keeps its slot only for as long as waiting can help. An error of another kind is given some
// seconds, then the message goes back.
func TestDone_holds_a_slot_only_for_what_passes(t *testing.T) {
	t.Parallel()
	odd := errors.New("out of range")
	for _, err := range []error{schema.ErrReadOnly, schema.ErrRetryTransaction, context.DeadlineExceeded, odd} {
		err = fmt.Errorf("note key as done: %w", err)
		c := newTestChain(t)
		c.inbox = &oddInbox{errs: []error{err, err, err}}
		if got := c.done(&run{ctx: t.Context()}); got != nil {
			t.Errorf("%v: it was tried again and has led to %v", err, got)
		}
		c.inbox, c.firstPause = &oddInbox{errs: []error{err}}, maxPause // as if it had been tried again for a while
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errStopped)
		if got := c.done(&run{ctx: ctx}); errors.Is(got, errStopped) == errors.Is(err, odd) || schema.KindOf(got) == schema.Permanent {
			t.Errorf("%v: after a while it has led to %v (%v)", err, got, schema.KindOf(got))
		}
	}
	for _, pause := range []time.Duration{time.Millisecond, maxPause} {
		c, in := newTestChain(t), &oddInbox{errs: []error{odd, nil}}
		c.inbox, c.firstPause = in, pause
		if _, err := c.record(&run{ctx: t.Context()}, schema.Failure{}); errors.Is(err, odd) != (pause == maxPause) {
			t.Errorf("after %v: a failure that could not be noted has led to %v", pause, err)
		}
	}
	c, in := newTestChain(t), &oddInbox{errs: []error{odd, odd}}
	c.inbox, c.firstPause = in, maxPause
	failed := func(*message.Message) ([]*message.Message, error) { return nil, errHandled }
	if err := c.unguarded(nil, &run{ctx: t.Context()}, failed); !errors.Is(err, errHandled) || len(in.errs) != 1 {
		t.Errorf("a failure that no key is held for has led to %v, the inbox was asked %d times", err, 2-len(in.errs))
	}
}

func newTestChain(t *testing.T) *chain {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	return &chain{
		name: "billing", policy: handlers.Policy{}.OrDefault(), lease: time.Second, runs: newRuns(nil, time.Second, log),
		slots: make(chan struct{}, 1), pace: newPace(0, nil), log: log, firstPause: time.Millisecond,
	}
}

// A database that says that nobody can write may do so for long. One that is gone may have been brought down by the
// handler, and one whose writer is held by somebody else is given more time.
func TestCut_has_a_limit_where_the_handler_may_be_to_blame(t *testing.T) {
	t.Parallel()
	c := newTestChain(t)
	c.policy.Mode, c.policy.MaxCrashes = handlers.ModeTx, 3
	for outage, want := range map[error]int{
		schema.ErrUnreachable: 2, schema.ErrNoAnswer: 2, schema.ErrBusy: 29, schema.ErrNoSpace: 100, schema.ErrReadOnly: 100, schema.ErrIO: 100,
	} {
		r, again := &run{started: true}, 0
		for again < 100 && c.cut(r, t.Context(), schema.WithKind(schema.Temporary, fmt.Errorf("commit: %w", outage))) {
			again++
		}
		if again != want {
			t.Errorf("%v: the run is made again %d times, want %d", outage, again, want)
		}
		late := c.cut(&run{started: true, late: true}, t.Context(), outage)
		if late != (outage == schema.ErrBusy) {
			t.Errorf("%v until the handler's time was over: the run is made again: %v", outage, late)
		}
	}
}
