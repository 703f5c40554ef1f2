package jetstream

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/millbridge/millbridge/schema"
)

// scanners is how many requests a scan has under way; each brings one message.
const scanners = 16

// scanStream returns which of the wanted rows of one source the stream holds, stored at or after a time. It reads
// message by message, because a work queue can be read by its own consumers only.
func scanStream(ctx context.Context, stream jetstream.Stream, subjects schema.Subjects, source string, from time.Time, wanted map[schema.UUID]bool) (map[schema.UUID]bool, error) {
	info, err := stream.Info(ctx)
	if err != nil {
		return nil, err
	}
	if info.State.Msgs == 0 {
		return nil, nil
	}
	s := &scan{stream: stream, filter: subjects.Full(">")}
	first, err := s.firstSince(ctx, info.State, from)
	if err != nil {
		return nil, err
	}
	found := make(map[schema.UUID]bool)
	var mu sync.Mutex
	group, ctx := errgroup.WithContext(ctx)
	part := (info.State.LastSeq-first)/scanners + 1
	for begin := first; begin <= info.State.LastSeq; begin += part {
		group.Go(func() error {
			return s.each(ctx, begin, min(begin+part-1, info.State.LastSeq), func(m *jetstream.RawStreamMsg) {
				if id := schema.RowID(m.Header.Get(schema.HeaderID)); m.Header.Get(schema.HeaderSource) == source && wanted[id] {
					mu.Lock()
					found[id] = true
					mu.Unlock()
				}
			})
		})
	}
	return found, group.Wait()
}

type scan struct {
	stream jetstream.Stream
	filter string
}

// next returns the first message at or after a sequence; nil if there is none.
func (s *scan) next(ctx context.Context, seq uint64) (*jetstream.RawStreamMsg, error) {
	m, err := s.stream.GetMsg(ctx, seq, jetstream.WithGetMsgSubject(s.filter))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, nil
	}
	return m, err
}

func (s *scan) each(ctx context.Context, from, to uint64, look func(*jetstream.RawStreamMsg)) error {
	for seq := from; seq <= to; seq++ {
		m, err := s.next(ctx, seq)
		if err != nil {
			return err
		}
		if m == nil || m.Sequence > to {
			return nil
		}
		look(m)
		seq = m.Sequence
	}
	return nil
}

// firstSince returns a sequence below which everything was stored before a time: times grow with sequences.
func (s *scan) firstSince(ctx context.Context, state jetstream.StreamState, from time.Time) (uint64, error) {
	low, high := state.FirstSeq, state.LastSeq+1 // the answer is in between
	for low < high {
		middle := low + (high-low)/2
		m, err := s.next(ctx, middle)
		if err != nil {
			return 0, err
		}
		if m == nil || !m.Time.Before(from) {
			high = middle
		} else {
			low = m.Sequence + 1
		}
	}
	return low, nil
}

// cursorsOf lists the last cursors in a stream under a filter, by subject.
func cursorsOf(ctx context.Context, stream jetstream.Stream, filter string) ([]string, error) {
	info, err := stream.Info(ctx, jetstream.WithSubjectFilter(filter))
	if err != nil {
		return nil, err
	}
	var subjects []string
	for s := range info.State.Subjects {
		subjects = append(subjects, s)
	}
	slices.Sort(subjects)
	return subjects, nil
}
