package ops

import (
	"context"
	"errors"
	"fmt"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/millbridge/millbridge/internal/deadletters"
	"github.com/millbridge/millbridge/schema"
)

// A Place is one place where a message is or has left a trace.
type Place struct {
	At       string    `json:"at"` // outbox, scheduled, parked, stream, inbox or dead
	Stream   string    `json:"stream,omitempty"`
	Sequence uint64    `json:"sequence,omitempty"`
	Subject  string    `json:"subject,omitempty"`
	Since    time.Time `json:"since"`
	DueAt    time.Time `json:"due_at,omitzero"`

	Handler   string    `json:"handler,omitempty"`
	State     string    `json:"state,omitempty"` // of the inbox: running, done, dead or dropped; of a letter: open, replayed or dropped
	Attempts  int       `json:"attempts,omitempty"`
	Replay    int       `json:"replay,omitempty"`
	Cause     string    `json:"cause,omitempty"`
	LastError string    `json:"last_error,omitempty"`
	NextTry   time.Time `json:"next_try,omitzero"`
	Running   bool      `json:"running,omitempty"` // a handler works on it right now
}

// Found is everything that is known of one message.
type Found struct {
	ID      string   `json:"id"`
	Message *Message `json:"message,omitempty"` // the message itself, if it was found whole
	Places  []Place  `json:"places"`
	Unknown []string `json:"unknown"` // what could not be looked through
}

// Show looks for a message everywhere. [schema.ErrNotFound] if there is no trace of it.
func (s *Service) Show(ctx context.Context, id string) (Found, error) {
	f := Found{ID: id, Places: []Place{}, Unknown: []string{}}
	if err := s.showRows(ctx, &f); err != nil {
		return f, fmt.Errorf("show %s: %w", schema.OneLine(id), err)
	}
	records, err := s.store.InboxByMessage(ctx, id)
	if err != nil {
		return f, fmt.Errorf("show %s: %w", schema.OneLine(id), err)
	}
	for _, r := range records {
		f.Places = append(f.Places, Place{
			At: "inbox", Handler: r.Key.Handler, State: string(r.State), Since: r.UpdatedAt, Attempts: r.Attempts, Replay: r.Replay,
			Cause: string(r.Cause), LastError: r.LastError, NextTry: r.NextTry, Running: r.LeaseOwner != "",
		})
	}
	if err := s.natsUp(); err != nil {
		f.Unknown = append(f.Unknown, "the streams: "+schema.OneLine(err.Error()))
	} else {
		s.showStreams(ctx, &f)
	}
	if len(f.Places) == 0 && len(f.Unknown) == 0 {
		return f, fmt.Errorf("show %s: %w", schema.OneLine(id), schema.ErrNotFound)
	}
	return f, nil
}

func (s *Service) showRows(ctx context.Context, f *Found) error {
	filter := schema.RowFilter{ID: f.ID}
	rows, err := s.store.ListOutbox(ctx, filter)
	if err != nil {
		return err
	}
	for _, r := range rows {
		f.Places = append(f.Places, rowPlace("outbox", r))
		f.row(r)
	}
	scheduled, err := s.store.ListScheduled(ctx, filter)
	if err != nil {
		return err
	}
	for _, r := range scheduled {
		p := rowPlace("scheduled", r.Row)
		p.DueAt = r.DueAt
		f.Places = append(f.Places, p)
		f.row(r.Row)
	}
	parked, err := s.store.ListParked(ctx, filter)
	if err != nil {
		return err
	}
	for _, r := range parked {
		p := rowPlace("parked", r.Row)
		p.Since, p.LastError = r.ParkedAt, r.Reason
		f.Places = append(f.Places, p)
		f.row(r.Row)
	}
	return nil
}

func rowPlace(at string, r schema.Row) Place {
	return Place{At: at, Stream: string(r.Stream), Sequence: uint64(max(r.Seq, 0)), Subject: r.Subject, Since: r.CreatedAt}
}

func (f *Found) row(r schema.Row) {
	if f.Message == nil {
		header, err := schema.ParseHeader(r.Block())
		if err == nil {
			f.Message = newMessage(r.Subject, header, r.Payload)
		}
	}
}

