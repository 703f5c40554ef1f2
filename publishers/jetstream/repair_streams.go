package jetstream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millbridge/millbridge/schema"
)

// sequenceMargin is added to the highest cursor sequence that a ledger knows: an owner may have written cursors after its
// last removal.
const sequenceMargin = 1 << 20

// planRecreated sees to a stream that has lost our cursors. Its sequences must go on above those that a former owner may
// still expect, or else the fence would let that owner pass. A stream that is still the one of the last removals has
// given them all out. That it has come as far again proves nothing: others may have filled a new one.
func (r *Repairer) planRecreated(ctx context.Context, p *Plan, stream schema.Stream, lost []*patient) error {
	name := r.cfg.Subjects.StreamName(stream)
	var above uint64
	for _, x := range lost {
		above = max(above, x.ledger.CursorSeq)
	}
	first := above + sequenceMargin
	found, err := r.js.Stream(ctx, name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		p.say("Stream %s is missing; whatever it still held is gone. It is created with sequences from %d on.", name, first)
		p.do(func(ctx context.Context) error { return r.createStream(ctx, name, first) }, "create", name, first)
		r.askRecreated(p, name)
		return nil
	}
	if err != nil {
		return err
	}
	info, err := found.Info(ctx)
	if err != nil {
		return err
	}
	p.facts = append(p.facts, fmt.Sprint(name, info.Created))
	if info.State.LastSeq+1 >= first || info.State.Msgs > 0 && !r.recreated(info.Created, lost) {
		if slices.ContainsFunc(lost, func(x *patient) bool { return x.stop == StopStreamLost }) {
			p.say("Stream %s has lost our cursors. It holds %d messages, which stay.", name, info.State.Msgs)
			r.askRecreated(p, name)
		}
		return nil
	}
	if info.State.Msgs == 0 {
		p.say("Stream %s is empty. Its sequences go on at %d, above those that a former owner may expect.", name, first)
		p.do(func(ctx context.Context) error { return raise(ctx, found, first) }, "raise", name, first, info.State.LastSeq)
		r.askRecreated(p, name)
		return nil
	}
	others, err := r.foreignCursors(ctx, found, stream)
	switch {
	case err != nil:
		return err
	case len(others) > 0:
		p.ask("stream %s was recreated and other outboxes already use it (%s), so it cannot be emptied. Stop all forwarders of this "+
			"database for longer than their lease, then choose another prefix or move the others away", name, strings.Join(others, ", "))
		return nil
	}
	p.say("Stream %s was recreated and holds %d messages, which are deleted: its sequences must begin at %d, above those that a former owner may expect.",
		name, info.State.Msgs, first)
	// What came in since the plan would be deleted as well, unseen.
	p.do(func(ctx context.Context) error {
		for _, x := range lost {
			x.cursor.Seq = 0 // what is on its subject goes as well
		}
		return raise(ctx, found, first)
	}, "raise", name, first, info.State.LastSeq)
	r.askRecreated(p, name)
	return nil
}

// recreated reports whether a stream may have been created after a shard's last removal, of what an older one had taken.
func (r *Repairer) recreated(created time.Time, lost []*patient) bool {
	return slices.ContainsFunc(lost, func(x *patient) bool { return !created.Add(r.margin).Before(x.ledger.UpdatedAt) })
}

// planMissing sees to a stream that is missing although no shard has sent anything into it, or none ever does.
func (r *Repairer) planMissing(ctx context.Context, p *Plan, name string) error {
	_, err := r.js.Stream(ctx, name)
	if !errors.Is(err, jetstream.ErrStreamNotFound) {
		return err
	}
	p.say("Stream %s is missing; whatever it held is gone. It is created.", name)
	p.do(func(ctx context.Context) error { return r.createStream(ctx, name, 0) }, "create", name)
	r.askRecreated(p, name)
	return nil
}

func (r *Repairer) askRecreated(p *Plan, name string) {
	if !p.Options.StreamRecreated {
		p.ask("stream %s was lost: say that it was recreated and that its loss is accepted (--stream-recreated)", name)
	}
}

// createStream creates a missing stream, and no other: each has its own first sequence.
func (r *Repairer) createStream(ctx context.Context, name string, first uint64) error {
	streams := r.new
	streams.maxPayload = r.js.Conn().MaxPayload()
	for _, cfg := range wantedStreams(streams) {
		if cfg.Name != name {
			continue
		}
		if !r.cfg.faults.lowSequences {
			cfg.FirstSeq = first
		}
		if _, err := r.js.CreateStream(ctx, cfg); err != nil {
			return fmt.Errorf("create stream %s: %w", cfg.Name, err)
		}
	}
	if name != r.cfg.Subjects.StreamName(schema.Jobs) {
		return nil
	}
	return ensureGuard(ctx, r.js, r.cfg.Subjects)
}

// raise empties a stream so that its next sequence is first.
func raise(ctx context.Context, stream jetstream.Stream, first uint64) error {
	if err := stream.Purge(ctx, jetstream.WithPurgeSequence(first)); err != nil {
		return fmt.Errorf("raise the stream's sequences: %w", err)
	}
	info, err := stream.Info(ctx)
	if err != nil {
		return fmt.Errorf("raise the stream's sequences: %w", err)
	}
	if info.State.LastSeq+1 < first {
		return fmt.Errorf("raise the stream's sequences: the last one is %d, want %d", info.State.LastSeq, first-1)
	}
	return nil
}

