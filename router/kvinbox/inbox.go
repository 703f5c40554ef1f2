package kvinbox

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millbridge/millbridge/schema"
)

// An Inbox is the bucket. It is safe for concurrent use.
type Inbox struct {
	js     jetstream.JetStream
	stream jetstream.Stream
	name   string // of the bucket's stream
	prefix string // of its subjects
	keep   time.Duration

	mu   sync.Mutex
	held map[string]held // by owner: the runs of this process
}

// held is a run's record as this process wrote it last.
type held struct {
	row      schema.InboxRow
	revision uint64
}

// Claim asks for a run under a lease. If the answer is [schema.ClaimRun], no other run of the key gets that answer until
// the lease has ended.
func (in *Inbox) Claim(ctx context.Context, run schema.Run) (schema.ClaimResult, error) {
	// Most keys are new. What the time is does not matter: it counts from when it is written.
	row := schema.NewInboxRow(run).Start(run, schema.InboxRunning, time.Time{})
	revision, err := in.write(ctx, row, 0)
	if err == nil {
		in.remember(run.Owner, row, revision)
		return schema.ClaimResult{Claim: schema.ClaimRun, Record: row.InboxRecord}, nil
	}
	if !errors.Is(err, errOvertaken) {
		return schema.ClaimResult{}, fmt.Errorf("claim key: %w", err)
	}
	var res schema.ClaimResult
	e, err := in.change(ctx, run.Key, func(e entry) (schema.InboxRow, bool, error) {
		if !e.found {
			e.row = schema.NewInboxRow(run)
		}
		now, err := in.now(ctx, e.row, run.Owner)
		if err != nil {
			return e.row, false, err
		}
		if res = e.row.Answer(run, now); res.Claim != schema.ClaimRun {
			return e.row, false, nil
		}
		return e.row.Start(run, schema.InboxRunning, now), true, nil
	})
	if err != nil {
		return schema.ClaimResult{}, fmt.Errorf("claim key: %w", err)
	}
	if res.Claim == schema.ClaimRun {
		in.remember(run.Owner, e.row, e.revision)
		res.Record = e.row.InboxRecord
	}
	return res, nil
}

// Done notes that a run has handled its message; [schema.ErrLeaseLost] if another run has taken over.
func (in *Inbox) Done(ctx context.Context, run schema.Run) error {
	_, err := in.end(ctx, run, func(row schema.InboxRow) schema.InboxRow {
		row.State, row.NextTry = schema.InboxDone, time.Time{}
		return row
	})
	if err != nil {
		return fmt.Errorf("note key as done: %w", err)
	}
	return nil
}

// Fail notes a failure or a verdict, ends the run's lease and returns the record. Noting the failure of a delivery again
// changes nothing. [schema.ErrLeaseLost] if the key has been settled or is in other hands.
func (in *Inbox) Fail(ctx context.Context, run schema.Run, f schema.Failure) (schema.InboxRecord, error) {
	in.forget(run.Owner)
	e, err := in.change(ctx, run.Key, func(e entry) (schema.InboxRow, bool, error) {
		if !e.found {
			e.row = schema.NewInboxRow(run)
		}
		now, err := in.now(ctx, e.row, run.Owner)
		if err != nil {
			return e.row, false, err
		}
		next, ok := e.row.Fail(run, f, now)
		if !ok {
			return e.row, false, leaseLost()
		}
		return next, next != e.row, nil
	})
	if err != nil {
		return schema.InboxRecord{}, fmt.Errorf("note failure: %w", err)
	}
	// The server knows when it was.
	if there, err := in.read(ctx, run.Key); err == nil && there.revision == e.revision {
		e = there
	}
	return e.row.InboxRecord, nil
}

// Free ends a run's lease and notes nothing else. It does nothing if the run has none.
func (in *Inbox) Free(ctx context.Context, run schema.Run) error {
	_, err := in.end(ctx, run, func(row schema.InboxRow) schema.InboxRow { return row })
	if err != nil && !errors.Is(err, schema.ErrLeaseLost) {
		return fmt.Errorf("free key: %w", err)
	}
	return nil
}

