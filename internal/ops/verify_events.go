package ops

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/millbridge/millbridge/schema"
)

const (
	// startSlack is how far from a subscription's start events are not held against it: clocks differ between servers.
	startSlack = 10 * time.Second
	// keysAtOnce is how many inbox keys are looked up by one statement.
	keysAtOnce = 2000
)

// events accounts for the stream of events, where nothing is removed but by its time, and for what subscriptions have
// made of it.
func (l *look) events(ctx context.Context) error {
	stream, err := l.stream(ctx, schema.Events)
	if err != nil || stream == nil {
		return err
	}
	found, err := l.s.ledgers(ctx, schema.Events, l.info)
	if err != nil {
		return err
	}
	l.v.Findings = append(l.v.Findings, found...)
	// What is below a floor has been acked, and is in the inbox: the floors come first.
	if l.consumers, err = l.s.consumers(ctx); err != nil {
		return err
	}
	subscriptions := l.subscriptions()
	c, err := l.s.cutOf(ctx, stream, schema.Events, l.info.ID)
	if err != nil {
		return err
	}
	a := l.streams[schema.Events]
	a.Sent, a.Cut, a.Accepted, a.Dropped = c.sent, c.seq, l.accounts.Accepted[schema.Events], l.accounts.Dropped[schema.Events]
	ttl := l.s.cfg.EventTTL
	order, ids, progress := newOrdering(c), newTwice(), l.counting("reading the stream of events")
	state, err := stream.Info(ctx)
	if err != nil {
		return err
	}
	done, last := int64(0), max(c.seq, state.State.LastSeq) // copies come after the cut
	for _, t := range subscriptions {
		last = max(last, t.floor)
	}
	scanErr := l.s.scan(ctx, l.s.cfg.Subjects.StreamName(schema.Events), l.s.cfg.Subjects.Full("events.>"), func(msg natsjs.Msg) bool {
		m := eventOf(msg)
		if m.Seq > last {
			return false
		}
		done++
		progress(done)
		id, ours := l.ours(m)
		row := schema.RowID(id)
		delete(l.keyed, row)
		relative, _ := l.s.cfg.Subjects.Relative(m.Subject)
		switch {
		case !ours:
			a.Foreign++
		default:
			if m.Seq <= c.seq {
				a.InStream++
			}
			if text := m.Header.Get("Nats-TTL"); text != "" {
				if d, err := time.ParseDuration(text); err == nil && (ttl <= 0 || d < ttl) {
					ttl = d
				}
			}
			if ids.seen(row) {
				l.find(Finding{Kind: FindDoubled, Stream: schema.Events, ID: id, Sequence: m.Seq, Count: 1, explains: true, Detail: "it is in the stream twice"})
			}
			order.add(relative, m)
		}
		for _, sub := range subscriptions {
			if err = sub.take(ctx, l, relative, id, m); err != nil {
				return false
			}
		}
		return true
	})
	if err = errors.Join(scanErr, err); err != nil {
		return err
	}
	for _, sub := range subscriptions {
		if err := sub.flush(ctx, l); err != nil {
			return err
		}
	}
	for _, f := range order.check(schema.Events) {
		l.find(f)
	}
	l.ttl = ttl
	l.eventTotal(a)
	return l.namedEvents(ctx, c, order)
}

// eventOf turns what a scan brings into what a sweep brings.
func eventOf(msg natsjs.Msg) *stored {
	m := &stored{Subject: msg.Subject(), Header: msg.Headers()}
	if m.Header == nil {
		m.Header = nats.Header{}
	}
	if meta, err := msg.Metadata(); err == nil {
		m.Seq, m.Time = meta.Sequence.Stream, meta.Timestamp
	}
	return m
}

// eventTotal compares the numbers. Once events may have expired, only a surplus can be told.
func (l *look) eventTotal(a *StreamAccount) {
	diff := a.Sent - a.InStream - a.Accepted
	if diff > 0 && l.ttl > 0 && l.start.After(l.accounts.Created.Add(l.ttl-l.ttl/20)) {
		a.Expired, diff = diff, 0
		l.note("events have expired: how many were sent before is known, not which; of those that are missing, only the last ones can be named")
	}
	if diff != 0 {
		l.find(l.total(a, diff))
	}
}

