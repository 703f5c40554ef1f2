package jetstream

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/millbridge/millbridge/schema"
)

// searchStep is how many messages a search for a part of a batch asks for at a time.
const searchStep = 64

// A sentRow is what a message tells of its row.
type sentRow struct {
	id      schema.UUID
	subject string
}

// partSearch looks for messages of batches at the end of a stream.
type partSearch struct {
	stream jetstream.Stream
	end    uint64
	source string
	ours   func(batch string) bool // whether a batch is looked for, by its id
}

// searchPart returns nil if the stream cannot have a part of a batch.
func (o *owner) searchPart(ctx context.Context, ours func(batch string) bool) (*partSearch, error) {
	stream, err := o.f.js.Stream(ctx, o.stream)
	if err != nil {
		return nil, fmt.Errorf("look for a part of a batch: %w", err)
	}
	info := stream.CachedInfo()
	if info.Config.Replicas > 1 {
		return nil, nil
	}
	return &partSearch{stream: stream, end: info.State.LastSeq, source: schema.SourceOf(o.outboxID), ours: ours}, nil
}

// A partMessage is a message of a batch.
type partMessage struct {
	seq   uint64
	place int // in its batch, from 1
	row   sentRow
}

// last returns the last message of the batches among the last n behind a sequence, nil if there is none.
func (s *partSearch) last(ctx context.Context, behind uint64, n int) (*partMessage, error) {
	for last := s.end; last > behind && n > 0; n -= searchStep {
		first := max(behind+1, last-min(last, searchStep)+1)
		parts, err := s.between(ctx, first, last)
		if err != nil {
			return nil, err
		}
		for i := len(parts) - 1; i >= 0; i-- {
			if parts[i] != nil {
				return parts[i], nil
			}
		}
		last = first - 1
	}
	return nil, nil
}

// between returns the messages of the batches from first to last, nil for any other message.
func (s *partSearch) between(ctx context.Context, first, last uint64) ([]*partMessage, error) {
	parts := make([]*partMessage, last-first+1)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(scanners)
	for i := range parts {
		group.Go(func() error {
			m, err := s.stream.GetMsg(ctx, first+uint64(i))
			if errors.Is(err, jetstream.ErrMsgNotFound) {
				return nil
			}
			if err != nil {
				return fmt.Errorf("look for a part of a batch: %w", err)
			}
			place, err := strconv.Atoi(m.Header.Get(headerBatchSequence))
			if err == nil && place > 0 && s.ours(m.Header.Get(headerBatchID)) && m.Header.Get(schema.HeaderSource) == s.source {
				parts[i] = &partMessage{seq: m.Sequence, place: place, row: sentRow{schema.RowID(m.Header.Get(schema.HeaderID)), m.Subject}}
			}
			return nil
		})
	}
	return parts, group.Wait()
}
