package ops

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/millbridge/millbridge/schema"
)

// fakeStock says what a test wants to hear.
type fakeStock struct {
	state schema.StockState
	err   error
}

func (f fakeStock) Name() string { return "stock outbox " + f.state.Topic }

func (f fakeStock) State(context.Context) (schema.StockState, error) { return f.state, f.err }

func TestJudgeStock(t *testing.T) {
	t.Parallel()
	var reasons, notes []string
	add := func(to *[]string) func(string, ...any) {
		return func(format string, args ...any) { *to = append(*to, fmt.Sprintf(format, args...)) }
	}
	judgeStock(Stock{Topic: "calm", Rows: 5, OldestSeconds: 2}, add(&reasons), add(&notes))
	if len(reasons)+len(notes) > 0 {
		t.Errorf("five rows of two seconds: %q, %q", reasons, notes)
	}
	judgeStock(Stock{Topic: "late", Rows: 5, OldestSeconds: 90, Left: 2, Sample: []string{"offset 7: odd"}}, add(&reasons), add(&notes))
	if len(reasons) != 1 || !strings.Contains(reasons[0], "late wait: 5, the oldest for 1m30s") {
		t.Errorf("reasons: %q", reasons)
	}
	if len(notes) != 1 || !strings.Contains(notes[0], "2, the first at offset 7: odd") {
		t.Errorf("notes: %q", notes)
	}
}

func TestExposition_of_stock_outboxes(t *testing.T) {
	t.Parallel()
	s := &Service{cfg: Config{Stocks: []StockOutbox{
		fakeStock{state: schema.StockState{Topic: "orders", Rows: 3, Oldest: time.Minute, Left: 1}},
		fakeStock{state: schema.StockState{Topic: "gone"}, err: errors.New("there is no table")},
	}}}
	var e exposition
	e.stock(s.stockStates(t.Context()))
	for _, want := range []string{`millbridge_stock_rows{topic="orders",state="waiting"} 3`, `millbridge_stock_rows{topic="orders",state="left"} 1`} {
		if !strings.Contains(e.String(), want) {
			t.Errorf("no %s in\n%s", want, e.String())
		}
	}
	if strings.Contains(e.String(), "gone") {
		t.Errorf("what cannot be asked is not 0:\n%s", e.String())
	}
	var none exposition
	if none.stock(nil); none.Len() > 0 {
		t.Errorf("without a stock outbox: %s", none.String())
	}
}
