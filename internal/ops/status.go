package ops

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/millbridge/millbridge/publishers/jetstream"
	"github.com/millbridge/millbridge/schema"
)

// Status is what there is and how it is doing.
type Status struct {
	OK      bool     `json:"ok"`
	Reasons []string `json:"reasons"` // why it is not ok
	Notes   []string `json:"notes"`   // what a person should know or look at

	Database  Database   `json:"database"`
	NATS      NATS       `json:"nats"`
	Backlogs  []Backlog  `json:"backlogs"`
	Shards    []Shard    `json:"shards"`
	Stops     []Stop     `json:"stops"`
	Streams   []Stream   `json:"streams"`
	Consumers []Consumer `json:"consumers"`
	Circuits  []Circuit  `json:"circuits"`
	// Unserved are the targets that have messages but no consumer.
	Unserved []Unserved `json:"unserved"`
	Dead     Dead       `json:"dead"`
	// Stocks are the stock Watermill outboxes that are emptied into ours.
	Stocks []Stock `json:"stocks"`
}

// Database is the database's part of a [Status].
type Database struct {
	Reachable     bool   `json:"reachable"`
	SchemaVersion int    `json:"schema_version"`
	SchemaWanted  int    `json:"schema_wanted"`
	Outbox        string `json:"outbox"`
	Bound         bool   `json:"bound"` // false after a copy or a restore elsewhere
	MaxPayload    int    `json:"max_payload"`

	weak []string
}

// NATS is the broker's part of a [Status].
type NATS struct {
	Reachable bool   `json:"reachable"`
	Server    string `json:"server"`
	Version   string `json:"version"`
}

// Backlog counts rows that are not in their stream yet.
type Backlog struct {
	Where         string        `json:"where"` // outbox, scheduled or parked
	Stream        schema.Stream `json:"stream"`
	Group         string        `json:"group"` // target or event name
	Rows          int64         `json:"rows"`
	OldestSeconds float64       `json:"oldest_seconds"`
}

// Shard is one line of the ledger.
type Shard struct {
	Stream       schema.Stream `json:"stream"`
	Shard        int           `json:"shard"`
	Generation   int           `json:"generation"`
	Owner        string        `json:"owner"`
	LeaseSeconds float64       `json:"lease_seconds"` // 0 or less: nobody holds it
	Batch        int64         `json:"batch"`
	Sent         int64         `json:"sent"`
	CursorSeq    uint64        `json:"cursor_seq"`
}

// Circuit is the breaker of a handler that has failed since it last succeeded, or that is disabled.
type Circuit struct {
	Handler     string    `json:"handler"`
	Open        bool      `json:"open"`     // its messages wait
	Disabled    bool      `json:"disabled"` // until it is enabled
	Failures    int       `json:"failures"`
	Since       time.Time `json:"since,omitzero"`
	NextSeconds float64   `json:"next_seconds"` // open, not disabled: until one message is tried; 0 or less: it is due
	Reason      string    `json:"reason"`

	why string // open: in words
}

// Stop is a shard that does not go on until a person has decided.
type Stop struct {
	Stream schema.Stream  `json:"stream"`
	Shard  int            `json:"shard"`
	Stop   jetstream.Stop `json:"stop"`
	Detail string         `json:"detail"`
	Hint   string         `json:"hint"`
}