// foreignCursors lists the ids of other outboxes that have cursors in a stream.
func (r *Repairer) foreignCursors(ctx context.Context, found jetstream.Stream, stream schema.Stream) ([]string, error) {
	info, err := r.store.Info(ctx)
	if err != nil {
		return nil, err
	}
	prefix := r.cfg.Subjects.Full("cursor." + string(stream) + ".")
	subjects, err := cursorsOf(ctx, found, prefix+">")
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, s := range subjects {
		if id, _, _ := strings.Cut(strings.TrimPrefix(s, prefix), "."); id != info.ID {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// planForget removes the cursors of an outbox whose database is gone for good.
func (r *Repairer) planForget(ctx context.Context, p *Plan) error {
	info, err := r.store.Info(ctx)
	if err != nil {
		return err
	}
	id := p.Options.Forget
	if id == info.ID {
		return fmt.Errorf("outbox %s is the one of this database", id)
	}
	if strings.ContainsAny(id, ".*> ") {
		return fmt.Errorf("%q is not the id of an outbox", schema.OneLine(id))
	}
	for _, stream := range schema.Streams {
		name := r.cfg.Subjects.StreamName(stream)
		found, err := r.js.Stream(ctx, name)
		if err != nil {
			return fmt.Errorf("look for stream %s: %w", name, err)
		}
		filter := r.cfg.Subjects.Full(fmt.Sprintf("cursor.%s.%s.>", stream, id))
		subjects, err := cursorsOf(ctx, found, filter)
		if err != nil {
			return err
		}
		for _, subject := range subjects {
			c, err := readCursor(ctx, r.nc, name, subject, r.cfg.AckTimeout)
			if err != nil {
				return err
			}
			p.facts = append(p.facts, fmt.Sprint(subject, c.Seq)) // one that moves belongs to a database that lives
			if c.bad != nil {
				p.say("Stream %s: what stands in the place of the cursor %s, and is none, is deleted.", name, subject)
				continue
			}
			p.say("Stream %s: the cursor %s of batch %d, written %s, is deleted. Should its database come back, its shard is stopped.",
				name, subject, c.Batch, c.Time.UTC().Format("2006-01-02 15:04:05 MST"))
		}
		if len(subjects) > 0 {
			p.do(func(ctx context.Context) error {
				return found.Purge(ctx, jetstream.WithPurgeSubject(filter)) // never without a subject: all other cursors would go
			}, "forget", filter)
		}
	}
	return nil
}

// planClone gives this database an outbox of its own. The copies that are to be parked go first: under the new id nothing
// would tell them from rows of this database.
func (r *Repairer) planClone(ctx context.Context, p *Plan, info schema.OutboxInfo) error {
	p.say("This database gets an outbox id of its own; %s stays with the original.", info.ID)
	for _, stream := range schema.Streams {
		ledgers, err := r.store.Shards(ctx, stream)
		if err != nil {
			return err
		}
		for _, ledger := range ledgers {
			x := &patient{r: r, info: info, ledger: ledger, stop: StopClone}
			if err := x.planCopies(ctx, p); err != nil {
				return err
			}
		}
	}
	p.do(func(ctx context.Context) error { return r.newOutbox(ctx, info) }, "clone", info.ID)
	if len(p.Rows) > 0 && p.Options.Ambiguous == "" {
		p.ask("%d waiting rows were copied with the database and the original sends them too: choose whether to %s or to %s them here",
			len(p.Rows), Resend, Park)
	}
	return nil
}

// planCopies decides on the rows of a shard. The original sends its own copies of all of them.
func (x *patient) planCopies(ctx context.Context, p *Plan) error {
	rows, err := x.rows(ctx)
	if err != nil {
		return err
	}
	x.decide(p, consider(p, rows))
	scheduled, err := x.scheduled(ctx)
	if err != nil {
		return err
	}
	var waiting []schema.Row
	for _, row := range consider(p, scheduled) {
		waiting = append(waiting, row.Row)
	}
	x.decideScheduled(p, waiting, "were copied as well")
	p.facts = append(p.facts, fmt.Sprint(x.ledger.ShardRef, x.unsure))
	if len(x.park)+len(x.parkScheduled) > 0 {
		p.do(x.parkCopies, "park")
	}
	return nil
}

// newOutbox changes the id while nobody forwards under the old one.
func (r *Repairer) newOutbox(ctx context.Context, info schema.OutboxInfo) error {
	for _, stream := range schema.Streams {
		for i := range info.Shards[stream] {
			_, token, err := r.acquire(ctx, schema.ShardRef{Stream: stream, Generation: info.Generation[stream], Shard: i})
			if err != nil {
				return err
			}
			defer r.release(ctx, token)
		}
	}
	_, err := r.store.NewOutbox(ctx)
	return err
}

// parkCopies sets rows aside that the original sends, and leaves the ledger as it is.
func (x *patient) parkCopies(ctx context.Context) error {
	ledger, token, err := x.r.acquire(ctx, x.ledger.ShardRef)
	if err != nil {
		return err
	}
	defer x.r.release(ctx, token)
	return x.r.store.RepairShard(ctx, schema.RepairParams{
		ShardRef: x.ledger.ShardRef, Owner: token, Batch: ledger.Batch, Total: ledger.Total, CursorSeq: ledger.CursorSeq,
		Park: x.park, ParkScheduled: x.parkScheduled, Reason: "copied with the database: the original sends it",
	})
}
