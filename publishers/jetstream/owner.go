package jetstream

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/millbridge/millbridge/internal/killpoint"
	"github.com/millbridge/millbridge/internal/natswords"
	"github.com/millbridge/millbridge/schema"
)

// until says when an ownership ends by itself.
type until int

const (
	untilStopped until = iota // when the process stops
	untilEmpty                // when a read finds nothing to send
	untilOnce                 // after one batch, or the first failure
)

// An owner is one ownership of a shard, from a lease to its end.
type owner struct {
	*shard
	token   string
	writer  *writer
	lookout *lookout
	enc     *encoder
	reader  Reader

	changed chan struct{} // something below changed

	mu      sync.Mutex
	m       machine
	staged  []*staged            // sent or being sent, without their cursor
	doubt   bool                 // only the cursor tells whether the last batch is stored
	unsure  *unsure              // that batch, if it had rows; a part of it may be stored
	removal *schema.RemoveParams // asked for and not answered
	limit   batchLimit
	seen    time.Time // when the stream had the cursor
}

// own takes the shard, moves rows until mode says so, and gives it back. A *standbyError means that somebody else has
// it.
func (sh *shard) own(ctx context.Context, r *running, mode until) error {
	info, err := sh.info(ctx)
	if err != nil {
		return err
	}
	if !info.Bound {
		_, err := sh.check(ctx, schema.Shard{ShardRef: sh.ref})
		return err
	}
	if err := r.preflight(ctx, sh.ref.Stream, info); err != nil {
		return err
	}
	token := sh.f.cfg.Name + "/" + rand.Text()
	asked := time.Now()
	ledger, ok, err := sh.f.store.Acquire(ctx, sh.ref, token, sh.f.cfg.Lease)
	if err != nil {
		return fmt.Errorf("acquire shard: %w", err)
	}
	if !ok {
		return &standbyError{left: ledger.LeaseLeft}
	}
	o := sh.newOwner(r, token)
	// The end of ctx stops the intake; what is under way may finish, but not for ever and not without the lease.
	work, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	defer context.AfterFunc(ctx, func() {
		time.AfterFunc(sh.f.cfg.StopTimeout, func() { cancel(context.Cause(ctx)) })
	})()
	r.leases.hold(token, asked, cancel)
	defer r.leases.drop(token)

	err = o.work(ctx, work, ledger, mode)
	if cause := context.Cause(work); err != nil && cause != nil {
		err = cause
	}
	o.settle(0, errors.Is(err, schema.ErrLeaseLost))
	if err == nil || !errors.Is(err, schema.ErrLeaseLost) {
		o.release(ctx)
	}
	return err
}

func (sh *shard) newOwner(r *running, token string) *owner {
	return &owner{
		shard: sh, token: token, writer: r.writer, lookout: r.lookout, enc: newEncoder(sh.f.cfg.Subjects, sh.ref.Stream, sh.outboxID, sh.f.cfg.EventTTL),
		reader: sh.f.store.NewReader(sh.ref, sh.shards), limit: newBatchLimit(sh.f.cfg.BatchRows), changed: make(chan struct{}, 1),
		m: machine{owner: token, faults: sh.f.cfg.faults},
	}
}

// release ends the lease early, so that another process need not wait for its end.
func (o *owner) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), o.f.cfg.AckTimeout)
	defer cancel()
	if err := o.f.store.Release(ctx, o.token); err != nil {
		o.log.WarnContext(ctx, "release lease", "error", err)
	}
}

// work takes over what the owner before left, and moves rows.
func (o *owner) work(intake, ctx context.Context, ledger schema.Shard, mode until) error {
	if err := o.takeOver(ctx, ledger); err != nil {
		return err
	}
	o.enter(ctx, ShardRunning, nil)
	well := time.Now() // when the server last answered
	for failures := 0; ; {
		before := o.progress()
		err := o.settled(ctx)
		if err == nil {
			if err = o.session(intake, ctx, mode); err == nil {
				return nil
			}
			err = o.findOut(ctx, err)
		}
		if o.progress() > before {
			failures = 0
		}
		switch {
		case err == nil:
			continue
		case errors.Is(err, schema.ErrLeaseLost), errors.Is(err, errCursorGone), errors.Is(err, schema.ErrRecovered), mode == untilOnce,
			codeOf(err) == codeNoStream: // a repair needs the shard
			return err
		}
		if failures == 0 || answeredBy(err) {
			well = time.Now()
		} else if time.Since(well) > o.f.cfg.Lease {
			return err // another process may have a better network: it gets the shard
		}
		failures++
		o.enter(ctx, ShardWaiting, err)
		if !o.pause(intake, ctx, o.f.backoff(failures, o.token)) {
			return err
		}
	}
}

// answeredBy reports whether err is something that the server said, and not its silence.
func answeredBy(err error) bool { return codeOf(err) != 0 }

