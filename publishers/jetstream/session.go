package jetstream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millbridge/millbridge/internal/killpoint"
	"github.com/millbridge/millbridge/schema"
)

// maxStaged is how many batches are written ahead, the one that commits included.
const maxStaged = 3

// A staged batch is sent but for its cursor, or is a single row that cannot be sent.
type staged struct {
	batch *batch
	rows  []schema.RowName
	fault error // why the only row cannot be sent
}

// A commitError reports that a batch was not confirmed.
type commitError struct {
	rows []schema.RowName
	err  error
}

func (e *commitError) Error() string { return e.err.Error() }
func (e *commitError) Unwrap() error { return e.err }

// session moves rows in three overlapping stages: read and stage, commit, remove. It ends when the intake is over and
// all that was sent is removed, or with the first error. After an error no batch is open; the rows in o.staged were
// not confirmed, and whether the first of them are stored, only the cursor tells.
func (o *owner) session(intake, ctx context.Context, mode until) error {
	group, ctx := errgroup.WithContext(ctx)
	batches := make(chan *staged, maxStaged)
	confirmed := make(chan struct{}, 1)
	group.Go(func() error {
		defer close(batches)
		return o.feed(intake, ctx, mode, batches)
	})
	group.Go(func() error {
		defer close(confirmed)
		for s := range batches {
			if err := o.commit(ctx, s); err != nil {
				return err
			}
			select {
			case confirmed <- struct{}{}:
			default:
			}
		}
		return nil
	})
	group.Go(func() error { return o.removeAll(ctx, confirmed) })
	err := group.Wait()
	for _, s := range o.staged {
		if s.batch != nil {
			s.batch.abandon()
		}
	}
	return err
}

// feed reads rows and stages them.
func (o *owner) feed(intake, ctx context.Context, mode until, batches chan<- *staged) error {
	full, goOn := true, false
	heard := int64(0) // nudges
	for {
		want, err := o.awaitRoom(intake, ctx, full)
		if want == 0 {
			return err
		}
		p := schema.ReadParams{Exclude: o.inFlight(), GoOn: goOn}
		before := int64(0) // nudges
		if !full && mode == untilStopped {
			var open bool
			if p.Seen, before, open = o.lookout.await(intake, ctx, o.reader.Look(p), heard, max(rereadEvery, o.f.cfg.PollMax)); !open {
				return nil
			}
		}
		killpoint.At(killpoint.BeforeRead)
		began := time.Now()
		if heard = before; p.Seen == nil {
			heard = o.f.nudges.Load()
		}
		p.Exclude, p.MaxRows, p.MaxBytes, p.Removed = o.inFlight(), want, o.batchBytes(), o.removedBatch()
		rows, err := o.reader.Read(ctx, p)
		switch {
		case err != nil:
			return fmt.Errorf("read outbox: %w", err)
		case len(rows) > 0:
			killpoint.At(killpoint.AfterRead)
			all, err := o.stage(ctx, rows, batches)
			if err != nil || mode == untilOnce {
				return err
			}
			goOn = all
		case mode != untilStopped:
			return nil
		default:
			if err := o.look(ctx); err != nil {
				return err
			}
			o.works(ctx)
		}
		full = len(rows) == want || size(rows) > schema.MaxBatchBytes/2
		if !full && mode == untilStopped {
			o.gather(intake, ctx, began, len(rows))
		}
	}
}

const (
	gatherRow = 2 * time.Millisecond
	gatherMax = 10 * time.Millisecond
)

// gather lets a shard that has read n rows wait before its next look, the longer the more they were. What a batch costs
// depends little on its size: without this, a few hundred messages a second would be as many batches, which take the
// processors from those who write and handle the messages. A row that comes alone is not kept waiting; one right behind it
// is, for a moment.
func (o *owner) gather(intake, ctx context.Context, began time.Time, n int) {
	select {
	case <-time.After(min(gatherMax, time.Duration(n)*gatherRow) - time.Since(began)):
	case <-intake.Done():
	case <-ctx.Done():
	}
}

// look makes sure, now and then, that an idle shard still has its cursor: a stream that was deleted or purged, or another
// owner, would show only with the next row, and a repair would find the shard in use.
func (o *owner) look(ctx context.Context) error {
	o.mu.Lock()
	quiet, seq := len(o.staged) == 0 && !o.doubt && time.Since(o.seen) > recheckEvery, o.m.seq
	o.mu.Unlock()
	if !quiet {
		return nil
	}
	c, err := readCursor(ctx, o.f.nc, o.stream, o.subject, o.f.cfg.AckTimeout)
	if err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.seen = time.Now()
	switch {
	case seq != o.m.seq: // it was written meanwhile
		return nil
	case c.Seq < seq:
		return fmt.Errorf("%w: %s in stream %s", errCursorGone, o.subject, o.stream)
	case c.Owner != o.token:
		return errLost
	}
	return nil
}

func size(rows []schema.Row) (bytes int) {
	for _, r := range rows {
		bytes += len(r.Header) + len(r.Payload)
	}
	return bytes
}