// showStreams looks through the streams, each for a limited time.
func (s *Service) showStreams(ctx context.Context, f *Found) {
	look := func(what string, in func(ctx context.Context) error) {
		ctx, cancel := context.WithTimeout(ctx, s.cfg.PartTimeout)
		defer cancel()
		if err := in(ctx); err != nil && !errors.Is(err, natsjs.ErrStreamNotFound) {
			if ctx.Err() != nil {
				err = fmt.Errorf("only a part could be looked through in %v", s.cfg.PartTimeout)
			}
			f.Unknown = append(f.Unknown, what+": "+schema.OneLine(err.Error()))
		}
	}
	look("dead letters", func(ctx context.Context) error { return s.showDead(ctx, f) })
	filters := []string{"jobs.>", "replay.>"}
	if f.Message != nil && f.Message.Kind == string(schema.KindEvent) {
		filters = filters[1:]
	}
	for _, filter := range filters {
		look("the stream of jobs", func(ctx context.Context) error {
			return s.walk(ctx, s.cfg.Subjects.StreamName(schema.Jobs), s.cfg.Subjects.Full(filter), func(m *natsjs.RawStreamMsg) bool {
				s.showMessage(f, schema.Jobs, m)
				return true
			})
		})
	}
	if f.Message == nil || f.Message.Kind != string(schema.KindJob) {
		look("the stream of events", func(ctx context.Context) error { return s.showEvents(ctx, f) })
	}
}

func (s *Service) showMessage(f *Found, role schema.Stream, m *natsjs.RawStreamMsg) {
	relative, _ := s.cfg.Subjects.Relative(m.Subject)
	e, err := schema.Decode(relative, m.Header, m.Data)
	if err != nil || e.ID != f.ID && (e.Replay == nil || e.Replay.Of != f.ID) {
		return
	}
	p := Place{At: "stream", Stream: s.cfg.Subjects.StreamName(role), Sequence: m.Sequence, Subject: relative, Since: m.Time}
	if e.Replay != nil {
		p.Replay, p.Handler = e.Replay.Number, e.Replay.Handler
	}
	f.Places = append(f.Places, p)
	if f.Message == nil {
		f.Message = newMessage(relative, m.Header, m.Data)
	}
}

// showEvents finds the event by its headers and then reads it whole.
func (s *Service) showEvents(ctx context.Context, f *Found) error {
	name := s.cfg.Subjects.StreamName(schema.Events)
	var found uint64
	err := s.scan(ctx, name, s.cfg.Subjects.Full("events.>"), func(m natsjs.Msg) bool {
		id, _ := schema.WatermillHeader(m.Headers())
		if id != f.ID {
			return true
		}
		if meta, err := m.Metadata(); err == nil {
			found = meta.Sequence.Stream
		}
		return false
	})
	if err != nil || found == 0 {
		return err
	}
	handle, err := s.js.Stream(ctx, name)
	if err != nil {
		return err
	}
	m, err := handle.GetMsg(ctx, found)
	if err != nil {
		return err
	}
	s.showMessage(f, schema.Events, m)
	return nil
}

func (s *Service) showDead(ctx context.Context, f *Found) error {
	letters, _, err := s.box.List(ctx, deadletters.Filter{ID: f.ID, Tombstones: true, Limit: 1000})
	if err != nil {
		return err
	}
	for _, l := range letters {
		state := "open"
		if l.Tombstone != "" {
			state = l.Tombstone
		}
		f.Places = append(f.Places, Place{
			At: "dead", Stream: s.cfg.Subjects.DeadStreamName(), Sequence: l.Seq, Subject: l.Subject, Since: l.Time, Handler: l.Handler,
			State: state, Attempts: l.Attempts, Replay: l.Replay, Cause: string(l.Cause), LastError: l.Reason,
		})
		if f.Message == nil && l.Tombstone == "" {
			f.Message = s.letterMessage(l.DeadLetter)
		}
	}
	return nil
}

func (s *Service) letterMessage(l schema.DeadLetter) *Message {
	relative, _ := s.cfg.Subjects.Relative(l.Subject)
	return newMessage(relative, l.Header, l.Payload)
}