// settled makes sure, after a failure, that nothing is in doubt before rows are read again: what the stream has is known
// and removed. Reads leave out rows by their numbers, and a database that comes back from a crash may give the number of
// a removed row to a new one, which then must not be left out.
func (o *owner) settled(ctx context.Context) error {
	if _, err := o.resync(ctx); err != nil {
		return err
	}
	return o.removeNamed(ctx)
}

// progress grows with what was sent and removed.
func (o *owner) progress() int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.m.cursor.Batch + o.m.removed
}

// takeOver writes a cursor of our own that names what the one before names, and removes those rows. Only then may
// anything be sent: from now on a batch of the owner before is refused whole.
func (o *owner) takeOver(ctx context.Context, ledger schema.Shard) error {
	for failures := 0; ; {
		c, err := o.check(ctx, ledger)
		if stop := (*StopError)(nil); errors.As(err, &stop) {
			return o.confirm(ctx, err)
		}
		if err != nil {
			return err
		}
		if c.Owner == o.token { // an earlier try was stored after all
			o.adopt(c)
			break
		}
		mine := takeOver(o.token, c, ledger, o.f.cfg.faults)
		if c.Seq == 0 && o.f.cfg.faults.dataOnZero {
			o.adopt(storedCursor{Cursor: mine})
			break
		}
		if mine, err = o.withPart(ctx, c, mine); err != nil {
			return err
		}
		killpoint.At(killpoint.BeforeTakeOver)
		seq, err := o.writeCursor(ctx, mine, c.Seq)
		if err == nil {
			killpoint.At(killpoint.AfterTakeOver)
			o.adopt(storedCursor{Cursor: mine, Seq: seq})
			break
		}
		if !errors.Is(err, errUnknown) && codeOf(err) != codeWrongSequence {
			return err
		}
		if failures++; failures > 5 {
			return err
		}
	}
	o.reader.Reset()
	return o.removeNamed(ctx)
}

// confirm makes sure that it was not another owner who moved the ledger on after we had read it.
func (o *owner) confirm(ctx context.Context, stop error) error {
	ledger, err := o.ledger(ctx)
	switch {
	case err != nil:
		return err
	case ledger.Owner != o.token:
		return errLost
	}
	return stop
}

// writeCursor writes a cursor alone.
func (o *owner) writeCursor(ctx context.Context, c schema.Cursor, expect uint64) (uint64, error) {
	b, err := o.writer.begin(ctx, o.stream, o.subject, o.token)
	if err != nil {
		return 0, err
	}
	seq, err := b.commit(ctx, c.Encode(), expect)
	if err != nil {
		return 0, o.explain("write cursor", err)
	}
	return seq, nil
}

// explain names subject and stream, for the person who reads it.
func (o *owner) explain(doing string, err error) error {
	return natswords.Explain(fmt.Errorf("%s %s to stream %s: %w", doing, o.subject, o.stream, err))
}

// adopt takes a cursor of ours as the stream has it.
func (o *owner) adopt(c storedCursor) {
	o.mu.Lock()
	o.m.stored(c.Cursor, c.Seq)
	o.seen = time.Now()
	o.mu.Unlock()
	o.show()
}

// show puts the machine's numbers into the status.
func (o *owner) show() {
	o.mu.Lock()
	batch, total, seq, removed, named := o.m.cursor.Batch, o.m.cursor.Total, o.m.seq, o.m.removed, len(o.m.named())
	o.mu.Unlock()
	o.update(func(s *ShardStatus) {
		s.Batch, s.Total, s.CursorSeq, s.Ledger, s.InFlight = batch, total, seq, removed, named
	})
}

// removeNamed deletes all rows that the cursor names and whose removal is not known to be durable.
func (o *owner) removeNamed(ctx context.Context) error {
	for {
		p := o.nextRemoval()
		if p == nil {
			return nil
		}
		if err := o.remove(ctx, *p); err != nil {
			return err
		}
	}
}

// nextRemoval returns what to remove. An attempt whose outcome is unknown is repeated as it was, so that what it did is
// not taken for rows that vanished.
func (o *owner) nextRemoval() *schema.RemoveParams {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.removal == nil {
		if p, ok := o.m.removal(o.ref); ok {
			o.removal = &p
		}
	}
	return o.removal
}

func (o *owner) remove(ctx context.Context, p schema.RemoveParams) error {
	// A removal that has begun is not cut by a stop: not knowing its outcome costs more than waiting for it.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), o.f.cfg.StopTimeout)
	defer cancel()
	killpoint.At(killpoint.BeforeRemoval)
	res, err := o.f.store.Remove(ctx, p)
	if err != nil {
		return fmt.Errorf("remove sent rows: %w", err)
	}
	killpoint.At(killpoint.AfterRemoval)
	o.mu.Lock()
	o.removal = nil
	o.m.removedTo(p.Batch)
	o.mu.Unlock()
	if res.Vanished > 0 {
		o.update(func(s *ShardStatus) { s.Vanished += res.Vanished })
		o.log.WarnContext(ctx, "sent rows were gone before they were removed", "rows", res.Vanished, "batch", p.Batch)
	}
	o.show()
	o.signal()
	return nil
}

func (o *owner) signal() { signal(o.changed) }
