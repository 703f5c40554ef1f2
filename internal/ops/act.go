package ops

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/millbridge/millbridge/internal/deadletters"
	"github.com/millbridge/millbridge/schema"
)

// An Action is what an operator orders for messages that were given up.
type Action string

const (
	Replay Action = "replay" // put it back: for the one handler that gave it up, or into the outbox
	Drop   Action = "drop"   // give it up for good
)

// Outcome counts what an order did.
type Outcome struct {
	Selected int `json:"selected"` // messages that the query selected; with a dry run all that happens
	Done     int `json:"done"`
	Already  int `json:"already"` // somebody else was quicker
	Failed   int `json:"failed"`
}

// itemTimeout is for one message, which is finished even if the operator stops the command.
const itemTimeout = 15 * time.Second

// Order selects messages that were given up.
type Order struct {
	Action Action
	Query  PoisonQuery // After and Limit do not count
	IDs    []string    // more than one id
	DryRun bool
	Rate   int // messages a second; 0 means 50
}

// Act carries out an order, one message after the other, at a bounded rate. It takes what was there when it began, so
// that a message that dies again is not replayed again. It can be stopped between any two messages and run again: what
// was done is no longer selected. Each message is told to each with its error, which wraps [schema.ErrAlreadyReplayed]
// when somebody else was quicker.
func (s *Service) Act(ctx context.Context, o Order, each func(PoisonItem, error)) (Outcome, error) {
	w := &worker{s: s, order: o, each: each}
	if o.Rate <= 0 {
		w.order.Rate = 50
	}
	tick := time.NewTicker(time.Second / time.Duration(w.order.Rate))
	defer tick.Stop()
	w.tick = tick.C
	ids := o.IDs
	if len(ids) == 0 {
		ids = []string{o.Query.ID}
	}
	for _, id := range ids {
		before := w.out.Selected
		q := o.Query
		q.ID = id
		if err := w.run(ctx, q); err != nil {
			return w.out, fmt.Errorf("%s: %w", o.Action, err)
		}
		if id != "" && w.out.Selected == before {
			return w.out, fmt.Errorf("%s: %w", o.Action, s.notThere(ctx, q))
		}
	}
	return w.out, nil
}

// notThere says why a query by id selects nothing: the message is another target's, or somebody has dealt with it before.
func (s *Service) notThere(ctx context.Context, q PoisonQuery) error {
	id := schema.OneLine(q.ID)
	others, _, err := s.Poison(ctx, PoisonQuery{ID: q.ID})
	if err != nil {
		return err
	}
	var names []string
	for _, item := range others {
		if !slices.Contains(names, item.Target) {
			names = append(names, item.Target)
		}
	}
	if len(names) > 0 {
		return fmt.Errorf("message %q is in the poison queue for %s, and there is none for %s: %w", id, strings.Join(names, ", "), schema.OneLine(q.Target), schema.ErrNotFound)
	}
	letters, _, err := s.box.List(ctx, deadletters.Filter{Handler: q.Target, ID: q.ID, Tombstones: true})
	if err != nil && !errors.Is(err, natsjs.ErrStreamNotFound) {
		return err
	}
	if n := len(letters); n > 0 {
		last := letters[n-1]
		return &doneBefore{fmt.Sprintf("message %q is no longer in the poison queue: for %s it was %s before", id, last.Handler, last.Tombstone)}
	}
	return fmt.Errorf("message %q is not in the poison queue: %w", id, schema.ErrNotFound)
}

// doneBefore is a [schema.ErrAlreadyReplayed] that says which of the two it was.
type doneBefore struct{ text string }

func (e *doneBefore) Error() string { return e.text }
func (e *doneBefore) Unwrap() error { return schema.ErrAlreadyReplayed }

type worker struct {
	s     *Service
	order Order
	each  func(PoisonItem, error)
	tick  <-chan time.Time
	out   Outcome
}

func (w *worker) run(ctx context.Context, q PoisonQuery) error {
	q.Limit, q.After = 50, "" // small pages: each message is read whole
	last, err := w.s.lastLetter(ctx)
	if err != nil {
		return err
	}
	// A released row can be parked again under a higher sequence, so all parked rows are read before the first is touched.
	var parked []PoisonItem
	for after := int64(0); ; {
		page, next, err := w.s.parkedPage(ctx, q, after)
		if err != nil {
			return err
		}
		parked = append(parked, page...)
		if next == "" {
			break
		}
		after = page[len(page)-1].row.Seq
	}
	for _, item := range parked {
		if item.Behind && q.ID == "" {
			continue // goes with the row it waits behind
		}
		if err := w.one(ctx, item); err != nil {
			return err
		}
	}
	for after := uint64(0); ; {
		page, next, err := w.s.lettersPage(ctx, q, after, q.Limit)
		if err != nil {
			return err
		}
		for _, item := range page {
			if item.letter.Seq > last {
				return nil
			}
			after = item.letter.Seq
			if err := w.one(ctx, item); err != nil {
				return err
			}
		}
		if next == "" {
			return nil
		}
	}
}

// one handles one message; its error ends the order.
func (w *worker) one(ctx context.Context, item PoisonItem) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	w.out.Selected++
	if w.order.DryRun {
		w.each(item, nil)
		return nil
	}
	if w.out.Selected > 1 {
		select {
		case <-w.tick:
		case <-ctx.Done():
			w.out.Selected--
			return ctx.Err()
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), itemTimeout)
	defer cancel()
	err := w.s.act(ctx, w.order.Action, item)
	switch {
	case err == nil:
		w.out.Done++
	case errors.Is(err, schema.ErrAlreadyReplayed):
		w.out.Already++
	default:
		w.out.Failed++
	}
	w.each(item, err)
	return nil
}

func (s *Service) act(ctx context.Context, action Action, item PoisonItem) error {
	if item.At == AtForwarder {
		var err error
		if action == Drop {
			err = s.store.DropParked(ctx, item.row.Name())
		} else {
			_, err = s.store.ReleaseParked(ctx, item.row.Name())
		}
		if errors.Is(err, schema.ErrNotFound) {
			return fmt.Errorf("parked message %s: %w", item.ID, schema.ErrAlreadyReplayed)
		}
		return err
	}
	if action == Drop {
		return s.operator().Drop(ctx, item.letter)
	}
	return s.operator().Replay(ctx, item.letter)
}

// lastLetter returns the last sequence of the stream of dead letters.
func (s *Service) lastLetter(ctx context.Context) (uint64, error) {
	if err := s.natsUp(); err != nil {
		return 0, err
	}
	stream, err := s.js.Stream(ctx, s.cfg.Subjects.DeadStreamName())
	if errors.Is(err, natsjs.ErrStreamNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return stream.CachedInfo().State.LastSeq, nil
}