// Status asks everything at once. What cannot be answered in time is a reason to be not ok.
func (s *Service) Status(ctx context.Context) Status {
	var st Status
	var mu sync.Mutex
	var wg sync.WaitGroup
	part := func(what string, ask func(ctx context.Context) error) {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, s.cfg.PartTimeout)
			defer cancel()
			if err := ask(ctx); err != nil {
				if ctx.Err() != nil {
					err = fmt.Errorf("no answer within %v", s.cfg.PartTimeout)
				}
				mu.Lock()
				defer mu.Unlock()
				st.Reasons = append(st.Reasons, what+" unknown: "+schema.OneLine(err.Error()))
			}
		})
	}
	part("database", func(ctx context.Context) error { return s.database(ctx, &st.Database) })
	part("backlogs", func(ctx context.Context) (err error) { st.Backlogs, err = s.backlogs(ctx); return err })
	part("circuits", func(ctx context.Context) (err error) { st.Circuits, err = s.circuits(ctx); return err })
	part("shards", func(ctx context.Context) (err error) { st.Shards, err = s.shards(ctx); return err })
	s.stocks(part, func(found Stock) {
		mu.Lock()
		defer mu.Unlock()
		st.Stocks = append(st.Stocks, found)
	})
	down := s.natsUp()
	if down == nil {
		st.NATS = NATS{Reachable: true, Server: s.js.Conn().ConnectedServerName(), Version: s.js.Conn().ConnectedServerVersion()}
		part("streams", func(ctx context.Context) (err error) { st.Streams, err = s.streams(ctx); return err })
		part("consumers", func(ctx context.Context) (err error) { st.Consumers, err = s.consumers(ctx); return err })
		part("stopped shards", func(ctx context.Context) (err error) { st.Stops, err = s.stops(ctx); return err })
		part("dead letters", func(ctx context.Context) (err error) { st.Dead, err = s.countDead(ctx); return err })
	}
	wg.Wait()
	if down != nil {
		st.Reasons = append(st.Reasons, schema.OneLine(down.Error())+"; rows wait in the outbox")
	}
	slices.Sort(st.Reasons)
	slices.SortFunc(st.Stocks, func(x, y Stock) int { return strings.Compare(x.Topic, y.Topic) })
	s.judge(&st, time.Now())
	return st
}

func (s *Service) database(ctx context.Context, d *Database) error {
	var err error
	if d.SchemaVersion, d.SchemaWanted, err = s.store.SchemaVersion(ctx); err != nil {
		return err
	}
	d.Reachable = true
	if err := s.store.Check(ctx); errors.Is(err, schema.ErrNotMigrated) {
		return fmt.Errorf("%w; run `millbridge migrate up`", err)
	} else if err != nil {
		return err
	}
	if d.weak, err = s.store.WeakSettings(ctx); err != nil {
		return err
	}
	info, err := s.store.Info(ctx)
	if err != nil {
		return err
	}
	d.Outbox, d.Bound, d.MaxPayload = info.ID, info.Bound, info.MaxPayload
	return nil
}

func (s *Service) backlogs(ctx context.Context) ([]Backlog, error) {
	list, err := s.store.Backlogs(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]Backlog, 0, len(list))
	for _, b := range list {
		out = append(out, Backlog{b.Where, b.Stream, b.Group, b.Rows, seconds(b.Oldest)})
	}
	return out, nil
}

func (s *Service) circuits(ctx context.Context) ([]Circuit, error) {
	list, err := s.store.Circuits(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]Circuit, 0, len(list))
	for _, c := range list {
		out = append(out, Circuit{c.Handler, c.Open, c.Disabled, c.Failures, c.Since, seconds(c.Left), c.Reason, c.Why()})
	}
	return out, nil
}

func (s *Service) shards(ctx context.Context) ([]Shard, error) {
	var out []Shard
	for _, stream := range schema.Streams {
		list, err := s.store.Shards(ctx, stream)
		if err != nil {
			return nil, err
		}
		for _, sh := range list {
			out = append(out, Shard{
				Stream: sh.Stream, Shard: sh.Shard, Generation: sh.Generation, Owner: sh.Owner, LeaseSeconds: seconds(sh.LeaseLeft),
				Batch: sh.Batch, Sent: sh.Total, CursorSeq: sh.CursorSeq,
			})
		}
	}
	return out, nil
}

func (s *Service) stops(ctx context.Context) ([]Stop, error) {
	if s.cfg.Repair == nil {
		return nil, nil
	}
	list, err := s.cfg.Repair.Stops(ctx)
	var out []Stop
	for _, e := range list {
		out = append(out, Stop{e.Shard.Stream, e.Shard.Shard, e.Stop, e.Detail, e.Stop.Hint()})
	}
	return out, err
}