// end writes what a run under a lease leaves behind, without the lease.
func (in *Inbox) end(ctx context.Context, run schema.Run, change func(schema.InboxRow) schema.InboxRow) (entry, error) {
	end := func(row schema.InboxRow) schema.InboxRow {
		row = change(row)
		row.LeaseOwner, row.LeaseUntil = "", time.Time{}
		return row
	}
	if h, ok := in.forget(run.Owner); ok && h.row.Key == run.Key && h.row.Replay == run.Replay {
		revision, err := in.write(ctx, end(h.row), h.revision)
		if !errors.Is(err, errOvertaken) {
			return entry{revision: revision}, err
		}
	}
	return in.change(ctx, run.Key, func(e entry) (schema.InboxRow, bool, error) {
		if !e.found || e.row.State != schema.InboxRunning || e.row.LeaseOwner != run.Owner || e.row.Replay != run.Replay {
			return e.row, false, leaseLost()
		}
		return end(e.row), true, nil
	})
}

// extenders is how many leases are renewed at the same time.
const extenders = 16

// Extend lengthens the leases of these runs of this process, counted from now, and returns the owners that still had one.
func (in *Inbox) Extend(ctx context.Context, runs []schema.Run, lease time.Duration) ([]string, error) {
	var mu sync.Mutex
	var kept []string
	var errs []error
	var wg sync.WaitGroup
	slots := make(chan struct{}, extenders)
	for _, run := range runs {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			err := in.extend(ctx, run.Owner, lease)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				kept = append(kept, run.Owner)
			case !errors.Is(err, schema.ErrLeaseLost):
				errs = append(errs, err)
			}
		})
	}
	wg.Wait()
	if len(errs) > 0 {
		return nil, fmt.Errorf("extend leases: %w", errors.Join(errs...))
	}
	return kept, nil
}

func (in *Inbox) extend(ctx context.Context, owner string, lease time.Duration) error {
	in.mu.Lock()
	h, ok := in.held[owner]
	in.mu.Unlock()
	if !ok {
		return leaseLost()
	}
	longer := func(row schema.InboxRow) schema.InboxRow {
		row.LeaseUntil = row.UpdatedAt.Add(lease) // counts from when it is written
		return row
	}
	row := longer(h.row)
	revision, err := in.write(ctx, row, h.revision)
	if errors.Is(err, errOvertaken) {
		var e entry
		e, err = in.change(ctx, h.row.Key, func(e entry) (schema.InboxRow, bool, error) {
			if !e.found || e.row.State != schema.InboxRunning || e.row.LeaseOwner != owner {
				return e.row, false, leaseLost()
			}
			return longer(e.row), true, nil
		})
		row, revision = e.row, e.revision
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if _, ok := in.held[owner]; ok && err == nil { // it may have ended meanwhile
		in.held[owner] = held{row, revision}
	} else if errors.Is(err, schema.ErrLeaseLost) {
		delete(in.held, owner)
	}
	return err
}

// Settled does nothing: what it notes is for the accounts of a database.
func (in *Inbox) Settled(context.Context, schema.Run) error { return nil }

// Unit fails: a bucket has no transactions.
func (in *Inbox) Unit(context.Context, func(schema.Unit) error) error {
	return schema.WithKind(schema.Permanent, fmt.Errorf("begin a transaction: %w", errNoUnit))
}

var errNoUnit = errors.New("the inbox is a NATS KV bucket, which has no transactions: handlers in transaction mode and reports of outcomes need a database")

// LookupInbox returns what is known about a key.
func (in *Inbox) LookupInbox(ctx context.Context, key schema.InboxKey) (rec schema.InboxRecord, found bool, err error) {
	e, err := in.read(ctx, key)
	if err != nil || !e.found {
		return schema.InboxRecord{}, false, wrap("look up key", err)
	}
	now, err := in.now(ctx, e.row, "")
	if err != nil {
		return schema.InboxRecord{}, false, wrap("look up key", err)
	}
	if !e.row.LeaseUntil.After(now) { // a lease that has ended is nobody's
		e.row.LeaseOwner = ""
	}
	return e.row.InboxRecord, true, nil
}

func (in *Inbox) remember(owner string, row schema.InboxRow, revision uint64) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.held[owner] = held{row, revision}
}

func (in *Inbox) forget(owner string) (held, bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	h, ok := in.held[owner]
	delete(in.held, owner)
	return h, ok
}

func wrap(doing string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// leaseLost says that somebody else owns what was to be written.
func leaseLost() error { return schema.WithKind(schema.NotMine, schema.ErrLeaseLost) }
