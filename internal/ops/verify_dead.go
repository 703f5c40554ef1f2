package ops

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/millbridge/millbridge/schema"
)

// letterKey names what the letter of an inbox row and the row have in common.
func letterKey(key [32]byte, replay int) [16]byte {
	sum := sha256.Sum256(fmt.Appendf(nil, "%x %d", key, replay))
	return [16]byte(sum[:16])
}

// dead compares the letters with what the inbox says was given up. A verdict is recorded first, then the letter is
// written, then the message is acked.
func (l *look) dead(ctx context.Context) error {
	open := map[[16]byte]letter{} // ours, with a row in the inbox
	there := map[[16]byte]bool{}
	progress, done := l.counting("reading the dead letters"), int64(0)
	err := l.s.scanDead(ctx, func(d letter) {
		done++
		progress(done)
		l.v.Dead.add(d)
		delete(l.keyed, schema.RowID(d.message))
		delete(l.suspects, d.message)
		key := letterKey(d.key, d.replay)
		switch {
		case d.tombstone == string(schema.InboxDropped):
		case d.tombstone != "":
			l.replayed[d.handler]++
		default:
			there[key] = true
			if d.source == l.source && d.key != [32]byte{} {
				open[key] = d
			}
		}
	})
	if err != nil && !errors.Is(err, natsjs.ErrStreamNotFound) {
		return err
	}
	const page = 1000
	for after := []byte(nil); ; {
		list, err := l.s.store.DeadRecords(ctx, after, page)
		if err != nil {
			return err
		}
		for _, d := range list {
			after = d.Hash[:]
			key := letterKey(d.Hash, d.Replay)
			if delete(open, key); there[key] {
				continue
			}
			if err := l.noLetter(ctx, d); err != nil {
				return err
			}
		}
		if len(list) < page {
			break
		}
	}
	for _, d := range open {
		if err := l.noRecord(ctx, d); err != nil {
			return err
		}
	}
	return nil
}

// noLetter names a message that was given up and has no letter, unless it is still where it came from: then the letter
// will be written when it is handed out again.
func (l *look) noLetter(ctx context.Context, d schema.DeadRecord) error {
	stream := schema.Jobs
	if d.Sequence > 0 {
		m, err := l.s.get(ctx, l.s.cfg.Subjects.StreamName(schema.Jobs), nextOf{d.Sequence, l.s.cfg.Subjects.Full(">")})
		if err != nil || m != nil && m.Seq == d.Sequence {
			return err
		}
	} else {
		for _, c := range l.consumers {
			if c.Name != d.Handler {
				continue
			}
			stream = c.role
			if c.InFlight > 0 || c.Waiting > 0 {
				l.note("messages of %s are given up and not among the dead letters yet, or lost: it has messages in flight", d.Handler)
				return nil
			}
		}
	}
	if id, err := schema.ParseUUID(d.MessageID); stream == schema.Events && l.expired(id, err) {
		l.note("events that %s gave up have expired before they became dead letters: nobody was there to write these in time", d.Handler)
		return nil
	}
	l.find(Finding{
		Kind: FindNoLetter, Stream: stream, ID: d.MessageID, Handler: d.Handler, Count: 1,
		Detail: fmt.Sprintf("%s gave it up and it is not among the dead letters", d.Handler),
	})
	return nil
}

// noRecord names an open letter that the inbox does not know. A letter whose row says something else was replayed or
// dropped, and its mark is about to be written.
func (l *look) noRecord(ctx context.Context, d letter) error {
	if d.at.Before(l.start.Add(-l.s.store.Keep() * 9 / 10)) {
		return nil
	}
	records, err := l.s.store.InboxByMessage(ctx, d.message)
	if err != nil {
		return err
	}
	for _, r := range records {
		if r.Key.Handler == d.handler {
			return nil
		}
	}
	l.find(Finding{
		Kind: FindNoRecord, Stream: d.stream, ID: d.id, Handler: d.handler, Count: 1, explains: d.stream == schema.Jobs,
		Detail: fmt.Sprintf("it is a dead letter of %s, whose inbox does not know it", d.handler),
	})
	return nil
}

// keys collects the messages that were published with an explicit idempotency key and that have left no trace in the
// database: they must be in a stream. Older ones may be events that have expired.
func (l *look) keys(ctx context.Context) error {
	if l.o.Quick {
		return nil
	}
	ttl := l.s.cfg.EventTTL
	if ttl <= 0 {
		ttl = 7 * 24 * time.Hour
	}
	since := l.start.Add(-ttl * 9 / 10)
	const page = 5000
	progress, done := l.counting("looking for messages with idempotency keys"), int64(0)
	for after := []byte(nil); ; {
		list, err := l.s.store.PublishedKeys(ctx, after, page)
		if err != nil {
			return err
		}
		var ids []string
		for _, k := range list {
			after = k.Hash
			done++
			progress(done)
			if k.At.After(since) {
				ids = append(ids, k.MessageID)
			}
		}
		if len(ids) > 0 {
			gone, err := l.s.store.Unplaced(ctx, ids)
			if err != nil {
				return err
			}
			for _, id := range gone {
				l.keyed[schema.RowID(id)] = id
			}
		}
		if len(list) < page {
			return nil
		}
	}
}

// lostKeys names those that were in no stream either. What was handled meanwhile has left a trace by now.
func (l *look) lostKeys(ctx context.Context) error {
	if len(l.keyed) == 0 || len(l.unrecorded) > 0 {
		return nil
	}
	ids := make([]string, 0, len(l.keyed))
	for _, id := range l.keyed {
		ids = append(ids, id)
	}
	gone, err := l.s.store.Unplaced(ctx, ids)
	if err != nil {
		return err
	}
	for _, id := range gone {
		l.find(Finding{Kind: FindMissing, Stream: schema.Jobs, ID: id, Count: 1, explains: true, Detail: "it was published with an idempotency key and is nowhere: neither waiting, nor in a stream, nor handled"})
	}
	return nil
}
