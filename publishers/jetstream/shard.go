package jetstream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millbridge/millbridge/schema"
)

// recheckEvery is how often a shard that waits for another owner or for a repair looks again.
const recheckEvery = 5 * time.Second

// A shard is one shard of the outbox as this process sees it, whoever owns it.
type shard struct {
	f        *Forwarder
	ref      schema.ShardRef
	outboxID string
	shards   int    // of the stream
	stream   string // name in JetStream
	subject  string // of the cursor
	log      *slog.Logger
	nudged   chan struct{}

	mu     sync.Mutex
	status ShardStatus
}

func newShard(f *Forwarder, ref schema.ShardRef, info schema.OutboxInfo) *shard {
	s := f.cfg.Subjects
	sh := &shard{
		f: f, ref: ref, outboxID: info.ID, shards: info.Shards[ref.Stream], stream: s.StreamName(ref.Stream),
		subject: s.Cursor(ref.Stream, info.ID, ref.Generation, ref.Shard),
		log:     f.log.With("stream", string(ref.Stream), "shard", ref.Shard),
		nudged:  make(chan struct{}, 1),
	}
	sh.status = ShardStatus{ShardRef: ref, StreamName: sh.stream, Subject: sh.subject, State: ShardIdle}
	return sh
}

// pause waits for d, for a nudge or for the end of either context; it reports whether to go on.
func (sh *shard) pause(intake, ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-intake.Done():
	case <-ctx.Done():
	case <-timer.C:
	case <-sh.nudged:
	}
	return intake.Err() == nil && ctx.Err() == nil
}

func (sh *shard) update(change func(s *ShardStatus)) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	change(&sh.status)
}

// count adds to the counters.
func (sh *shard) count(t Tally) { sh.update(func(s *ShardStatus) { s.add(t) }) }

// enter notes a state and why, and logs when it is a new one.
func (sh *shard) enter(ctx context.Context, state ShardState, err error) {
	var stop *StopError
	errors.As(err, &stop)
	var before, after ShardStatus
	sh.update(func(s *ShardStatus) {
		before = *s
		s.State, s.Stop, s.Hint = state, "", ""
		switch {
		case stop != nil:
			s.Stop, s.Hint = stop.Stop, stop.Stop.Hint()
			fallthrough
		case err != nil:
			s.Error, s.ErrorAt = schema.OneLine(err.Error()), time.Now()
		case state == ShardRunning, state == ShardStandby:
			s.Error, s.ErrorAt = "", time.Time{}
		}
		after = *s
	})
	if before.State == after.State && before.Stop == after.Stop {
		return
	}
	switch {
	case stop != nil:
		sh.log.ErrorContext(ctx, "shard is stopped", "reason", string(stop.Stop), "error", err, "hint", after.Hint)
	case err != nil:
		level := slog.LevelWarn
		if forPeople(err) {
			level = slog.LevelError
		}
		sh.log.Log(ctx, level, "shard waits", "state", string(state), "error", err)
	default:
		sh.log.InfoContext(ctx, "shard changes state", "state", string(state))
	}
}

// forPeople reports whether waiting alone does not end err: the stream is missing, or is not fit.
func forPeople(err error) bool {
	return errors.Is(err, ErrStreams) || errors.Is(err, jetstream.ErrStreamNotFound) || codeOf(err) == codeNoStream
}

// works notes that what the shard was waiting for is over.
func (sh *shard) works(ctx context.Context) {
	sh.mu.Lock()
	waiting := sh.status.State == ShardWaiting
	sh.mu.Unlock()
	if waiting {
		sh.enter(ctx, ShardRunning, nil)
	}
}

// run owns the shard again and again until ctx ends, or with errReload.
func (sh *shard) run(ctx context.Context, r *running) error {
	failures := 0
	for ctx.Err() == nil {
		err := sh.own(ctx, r, untilStopped)
		var standby *standbyError
		var stop *StopError
		switch {
		case errors.Is(err, errReload):
			return err
		case err == nil:
			failures = 0
		case errors.As(err, &standby):
			failures = 0
			sh.enter(ctx, ShardStandby, nil)
			sh.pause(ctx, ctx, standby.wait(r.f.cfg.Lease))
		case errors.As(err, &stop):
			failures = 0
			sh.enter(ctx, ShardStopped, err)
			sh.untilFits(ctx)
		default:
			failures++
			if schema.KindOf(err) == schema.NotMine {
				sh.enter(ctx, ShardStandby, nil)
			} else if ctx.Err() == nil {
				sh.enter(ctx, ShardWaiting, err)
			}
			sh.pause(ctx, ctx, sh.f.backoff(failures, sh.subject))
		}
	}
	sh.enter(ctx, ShardIdle, nil)
	return nil
}

