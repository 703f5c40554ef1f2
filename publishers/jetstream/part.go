package jetstream

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/millbridge/millbridge/schema"
)

// A server of a stream with one replica stores a batch message by message. When its storage or the account's is used up in
// the middle, or somebody changes the stream's limits, it stops there and answers nothing (processJetStreamAtomicBatchMsg
// of nats-server 2.15). What is stored then are the first rows, without a cursor.
//
// Jobs that were handled meanwhile cannot be seen. They are sent again with the same key.

// unsure is a batch whose outcome is not known.
type unsure struct {
	batch string
	rows  []schema.RowName
}

const (
	// lookBack is how many messages at the end of a stream are searched for a part of a batch that may be there. While the
	// server refuses batches few others come after it.
	lookBack = 4096
	// lookBackTakeOver is the same for who takes a shard over, which is seldom from one that left a part.
	lookBackTakeOver = 256
)

// closePart writes a cursor for the part of the unsure batch that the stream holds without one, and returns the cursor
// that the stream has then.
func (o *owner) closePart(ctx context.Context, c storedCursor) (storedCursor, error) {
	last, err := o.lastPart(ctx, c.Seq)
	if err != nil || last == nil {
		return c, err
	}
	n := min(last.place, len(o.unsure.rows))
	o.log.WarnContext(ctx, "the server has stored a part of a batch", "rows", n, "of", len(o.unsure.rows))
	cursor := o.m.next(o.unsure.rows[:n])
	seq, err := o.writeCursor(ctx, cursor, c.Seq)
	if err != nil {
		return c, err
	}
	return storedCursor{Cursor: cursor, Seq: seq}, nil
}

// lastPart returns the last message of the unsure batch that the stream holds behind a sequence, nil if there is none.
func (o *owner) lastPart(ctx context.Context, behind uint64) (*partMessage, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*o.f.cfg.AckTimeout)
	defer cancel()
	s, err := o.searchPart(ctx, func(batch string) bool { return batch == o.unsure.batch })
	if err != nil || s == nil {
		return nil, err
	}
	return s.last(ctx, behind, lookBack)
}

// withPart returns mine, the cursor to take over with from c, with the rows of the part of a batch in it that the owner
// before left in the stream behind c. What cannot be searched in time is taken for none: its rows are sent again.
func (o *owner) withPart(ctx context.Context, c storedCursor, mine schema.Cursor) (schema.Cursor, error) {
	if c.Seq == 0 {
		return mine, nil // nobody sends before the first cursor
	}
	sent, err := o.leftPart(ctx, c)
	switch {
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
		o.log.WarnContext(ctx, "the end of the stream could not be searched for a part of a batch in time", "owner", c.Owner)
		return mine, nil
	case err != nil || len(sent) == 0:
		return mine, err
	}
	rows, err := o.waiting(ctx, sent, mine)
	if err != nil {
		return mine, err
	}
	o.log.WarnContext(ctx, "the server has stored a part of a batch of the owner before", "owner", c.Owner, "rows", len(rows))
	m := machine{owner: o.token, cursor: mine, removed: mine.Removed, faults: o.m.faults}
	return m.next(rows), nil
}

// leftPart returns what the stream holds of the last batch of c's owner behind c: how many messages of each row.
func (o *owner) leftPart(ctx context.Context, c storedCursor) (map[sentRow]int, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*o.f.cfg.AckTimeout)
	defer cancel()
	mark := batchMark(c.Owner)
	s, err := o.searchPart(ctx, func(batch string) bool { return strings.HasPrefix(batch, mark) })
	if err != nil || s == nil {
		return nil, err
	}
	last, err := s.last(ctx, c.Seq, lookBackTakeOver)
	if err != nil || last == nil {
		return nil, err
	}
	sent := make(map[sentRow]int)
	from := max(c.Seq+1, last.seq-min(last.seq, uint64(last.place))+1)
	for ; from <= last.seq; from += searchStep {
		parts, err := s.between(ctx, from, min(from+searchStep-1, last.seq))
		if err != nil {
			return nil, err
		}
		for _, p := range parts {
			if p != nil {
				sent[p.row]++
			}
		}
	}
	return sent, nil
}

// waiting returns the names of the first rows of the outbox that are among the sent ones and that mine does not name.
func (o *owner) waiting(ctx context.Context, sent map[sentRow]int, mine schema.Cursor) (names []schema.RowName, err error) {
	p := schema.ReadParams{MaxRows: lookBack / 4, MaxBytes: schema.MaxBatchBytes, Removed: mine.Removed}
	for _, b := range mine.Batches {
		for _, name := range b.Rows {
			p.Exclude = append(p.Exclude, name.Seq)
		}
	}
	o.reader.Reset()
	for read := 0; len(sent) > 0 && read < lookBack; {
		rows, err := o.reader.Read(ctx, p)
		if err != nil {
			return nil, fmt.Errorf("read outbox: %w", err)
		}
		if len(rows) == 0 {
			break
		}
		read += len(rows)
		for _, row := range rows {
			p.Exclude = append(p.Exclude, row.Seq)
			r := sentRow{id: row.ID, subject: o.f.cfg.Subjects.Full(row.Subject)}
			if sent[r] == 0 {
				continue
			}
			names = append(names, row.Name())
			if sent[r]--; sent[r] == 0 {
				delete(sent, r)
			}
		}
	}
	return names, nil
}
