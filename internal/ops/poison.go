package ops

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/millbridge/millbridge/internal/deadletters"
	"github.com/millbridge/millbridge/schema"
)

// Where a message was given up.
const (
	AtHandler   = "handler"   // a handler gave it up: a dead letter
	AtForwarder = "forwarder" // it can never be sent: a parked row
)

// A PoisonQuery selects messages that were given up. Zero fields do not filter.
type PoisonQuery struct {
	ID     string
	Target string // target or subscription
	Name   string // action or event name
	Tenant string
	Text   string // part of the error, in any case
	Since  time.Time
	Until  time.Time
	After  string // continue behind this page
	Limit  int    // size of a page; 0 means 100
}

// PoisonItem is one message that was given up.
type PoisonItem struct {
	At         string    `json:"at"`
	ID         string    `json:"id"`
	Target     string    `json:"target"` // target, subscription or event
	Name       string    `json:"name"`
	Tenant     string    `json:"tenant,omitempty"`
	Cause      string    `json:"cause"`
	Error      string    `json:"error"`
	Attempts   int       `json:"attempts"`
	Deliveries uint64    `json:"deliveries"`
	Replay     int       `json:"replay"` // how often it had been replayed before
	Time       time.Time `json:"time"`
	Behind     bool      `json:"behind,omitempty"` // parked only because of its ordering key

	Stack   string   `json:"stack,omitempty"`   // of a panic; only shown singly
	Message *Message `json:"message,omitempty"` // only shown singly

	letter deadletters.Letter
	row    schema.ParkedRow
}

// Causes of parked rows.
const (
	causeParked = "unsendable"
	causeBehind = "behind"
)

// Poison lists a page of the messages that were given up, parked rows first, then dead letters, each oldest first. Next
// is what to set [PoisonQuery.After] to for the next page, or empty if there is none.
func (s *Service) Poison(ctx context.Context, q PoisonQuery) (items []PoisonItem, next string, err error) {
	if q.Limit <= 0 {
		q.Limit = 100
	}
	place, after, err := parseAfter(q.After)
	if err != nil {
		return nil, "", fmt.Errorf("list poison queue: %w", err)
	}
	if place == AtForwarder {
		items, next, err = s.parkedPage(ctx, q, int64(after))
		if err != nil || next != "" {
			return items, next, err
		}
		after = 0
		if len(items) == q.Limit {
			return items, AtHandler + ":0", nil
		}
	}
	letters, next, err := s.lettersPage(ctx, q, after, q.Limit-len(items))
	return append(items, letters...), next, err
}

func parseAfter(s string) (place string, after uint64, err error) {
	if s == "" {
		return AtForwarder, 0, nil
	}
	place, number, _ := strings.Cut(s, ":")
	after, err = strconv.ParseUint(number, 10, 63)
	if err != nil || place != AtForwarder && place != AtHandler {
		return "", 0, fmt.Errorf("%q is not where a page ended", schema.OneLine(s))
	}
	return place, after, nil
}

func (s *Service) parkedPage(ctx context.Context, q PoisonQuery, after int64) ([]PoisonItem, string, error) {
	var items []PoisonItem
	filter := schema.RowFilter{Group: q.Target, ID: q.ID, After: after, Limit: q.Limit}
	for {
		rows, err := s.store.ListParked(ctx, filter)
		if err != nil {
			return nil, "", err
		}
		for _, r := range rows {
			filter.After = r.Seq
			item := s.parkedItem(r)
			if q.matches(item) {
				items = append(items, item)
			}
			if len(items) == q.Limit {
				return items, AtForwarder + ":" + strconv.FormatInt(r.Seq, 10), nil
			}
		}
		if len(rows) < filter.Limit {
			return items, "", nil
		}
	}
}

func (s *Service) parkedItem(r schema.ParkedRow) PoisonItem {
	row := newRow(InParked, r.Row)
	item := PoisonItem{
		At: AtForwarder, ID: row.ID, Target: s.group(s.cfg.Subjects.Full(r.Subject)), Cause: causeParked, Error: r.Reason,
		Time: r.ParkedAt, Behind: r.Behind, row: r,
	}
	if r.Behind {
		item.Cause = causeBehind
	}
	if parts := strings.SplitN(r.Subject, ".", 3); len(parts) == 3 {
		item.Name = parts[2]
	}
	if e, err := r.Envelope(); err == nil {
		item.Tenant = e.Tenant
	}
	return item
}

// matches compares what the store does not.
func (q PoisonQuery) matches(i PoisonItem) bool {
	return (q.Name == "" || q.Name == i.Name) &&
		(q.Tenant == "" || q.Tenant == i.Tenant) &&
		(q.Text == "" || strings.Contains(strings.ToLower(i.Error), strings.ToLower(q.Text))) &&
		(q.Since.IsZero() || !i.Time.Before(q.Since)) &&
		(q.Until.IsZero() || i.Time.Before(q.Until))
}

func (s *Service) lettersPage(ctx context.Context, q PoisonQuery, after uint64, limit int) ([]PoisonItem, string, error) {
	if err := s.natsUp(); err != nil {
		return nil, "", fmt.Errorf("list dead letters: %w", err)
	}
	letters, next, err := s.box.List(ctx, deadletters.Filter{
		Handler: q.Target, ID: q.ID, Name: q.Name, Tenant: q.Tenant, Text: q.Text, Since: q.Since, Until: q.Until, After: after, Limit: limit,
	})
	if errors.Is(err, natsjs.ErrStreamNotFound) {
		return nil, "", nil // nothing has ever died
	}
	if err != nil {
		return nil, "", err
	}
	items := make([]PoisonItem, 0, len(letters))
	for _, l := range letters {
		items = append(items, s.letterItem(l))
	}
	if next == 0 {
		return items, "", nil
	}
	return items, AtHandler + ":" + strconv.FormatUint(next, 10), nil
}

func (s *Service) letterItem(l deadletters.Letter) PoisonItem {
	item := PoisonItem{
		At: AtHandler, ID: l.ID, Target: l.Handler, Cause: string(l.Cause), Error: l.Reason, Attempts: l.Attempts,
		Deliveries: l.Deliveries, Replay: l.Replay, Time: l.Time, letter: l,
	}
	if e, err := l.Envelope(s.cfg.Subjects); err == nil {
		item.Name, item.Tenant = e.Name, e.Tenant
	}
	return item
}

// PoisonShow returns everything about the given-up messages with this id, whole. [schema.ErrNotFound] if there is none.
func (s *Service) PoisonShow(ctx context.Context, id string) ([]PoisonItem, error) {
	items, _, err := s.Poison(ctx, PoisonQuery{ID: id, Limit: 1000})
	if err != nil {
		return nil, err
	}
	if len(items) == 0 {
		return nil, fmt.Errorf("poison queue: message %q: %w", schema.OneLine(id), schema.ErrNotFound)
	}
	for i := range items {
		if items[i].At == AtHandler {
			items[i].Stack = items[i].letter.Stack
			items[i].Message = s.letterMessage(items[i].letter.DeadLetter)
			continue
		}
		row := items[i].row
		block := row.Block()
		header, err := schema.ParseHeader(block)
		if err != nil {
			items[i].Message = &Message{Headers: map[string][]string{"(raw)": {string(block)}}, Undecodable: err.Error(), Payload: row.Payload}
			continue
		}
		items[i].Message = newMessage(row.Subject, header, row.Payload)
	}
	return items, nil
}