// backoff spaces tries after failures in a row.
func (f *Forwarder) backoff(failures int, seed string) time.Duration {
	p := schema.RetryPolicy{MaxAttempts: 1, Base: min(50*time.Millisecond, f.cfg.RetryMax), Factor: 2, Max: f.cfg.RetryMax, Jitter: 0.3}
	return p.Delay(failures, fmt.Sprint(seed, f.cfg.Name))
}

// standbyError reports that another process owns the shard.
type standbyError struct{ left time.Duration } // of its lease

func (e *standbyError) Error() string {
	return fmt.Sprintf("another process owns the shard; its lease ends in %v unless it is renewed", e.left.Round(time.Millisecond))
}

// wait is how long to wait before the next try: the lease may end, or its owner may release it before.
func (e *standbyError) wait(ttl time.Duration) time.Duration {
	return min(max(e.left, 200*time.Millisecond), ttl/3, recheckEvery)
}

// untilFits returns when database and stream of a stopped shard fit each other again, or ctx ends. It takes no lease,
// so that a repair can.
func (sh *shard) untilFits(ctx context.Context) {
	for sh.pause(ctx, ctx, recheckEvery) {
		ledger, err := sh.ledger(ctx)
		if err == nil {
			_, err = sh.check(ctx, ledger)
		}
		var stop *StopError
		if errors.As(err, &stop) {
			if now, again := sh.ledger(ctx); again == nil && now.Batch != ledger.Batch {
				return // somebody works on it
			}
			sh.enter(ctx, ShardStopped, err)
		}
		if err == nil || errors.Is(err, errReload) {
			return
		}
	}
}

// ledger reads the shard's row.
func (sh *shard) ledger(ctx context.Context) (schema.Shard, error) {
	all, err := sh.f.store.Shards(ctx, sh.ref.Stream)
	if err != nil {
		return schema.Shard{}, fmt.Errorf("read ledger: %w", err)
	}
	for _, s := range all {
		if s.ShardRef == sh.ref {
			return s, nil
		}
	}
	return schema.Shard{}, fmt.Errorf("read ledger of shard %s/%d: %w", sh.ref.Stream, sh.ref.Shard, schema.ErrNotFound)
}

// errReload reports that the outbox has another id, generation or number of shards than when the shards were loaded.
var errReload = errors.New("the outbox has changed")

// info reads what the database says about the outbox, which must be what the shard was made for.
func (sh *shard) info(ctx context.Context) (schema.OutboxInfo, error) {
	info, err := sh.f.store.Info(ctx)
	if err != nil {
		return info, fmt.Errorf("read outbox: %w", err)
	}
	if info.ID != sh.outboxID || info.Generation[sh.ref.Stream] != sh.ref.Generation || info.Shards[sh.ref.Stream] != sh.shards {
		return info, errReload
	}
	return info, nil
}

// check reads the cursor and compares it with the ledger. The error is a *StopError if they do not fit each other.
func (sh *shard) check(ctx context.Context, ledger schema.Shard) (storedCursor, error) {
	info, err := sh.info(ctx)
	if err != nil {
		return storedCursor{}, err
	}
	c, err := readCursor(ctx, sh.f.nc, sh.stream, sh.subject, sh.f.cfg.AckTimeout)
	if err != nil {
		return storedCursor{}, err
	}
	known := true
	if c.Seq != 0 && c.Owner != ledger.Owner && c.Owner != ledger.LedgerOwner {
		if known, err = sh.f.store.KnownOwner(ctx, sh.ref, c.Owner); err != nil {
			return storedCursor{}, fmt.Errorf("look up the cursor's owner: %w", err)
		}
	}
	stop, detail := stopFor(info.Bound, ledger, c, known)
	sh.update(func(s *ShardStatus) {
		s.Ledger, s.Batch, s.Total, s.CursorSeq = ledger.Batch, c.Batch, c.Cursor.Total, c.Seq
	})
	if stop != "" {
		return c, schema.WithKind(schema.Permanent, &StopError{Shard: sh.ref, Stop: stop, Detail: detail})
	}
	return c, nil
}
