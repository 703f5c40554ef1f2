package ops

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/millbridge/millbridge/schema"
)

// readers is how many requests a look has under way; each brings one message.
const readers = 16

// stored is a message as it stands in a stream.
type stored struct {
	Subject string
	Seq     uint64
	Header  nats.Header
	Data    []byte
	Time    time.Time
}

// get asks the stream's leader for a message; nil if there is none. Other replicas, which answer direct gets, may be
// behind.
func (s *Service) get(ctx context.Context, stream string, what any) (*stored, error) {
	request, err := json.Marshal(what)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	reply, err := s.js.Conn().RequestWithContext(ctx, "$JS.API.STREAM.MSG.GET."+stream, request)
	if err != nil {
		return nil, fmt.Errorf("read stream %s: %w", stream, err)
	}
	var body struct {
		Error   *natsjs.APIError `json:"error"`
		Message struct {
			Subject string    `json:"subject"`
			Seq     uint64    `json:"seq"`
			Header  []byte    `json:"hdrs"`
			Data    []byte    `json:"data"`
			Time    time.Time `json:"time"`
		} `json:"message"`
	}
	if err := json.Unmarshal(reply.Data, &body); err != nil {
		return nil, fmt.Errorf("read stream %s: %w", stream, err)
	}
	if body.Error != nil {
		if body.Error.ErrorCode == natsjs.JSErrCodeMessageNotFound {
			return nil, nil
		}
		return nil, fmt.Errorf("read stream %s: %w", stream, body.Error)
	}
	m := &stored{Subject: body.Message.Subject, Seq: body.Message.Seq, Data: body.Message.Data, Time: body.Message.Time, Header: nats.Header{}}
	if len(body.Message.Header) > 0 {
		if m.Header, err = nats.DecodeHeadersMsg(body.Message.Header); err != nil {
			return nil, fmt.Errorf("read stream %s at %d: %w", stream, m.Seq, err)
		}
	}
	return m, nil
}

type lastOf struct {
	Subject string `json:"last_by_subj"`
}

type nextOf struct {
	Seq     uint64 `json:"seq"`
	Subject string `json:"next_by_subj"`
}

// sweep calls f for every message of a stream between two sequences, several at the same time; part says which of the
// sweep's parts, each in order, a message belongs to. It reads a work queue without consuming it.
func (s *Service) sweep(ctx context.Context, stream string, from, to uint64, each func(done int64), f func(part int, m *stored) error) error {
	if from > to {
		return nil
	}
	var done atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	size := (to-from)/readers + 1
	for part := 0; from+uint64(part)*size <= to; part++ {
		begin := from + uint64(part)*size
		end := min(begin+size-1, to)
		group.Go(func() error {
			for seq := begin; seq <= end; seq++ {
				m, err := s.get(ctx, stream, nextOf{seq, s.cfg.Subjects.Full(">")})
				if err != nil || m == nil || m.Seq > end {
					return err
				}
				if err := f(part, m); err != nil {
					return err
				}
				if each != nil {
					each(done.Add(1))
				}
				seq = m.Seq
			}
			return nil
		})
	}
	return group.Wait()
}

// placedCursor is a cursor and its place in the stream.
type placedCursor struct {
	schema.Cursor
	subject string
	seq     uint64
}

// A cut is a moment of a stream: all that the outbox had sent by then has a sequence of at most seq, and is counted by
// sent.
type cut struct {
	seq     uint64
	sent    int64
	cursors []placedCursor
}

var errNoCut = errors.New("the stream did not stand still for the time it takes to read its cursors; try again")

