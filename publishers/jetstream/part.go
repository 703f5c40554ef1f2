package jetstream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/millbridge/millbridge/schema"
)

// unsure is a batch whose outcome is not known.
type unsure struct {
	batch string
	rows  []schema.RowName
}

const (
	// lookBack is how many messages at the end of a stream are searched for a part of a batch. While the server refuses
	// batches few others come after it.
	lookBack = 4096
	// lookBackStep is how many of them are asked for at a time.
	lookBackStep = 64
)

// closePart writes a cursor for the part of a batch that the stream holds without one, and returns the cursor that the
// stream has then. A server of a stream with one replica stores a batch message by message: when its storage or the
// account's is used up in the middle, or somebody changes the stream's limits, it stops there and answers nothing
// (processJetStreamAtomicBatchMsg of nats-server 2.15). What is stored are the first rows.
//
// Jobs that were handled meanwhile cannot be seen. They are sent again with the same key.
func (o *owner) closePart(ctx context.Context, c storedCursor) (storedCursor, error) {
	n, err := o.storedPart(ctx, c.Seq)
	if err != nil || n == 0 {
		return c, err
	}
	o.log.WarnContext(ctx, "the server has stored a part of a batch", "rows", n, "of", len(o.unsure.rows))
	cursor := o.m.next(o.unsure.rows[:n])
	seq, err := o.writeCursor(ctx, cursor, c.Seq)
	if err != nil {
		return c, err
	}
	return storedCursor{Cursor: cursor, Seq: seq}, nil
}

// storedPart returns how many rows of the unsure batch the stream holds behind sequence seq.
func (o *owner) storedPart(ctx context.Context, seq uint64) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*o.f.cfg.AckTimeout)
	defer cancel()
	stream, err := o.f.js.Stream(ctx, o.stream)
	if err != nil {
		return 0, fmt.Errorf("look for a part of a batch: %w", err)
	}
	info := stream.CachedInfo()
	if info.Config.Replicas > 1 {
		return 0, nil
	}
	for last, left := info.State.LastSeq, lookBack; last > seq && left > 0; left -= lookBackStep {
		first := max(seq+1, last-min(last, lookBackStep)+1)
		n, err := o.partBetween(ctx, stream, first, last)
		if err != nil || n > 0 {
			return n, err
		}
		last = first - 1
	}
	return 0, nil
}

// partBetween returns the highest place in the unsure batch of those of its rows that are stored from first to last.
func (o *owner) partBetween(ctx context.Context, stream jetstream.Stream, first, last uint64) (int, error) {
	places := make([]int, last-first+1)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(scanners)
	for i := range places {
		group.Go(func() error {
			m, err := stream.GetMsg(ctx, first+uint64(i))
			if errors.Is(err, jetstream.ErrMsgNotFound) {
				return nil
			}
			if err != nil {
				return fmt.Errorf("look for a part of a batch: %w", err)
			}
			if place, err := strconv.Atoi(m.Header.Get(headerBatchSequence)); err == nil && m.Header.Get(headerBatchID) == o.unsure.batch {
				places[i] = min(place, len(o.unsure.rows))
			}
			return nil
		})
	}
	err := group.Wait()
	return slices.Max(places), err
}