// awaitRoom waits until a batch may be staged and returns of how many rows; 0 means to end. Unless the outbox fills
// whole batches nothing is staged ahead, so that the rows that come in meanwhile make one larger batch.
func (o *owner) awaitRoom(intake, ctx context.Context, ahead bool) (int, error) {
	for {
		switch {
		case ctx.Err() != nil:
			return 0, context.Cause(ctx)
		case intake.Err() != nil:
			return 0, nil
		}
		if n := o.room(ahead); n > 0 {
			return n, nil
		}
		select {
		case <-o.changed:
		case <-intake.Done():
		case <-ctx.Done():
		}
	}
}

// room returns how many rows may be staged now.
func (o *owner) room(ahead bool) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.staged) >= maxStaged || len(o.staged) > 0 && (!ahead || o.limit.slow()) {
		return 0
	}
	rows := 0
	for _, s := range o.staged {
		if s.fault != nil {
			return 0
		}
		rows += len(s.rows)
	}
	return min(o.m.room(len(o.staged), rows, o.writer.maxNames()), o.limit.next)
}

// batchBytes is how much data the next batch may hold.
func (o *owner) batchBytes() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.limit.bytes
}

// inFlight lists the sequences that are sent, or that the cursor names.
func (o *owner) inFlight() []int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	var seqs []int64
	for _, name := range o.m.named() {
		seqs = append(seqs, name.Seq)
	}
	for _, s := range o.staged {
		for _, name := range s.rows {
			seqs = append(seqs, name.Seq)
		}
	}
	return seqs
}

// removedBatch is the last batch whose removal is known to be durable.
func (o *owner) removedBatch() int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.m.removed
}

// stage sends rows as a batch that lacks its cursor, and reports whether it is all of them. It stops before a row that
// cannot be sent; that row is staged alone when it is the first.
func (o *owner) stage(ctx context.Context, rows []schema.Row, batches chan<- *staged) (all bool, err error) {
	b, err := o.writer.begin(ctx, o.stream, o.subject, o.token)
	if err != nil {
		return false, err
	}
	s := &staged{batch: b, rows: make([]schema.RowName, 0, len(rows))}
	for _, row := range rows {
		killpoint.At(killpoint.BeforeAdd)
		m, err := o.enc.message(row)
		if err == nil {
			err = b.add(m)
		}
		if err == nil {
			s.rows = append(s.rows, row.Name())
			continue
		}
		var bad *rowError
		if !errors.As(err, &bad) {
			b.abandon()
			return false, o.explain("send rows before cursor", err)
		}
		if len(s.rows) == 0 {
			b.abandon()
			s = &staged{fault: bad, rows: []schema.RowName{row.Name()}}
		}
		break
	}
	killpoint.At(killpoint.AfterAdd)
	o.mu.Lock()
	o.staged = append(o.staged, s)
	o.mu.Unlock()
	o.count(Tally{Claimed: len(s.rows)})
	batches <- s // has room: no more than maxStaged are staged
	return len(s.rows) == len(rows), nil
}

// commit writes the cursor of a staged batch.
func (o *owner) commit(ctx context.Context, s *staged) error {
	if s.fault != nil {
		if err := o.park(ctx, s.rows[0], s.fault); err != nil {
			return err
		}
		o.unstage(s)
		return nil
	}
	o.mu.Lock()
	c, expect := o.m.next(s.rows), o.m.seq
	o.doubt = true
	o.mu.Unlock()
	killpoint.At(killpoint.BeforeBatchCommit)
	began := time.Now()
	seq, err := s.batch.commit(ctx, c.Encode(), expect)
	if err != nil {
		if errors.Is(err, errUnknown) {
			o.mu.Lock()
			o.unsure = &unsure{batch: s.batch.id, rows: s.rows}
			o.mu.Unlock()
		}
		return &commitError{rows: s.rows, err: o.explain("write cursor", err)}
	}
	killpoint.At(killpoint.AfterBatchCommit)
	o.mu.Lock()
	o.doubt = false
	o.m.stored(c, seq)
	o.seen = time.Now()
	o.limit.sent(len(s.rows))
	o.limit.answered(time.Since(began), o.f.cfg.AckTimeout)
	o.mu.Unlock()
	o.unstage(s)
	o.count(Tally{Sent: len(s.rows)})
	o.works(ctx)
	return nil
}

func (o *owner) unstage(s *staged) {
	o.mu.Lock()
	if i := slices.Index(o.staged, s); i >= 0 {
		o.staged = slices.Delete(o.staged, i, i+1)
	}
	o.mu.Unlock()
	o.show()
	o.signal()
}

// removeAll removes what the cursor names, until no more is confirmed.
func (o *owner) removeAll(ctx context.Context, confirmed <-chan struct{}) error {
	for open := true; open; {
		if err := o.removeNamed(ctx); err != nil {
			return err
		}
		select {
		case _, open = <-confirmed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return o.removeNamed(ctx)
}
