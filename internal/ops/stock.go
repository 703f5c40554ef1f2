package ops

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/millbridge/millbridge/schema"
)

// A StockOutbox is a stock Watermill outbox that is emptied into ours.
type StockOutbox interface {
	Name() string
	State(ctx context.Context) (schema.StockState, error)
}

// Stock is what there is in a stock outbox.
type Stock struct {
	Topic         string   `json:"topic"`
	Rows          int64    `json:"rows"` // that wait to be moved
	OldestSeconds float64  `json:"oldest_seconds"`
	Left          int64    `json:"left"`   // that hold no message that can be sent
	Sample        []string `json:"sample"` // why, of the first ones
}

// stocks asks each outbox; what cannot be told of one does not hide the others.
func (s *Service) stocks(part func(what string, ask func(ctx context.Context) error), note func(Stock)) {
	for _, outbox := range s.cfg.Stocks {
		part(outbox.Name(), func(ctx context.Context) error {
			state, err := outbox.State(ctx)
			if err != nil {
				return err
			}
			st := Stock{Topic: state.Topic, Rows: state.Rows, OldestSeconds: seconds(state.Oldest), Left: state.Left, Sample: []string{}}
			for _, l := range state.Sample {
				st.Sample = append(st.Sample, fmt.Sprintf("offset %d: %s", l.Offset, l.Reason))
			}
			note(st)
			return nil
		})
	}
}

// judgeStock says what is wrong with a stock outbox.
func judgeStock(st Stock, reason, note func(format string, args ...any)) {
	if st.OldestSeconds > overdue.Seconds() {
		reason("rows of stock outbox %s wait: %d, the oldest for %v; start `millbridge run`, or see who holds the table or the stock forwarder's position",
			st.Topic, st.Rows, time.Duration(st.OldestSeconds)*time.Second)
	}
	if st.Left > 0 {
		first := ""
		if len(st.Sample) > 0 {
			first = ", the first at " + st.Sample[0]
		}
		note("rows of stock outbox %s that hold no message that can be sent: %s%s; they stay where they are", st.Topic, strconv.FormatInt(st.Left, 10), first)
	}
}

// stockStates leaves out what cannot be asked: unknown is not 0.
func (s *Service) stockStates(ctx context.Context) (list []schema.StockState) {
	for _, outbox := range s.cfg.Stocks {
		if state, err := outbox.State(ctx); err == nil {
			list = append(list, state)
		}
	}
	return list
}

func (e *exposition) stock(list []schema.StockState) {
	if len(list) == 0 {
		return
	}
	e.metric("millbridge_stock_rows", "gauge", "Rows of a stock outbox: waiting to be moved into ours, or left because they hold no message that can be sent.")
	for _, st := range list {
		e.value("millbridge_stock_rows", float64(st.Rows), "topic", st.Topic, "state", "waiting")
		e.value("millbridge_stock_rows", float64(st.Left), "topic", st.Topic, "state", "left")
	}
}