// namedEvents names events that the cursors have just sent and that are not in the stream, unless they may have expired.
func (l *look) namedEvents(ctx context.Context, c cut, order *ordering) error {
	var ids []string
	for _, p := range c.cursors {
		for _, n := range p.Names() {
			if order.found[n.ID] || l.expired(n.ID, nil) {
				continue
			}
			ids = append(ids, n.ID.String())
		}
	}
	if len(ids) > 0 && l.accounts.Accepted[schema.Events] != 0 { // those that were accepted have left a note
		var err error
		if ids, err = l.s.store.Unplaced(ctx, ids); err != nil {
			return err
		}
	}
	for _, id := range ids {
		l.find(Finding{Kind: FindMissing, Stream: schema.Events, ID: id, Count: 1, explains: true, Detail: "it was sent and is not in the stream"})
	}
	return nil
}

// expired reports whether the event with this id may have expired. An id that does not tell when it was made may have.
func (l *look) expired(id schema.UUID, err error) bool {
	return err != nil || id[6]>>4 != 7 || l.ttl > 0 && l.start.Sub(timeOf(id)) > l.ttl-l.ttl/20
}

// timeOf returns the time in a UUID of version 7.
func timeOf(id schema.UUID) time.Time {
	var ms int64
	for _, b := range id[:6] {
		ms = ms<<8 | int64(b)
	}
	return time.UnixMilli(ms)
}

// A taker is a subscription whose inbox is here: each event that it has passed by must be there.
type taker struct {
	name    string
	filters []string // event names
	floor   uint64   // everything up to here is acked
	from    uint64   // first sequence it takes
	since   time.Time
	until   time.Time // older events may be forgotten by now

	hashes [][32]byte
	ids    []string
	seqs   []uint64
}

func (l *look) subscriptions() []*taker {
	var list []*taker
	for _, c := range l.consumers {
		if c.role != schema.Events {
			continue
		}
		switch {
		case c.marks[schema.MarkInbox] != l.info.ID:
			l.note("%s takes events and keeps its records elsewhere: what it makes of them is not looked at", c.Name)
			continue
		case c.marks[schema.MarkUnrecorded] == "true":
			l.note("%s handles events without a record: what it makes of them is not known", c.Name)
			continue
		case l.o.Quick || c.floor == 0:
			continue
		}
		t := &taker{name: c.Name, filters: c.Handlers, floor: c.floor, from: c.startSeq, since: c.since, until: l.start.Add(-l.s.store.Keep() * 9 / 10)}
		list = append(list, t)
	}
	return list
}

// take notes an event that the subscription must have handled.
func (t *taker) take(ctx context.Context, l *look, relative, id string, m *stored) error {
	if m.Seq > t.floor || m.Seq < t.from || m.Time.Before(t.since) || m.Time.Before(t.until) {
		return nil
	}
	parts := strings.SplitN(relative, ".", 3)
	if len(parts) < 3 || !slices.ContainsFunc(t.filters, func(f string) bool { return matches(f, parts[2]) }) {
		return nil
	}
	env, err := schema.Decode(relative, m.Header, nil)
	if err != nil {
		return nil // it is a dead letter
	}
	t.hashes = append(t.hashes, schema.InboxKeyOf(t.name, env).Hash())
	t.ids, t.seqs = append(t.ids, id), append(t.seqs, m.Seq)
	if len(t.hashes) < keysAtOnce {
		return nil
	}
	return t.flush(ctx, l)
}

func (t *taker) flush(ctx context.Context, l *look) error {
	if len(t.hashes) == 0 {
		return nil
	}
	known, err := l.s.store.KnownKeys(ctx, t.hashes)
	if err != nil {
		return err
	}
	for i, h := range t.hashes {
		if !known[h] {
			l.find(Finding{
				Kind: FindUnhandled, Stream: schema.Events, ID: t.ids[i], Handler: t.name, Sequence: t.seqs[i], Count: 1,
				Detail: fmt.Sprintf("subscription %s has passed it by: it is acked and the inbox does not know it", t.name),
			})
		}
	}
	t.hashes, t.ids, t.seqs = t.hashes[:0], t.ids[:0], t.seqs[:0]
	return nil
}
