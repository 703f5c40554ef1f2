package jetstream

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/millbridge/millbridge/schema"
)

// planElsewhere looks at rows outside the outbox that may have moved on, and been sent, after the state that the
// database was restored to: scheduled ones that became due since, and parked ones that somebody released.
func (x *patient) planElsewhere(ctx context.Context, p *Plan) error {
	scheduled, err := x.scheduled(ctx)
	if err != nil {
		return err
	}
	parked, err := x.parked(ctx)
	if err != nil {
		return err
	}
	scheduled, parked = consider(p, scheduled), consider(p, parked)
	all := make([]schema.Row, 0, len(scheduled)+len(parked))
	for _, row := range scheduled {
		all = append(all, row.Row)
	}
	all = append(all, parked...)
	sent, err := x.stored(ctx, p, all)
	if err != nil {
		return err
	}
	var unsure []schema.Row
	for _, row := range scheduled {
		switch {
		case sent[row.ID]:
			x.sentScheduled = append(x.sentScheduled, row.Name())
		case x.stop == StopDatabaseBehind && x.wasDue(row.DueAt) && x.maySent(row.Row):
			unsure = append(unsure, row.Row)
		}
	}
	if n := len(x.sentScheduled); n > 0 {
		p.say("%s: of %d scheduled messages the stream has %d, which are removed.", x.name(), len(scheduled), n)
	}
	x.decideScheduled(p, unsure, "had become due, and may have been sent and handled already")
	var again []string
	for _, row := range parked {
		if sent[row.ID] {
			again = append(again, messageID(row))
			p.facts = append(p.facts, fmt.Sprint("sent before", row.Name()))
		}
	}
	if n := len(again); n > 0 {
		p.say("%s: %d parked rows were released and sent before: drop them with `millbridge poison drop`, do not replay them (%s).",
			x.name(), n, strings.Join(again[:min(n, 10)], ", "))
	}
	return nil
}

// stored returns which rows the stream has or is said to have, wherever they wait.
func (x *patient) stored(ctx context.Context, p *Plan, rows []schema.Row) (map[schema.UUID]bool, error) {
	if len(rows) == 0 {
		return nil, nil
	}
	sent := make(map[schema.UUID]bool)
	if x.stop == StopDatabaseBehind {
		held, err := x.held(ctx, p, rows)
		if err != nil {
			return nil, err
		}
		for id := range held {
			sent[id] = true
		}
	}
	for _, n := range x.cursor.Names() {
		sent[n.ID] = true
	}
	return sent, nil
}

// wasDue reports whether a scheduled message may have been moved into the outbox before the cursor was written.
func (x *patient) wasDue(at time.Time) bool { return at.Before(x.cursor.Time.Add(x.r.margin)) }

// decideScheduled is decide for scheduled rows.
func (x *patient) decideScheduled(p *Plan, unsure []schema.Row, why string) {
	if len(unsure) == 0 {
		return
	}
	for _, row := range unsure {
		x.unsure = append(x.unsure, row.Name())
		if p.Options.Ambiguous == Park {
			x.parkScheduled = append(x.parkScheduled, row.Name())
		}
		p.Rows = append(p.Rows, AmbiguousRow{
			ShardRef: x.ledger.ShardRef, Seq: row.Seq, ID: messageID(row), Subject: row.Subject, CreatedAt: row.CreatedAt, Scheduled: true,
		})
	}
	p.say("%s: %d scheduled messages %s: %s.", x.name(), len(unsure), why, p.choice())
}

// choice says what becomes of rows that may have been sent.
func (p *Plan) choice() string {
	switch p.Options.Ambiguous {
	case Resend:
		return "they are sent, with the same id and key"
	case Park:
		return "they are parked"
	}
	return "choose what to do with them"
}

// mine reports whether a row belongs to the shard.
func (x *patient) mine(row schema.Row) bool {
	return int(row.Slot)*max(x.info.Shards[x.ledger.Stream], 1)>>16 == x.ledger.Shard
}

func (x *patient) scheduled(ctx context.Context) ([]schema.ScheduledRow, error) {
	var mine []schema.ScheduledRow
	err := pages(func(after int64, limit int) (n int, last int64, err error) {
		rows, err := x.r.store.ListScheduled(ctx, schema.RowFilter{Stream: x.ledger.Stream, After: after, Limit: limit})
		for _, row := range rows {
			last, row.Payload = row.Seq, nil
			if x.mine(row.Row) {
				mine = append(mine, row)
			}
		}
		return len(rows), last, err
	})
	return mine, err
}

func (x *patient) parked(ctx context.Context) ([]schema.Row, error) {
	var mine []schema.Row
	err := pages(func(after int64, limit int) (n int, last int64, err error) {
		rows, err := x.r.store.ListParked(ctx, schema.RowFilter{Stream: x.ledger.Stream, After: after, Limit: limit})
		for _, row := range rows {
			last, row.Payload = row.Seq, nil
			if x.mine(row.Row) {
				mine = append(mine, row.Row)
			}
		}
		return len(rows), last, err
	})
	return mine, err
}

// pages calls list for one page after the other.
func pages(list func(after int64, limit int) (n int, last int64, err error)) error {
	const limit = 1000
	for after := int64(0); ; {
		n, last, err := list(after, limit)
		if err != nil || n < limit {
			return err
		}
		after = last
	}
}