// cutOf finds a moment at which the cursors of all shards, of all generations, had these values: none has changed
// between a first and a second reading of all of them.
func (s *Service) cutOf(ctx context.Context, stream natsjs.Stream, role schema.Stream, outbox string) (cut, error) {
	name := s.cfg.Subjects.StreamName(role)
	info, err := stream.Info(ctx, natsjs.WithSubjectFilter(s.cfg.Subjects.Full(fmt.Sprintf("cursor.%s.%s.>", role, outbox))))
	if err != nil {
		return cut{}, fmt.Errorf("list cursors of %s: %w", name, err)
	}
	c := cut{}
	for subject := range info.State.Subjects {
		c.cursors = append(c.cursors, placedCursor{subject: subject})
	}
	slices.SortFunc(c.cursors, func(a, b placedCursor) int { return slices.Compare([]byte(a.subject), []byte(b.subject)) })
	const tries = 200
	first, err := s.readCursors(ctx, name, c.cursors)
	if err != nil {
		return cut{}, err
	}
	for range tries {
		second, err := s.readCursors(ctx, name, c.cursors)
		if err != nil {
			return cut{}, err
		}
		if !slices.EqualFunc(first, second, func(a, b placedCursor) bool { return a.seq == b.seq }) {
			first = second
			continue
		}
		c.cursors = first
		for _, p := range first {
			c.seq = max(c.seq, p.seq)
			c.sent += p.Total
		}
		return c, nil
	}
	return cut{}, fmt.Errorf("stream %s: %w", name, errNoCut)
}

func (s *Service) readCursors(ctx context.Context, stream string, of []placedCursor) ([]placedCursor, error) {
	list := make([]placedCursor, len(of))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(readers)
	for i, p := range of {
		group.Go(func() error {
			m, err := s.get(ctx, stream, lastOf{p.subject})
			if err != nil {
				return err
			}
			if m == nil {
				return fmt.Errorf("cursor %s has vanished while it was read", p.subject)
			}
			list[i] = placedCursor{subject: p.subject, seq: m.Seq}
			list[i].Cursor, err = schema.DecodeCursor(m.Data)
			return err
		})
	}
	return list, group.Wait()
}

// totalAt returns what the cursor says was sent up to a batch; false if it does not say.
func (p placedCursor) totalAt(batch int64) (int64, bool) {
	if batch == p.Batch {
		return p.Total, true
	}
	if batch == p.Removed && len(p.Batches) > 0 {
		return p.Batches[0].Total - int64(len(p.Batches[0].Rows)), true
	}
	for _, b := range p.Batches {
		if b.Batch == batch {
			return b.Total, true
		}
	}
	return 0, false
}

// ledgers compares each shard's ledger, at its batch, with the cursor, which lists that batch unless the ledger has
// moved on or the two do not fit: these are read again until the ledger says the same after such a cursor as before it.
func (s *Service) ledgers(ctx context.Context, role schema.Stream, info schema.OutboxInfo) ([]Finding, error) {
	var found []Finding
	name := s.cfg.Subjects.StreamName(role)
	was := make(map[int]int64) // batches that the cursor has forgotten, by shard
	const rereads = 100
	for range rereads {
		shards, err := s.store.Shards(ctx, role)
		if err != nil {
			return nil, err
		}
		found = nil
		moved := false // the ledger was read before the cursor moved on
		for _, sh := range shards {
			m, err := s.get(ctx, name, lastOf{s.cfg.Subjects.Cursor(role, info.ID, sh.Generation, sh.Shard)})
			if err != nil {
				return nil, err
			}
			if m == nil && sh.Batch == 0 {
				continue
			}
			finding := Finding{Kind: FindTotal, Stream: role, Count: sh.Total, scope: fmt.Sprintf("shard %d", sh.Shard)}
			if m == nil {
				finding.Detail = fmt.Sprintf("shard %d has no cursor in %s, the ledger says that %d were sent; see `millbridge status`", sh.Shard, name, sh.Total)
				found = append(found, finding)
				continue
			}
			c, err := schema.DecodeCursor(m.Data)
			if err != nil {
				return nil, fmt.Errorf("shard %d of %s: %w", sh.Shard, role, err)
			}
			total, ok := placedCursor{Cursor: c}.totalAt(sh.Batch)
			if ok && total == sh.Total {
				continue
			}
			if before, seen := was[sh.Shard]; !ok && sh.Batch < c.Removed && (!seen || before != sh.Batch) {
				was[sh.Shard], moved = sh.Batch, true
				continue
			}
			finding.Count = sh.Total - total
			if !ok {
				finding.Count = sh.Total - c.Total
			}
			finding.Detail = fmt.Sprintf("shard %d: at batch %d the ledger says %d sent, the cursor says %d at batch %d; see `millbridge status`",
				sh.Shard, sh.Batch, sh.Total, c.Total, c.Batch)
			found = append(found, finding)
		}
		if !moved {
			return found, nil
		}
	}
	return nil, fmt.Errorf("stream %s: %w", name, errNoCut)
}
