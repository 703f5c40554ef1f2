package deadletters

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millbridge/millbridge/schema"
)

// A Letter is a dead letter and its place in the DEAD stream.
type Letter struct {
	schema.DeadLetter
	Seq uint64
}

// A Filter selects letters. Zero fields do not filter.
type Filter struct {
	Handler    string
	ID         string       // of the message, as published first
	Name       string       // action or event name
	Tenant     string       //
	Cause      schema.Cause //
	Text       string       // part of the reason, in any case
	Since      time.Time    // died at or after
	Until      time.Time    // died before
	Tombstones bool         // also what was replayed or dropped
	After      uint64       // only letters with a higher Seq
	Limit      int          // at most this many; 0 means 100
}

// List returns letters, oldest first. If there may be more, next is what to set [Filter.After] to; else it is 0. What
// is in the stream but is no letter is returned with the cause undecodable.
func (b *Box) List(ctx context.Context, f Filter) (letters []Letter, next uint64, err error) {
	stream, err := b.stream(ctx)
	if err != nil {
		return nil, 0, err
	}
	limit := f.Limit
	if limit <= 0 {
		limit = 100
	}
	subject := b.filter(f)
	for seq := f.After + 1; ; {
		msg, err := stream.GetMsg(ctx, seq, jetstream.WithGetMsgSubject(subject))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return letters, 0, nil
		}
		if err != nil {
			return nil, 0, fmt.Errorf("list dead letters: %w", err)
		}
		seq = msg.Sequence + 1
		letter, err := b.decode(msg)
		if err != nil {
			letter = foreign(msg, err)
		}
		if f.matches(letter, b.subjects) {
			letters = append(letters, letter)
		}
		if len(letters) == limit {
			return letters, msg.Sequence, nil
		}
	}
}

// Get returns the open letters of one message, oldest first; [schema.ErrNotFound] if there is none.
func (b *Box) Get(ctx context.Context, id string) ([]Letter, error) {
	letters, _, err := b.List(ctx, Filter{ID: id, Limit: 1000})
	if err == nil && len(letters) == 0 {
		err = fmt.Errorf("dead letter %q: %w", schema.OneLine(id), schema.ErrNotFound)
	}
	return letters, err
}

func (b *Box) filter(f Filter) string {
	handler, id := "*", "*"
	if isToken(f.Handler) {
		handler = f.Handler
	}
	if isToken(f.ID) {
		id = f.ID
	}
	if handler == "*" && id == "*" {
		return b.subjects.Full("dead.>")
	}
	return b.subjects.Full("dead.*." + handler + "." + id + ".*")
}

// isToken reports whether s can stand in a subject; what cannot is compared with the letters instead.
func isToken(s string) bool { return s != "" && !strings.ContainsAny(s, ".*> \t\r\n\x00") }

func (f Filter) matches(l Letter, subjects schema.Subjects) bool {
	switch {
	case l.Tombstone != "" && !f.Tombstones,
		f.Handler != "" && f.Handler != l.Handler,
		f.ID != "" && f.ID != l.ID,
		f.Cause != "" && f.Cause != l.Cause,
		f.Text != "" && !strings.Contains(strings.ToLower(l.Reason), strings.ToLower(f.Text)),
		!f.Since.IsZero() && l.Time.Before(f.Since),
		!f.Until.IsZero() && !l.Time.Before(f.Until):
		return false
	}
	if f.Name == "" && f.Tenant == "" {
		return true
	}
	env, err := l.Envelope(subjects)
	return err == nil && (f.Name == "" || f.Name == env.Name) && (f.Tenant == "" || f.Tenant == env.Tenant)
}

// foreign stands for something in the stream that is not a letter.
func foreign(msg *jetstream.RawStreamMsg, err error) Letter {
	return Letter{Seq: msg.Sequence, DeadLetter: schema.DeadLetter{
		ID: fmt.Sprintf("dead-%d", msg.Sequence), Cause: schema.CauseUndecodable, Reason: schema.OneLine(err.Error()),
		Time: msg.Time, Subject: msg.Subject, Sequence: msg.Sequence, Header: msg.Header, Payload: msg.Data,
	}}
}
