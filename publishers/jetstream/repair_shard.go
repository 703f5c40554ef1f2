package jetstream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millbridge/millbridge/schema"
)

// A patient is a shard under repair.
type patient struct {
	r       *Repairer
	info    schema.OutboxInfo
	ledger  schema.Shard
	stream  string
	subject string
	cursor  storedCursor
	stop    Stop
	detail  string

	sent, sentScheduled []schema.RowName // rows that the stream has
	park, parkScheduled []schema.RowName // rows that may have been sent, if they are to be parked
	unsure              []schema.RowName // all rows that may have been sent
}

// anew reports whether the shard gets a cursor that follows from the ledger alone.
func (x *patient) anew() bool {
	switch x.stop {
	case StopStreamBehind, StopStreamLost:
		return true
	case StopUnreadable:
		return x.cursor.Owner == "" // nor is there a former one
	}
	return false
}

// examine finds out why the shard stops, binding apart. A shard that somebody works on moves between two looks; what
// counts is a cursor that was read between two equal looks at the ledger.
func (x *patient) examine(ctx context.Context) error {
	s := x.r.cfg.Subjects
	x.stream = s.StreamName(x.ledger.Stream)
	x.subject = s.Cursor(x.ledger.Stream, x.info.ID, x.ledger.Generation, x.ledger.Shard)
	for range 5 {
		if err := x.compare(ctx); err != nil || x.stop == "" {
			return err
		}
		before := x.ledger
		if err := x.reload(ctx); err != nil {
			return err
		}
		if x.ledger.Batch == before.Batch && x.ledger.Owner == before.Owner {
			return nil
		}
	}
	x.stop, x.detail = "", "" // it moves, so it does not stand still
	return nil
}

func (x *patient) compare(ctx context.Context) error {
	var err error
	if x.cursor, err = readCursor(ctx, x.r.nc, x.stream, x.subject, x.r.cfg.AckTimeout); err != nil && codeOf(err) != codeNoStream {
		return err
	}
	known := true
	if x.cursor.Seq != 0 {
		if known, err = x.r.store.KnownOwner(ctx, x.ledger.ShardRef, x.cursor.Owner); err != nil {
			return err
		}
		known = known || x.cursor.Owner == x.ledger.Owner || x.cursor.Owner == x.ledger.LedgerOwner
	}
	x.stop, x.detail = stopFor(true, x.ledger, x.cursor, known)
	if x.stop == StopUnreadable {
		former, err := formerCursor(ctx, x.r.nc, x.stream, x.subject, x.cursor.Seq, x.r.cfg.AckTimeout)
		if err != nil {
			return err
		}
		if former.Seq != 0 && former.Batch >= x.ledger.Batch { // else it is older than it looks
			x.cursor.Cursor = former.Cursor
		}
	}
	return nil
}

// reload reads the ledger again.
func (x *patient) reload(ctx context.Context) error {
	ledgers, err := x.r.store.Shards(ctx, x.ledger.Stream)
	if err != nil {
		return err
	}
	for _, l := range ledgers {
		if l.ShardRef == x.ledger.ShardRef {
			x.ledger = l
		}
	}
	return nil
}

func (x *patient) name() string { return fmt.Sprintf("Shard %s/%d", x.ledger.Stream, x.ledger.Shard) }

// plan says what is wrong with the shard and how it is put right.
func (x *patient) plan(ctx context.Context, p *Plan) error {
	p.say("%s is stopped (%s): %s.", x.name(), x.stop, x.detail)
	if x.stop == StopUnreadable && !x.anew() {
		p.say("%s: the cursor before it, of batch %d, is still there and is written again in its place; what is no cursor goes. "+
			"Find out who writes to %s.", x.name(), x.cursor.Batch, x.subject)
		p.do(x.rewrite, x.facts()...)
		return nil
	}
	rows, err := x.rows(ctx)
	if err != nil {
		return err
	}
	rows = consider(p, rows)
	unsure, err := x.sort(ctx, p, rows)
	if err != nil {
		return err
	}
	switch x.stop {
	case StopDatabaseBehind:
		p.say("%s: of %d waiting rows the stream has %d, which are removed. The ledger is set to batch %d.", x.name(), len(rows), len(x.sent), x.cursor.Batch)
	case StopForeignOwner:
		p.say("%s: of %d waiting rows the stream has %d, which are removed. The cursor gets an owner of this database. "+
			"No other copy of it may run any more.", x.name(), len(rows), len(x.sent))
	case StopStreamBehind:
		p.say("%s: the stream misses %d messages that were sent after the state it was restored to. They are not in the database "+
			"any more and cannot be sent again. The cursor is set to batch %d.", x.name(), x.ledger.Total-x.cursor.Cursor.Total, x.ledger.Batch)
	case StopStreamLost:
		p.say("%s: of the %d messages it had sent, those that the stream still held are gone. They are not in the database any more "+
			"and cannot be sent again. The cursor is set to batch %d.", x.name(), x.ledger.Total, x.ledger.Batch)
	case StopUnreadable:
		p.say("%s: it is taken for a lost cursor: a new one of batch %d is written in its place. Find out who writes to %s.",
			x.name(), x.ledger.Batch, x.subject)
	}
	if n := len(x.sent); n > 0 && x.anew() {
		p.say("%s: of %d waiting rows the stream has %d, which are removed.", x.name(), len(rows), n)
	}
	x.decide(p, unsure)
	if x.stop == StopDatabaseBehind || x.stop == StopForeignOwner {
		if err := x.planElsewhere(ctx, p); err != nil {
			return err
		}
	}
	p.do(x.apply, x.facts()...)
	return nil
}

// facts are what the repair of a shard follows from and what becomes of its rows.
func (x *patient) facts() []any {
	return []any{
		x.ledger.ShardRef, x.stop, x.ledger.Batch, x.ledger.Total, x.ledger.CursorSeq, x.cursor.Seq, x.cursor.Batch,
		x.sent, x.sentScheduled, x.unsure, x.park, x.parkScheduled,
	}
}

// decide lists rows that may have been sent.
func (x *patient) decide(p *Plan, unsure []schema.Row) {
	if len(unsure) == 0 {
		return
	}
	for _, row := range unsure {
		x.unsure = append(x.unsure, row.Name())
		if p.Options.Ambiguous == Park {
			x.park = append(x.park, row.Name())
		}
	}
	p.say("%s: %d waiting rows may have been sent and handled already: %s.", x.name(), len(unsure), p.choice())
	for _, row := range unsure {
		p.Rows = append(p.Rows, AmbiguousRow{ShardRef: x.ledger.ShardRef, Seq: row.Seq, ID: messageID(row), Subject: row.Subject, CreatedAt: row.CreatedAt})
	}
}

// sort finds the rows that were sent: the cursor names them or the stream has them. It returns those for which nobody
// can tell any more.
func (x *patient) sort(ctx context.Context, p *Plan, rows []schema.Row) (unsure []schema.Row, err error) {
	named := make(map[schema.RowName]bool)
	for _, n := range x.cursor.Names() {
		named[n] = true
	}
	var rest []schema.Row
	for _, row := range rows {
		if named[row.Name()] {
			x.sent = append(x.sent, row.Name())
		} else {
			rest = append(rest, row)
		}
	}
	if x.stop == StopForeignOwner || len(rest) == 0 {
		return nil, nil // the ledger is not behind, so the cursor names all that was sent and is still here
	}
	held, err := x.held(ctx, p, rest)
	if err != nil {
		return nil, err
	}
	for _, row := range rest {
		switch {
		case held[row.ID]:
			x.sent = append(x.sent, row.Name())
		case x.maySent(row):
			unsure = append(unsure, row)
		}
	}
	return unsure, nil
}

// maySent reports whether a row that the stream does not hold may have been in it.
func (x *patient) maySent(row schema.Row) bool {
	if x.ledger.Stream == schema.Events {
		// Nothing takes events out of their stream but their end of life, and what a lost stream had counts as not sent.
		ttl := x.r.cfg.EventTTL
		return (x.stop == StopDatabaseBehind || x.stop == StopUnreadable) && ttl > 0 && time.Since(row.CreatedAt) > ttl-x.r.margin
	}
	if x.stop == StopDatabaseBehind {
		return row.CreatedAt.Before(x.cursor.Time.Add(x.r.margin)) // the shard has sent nothing since
	}
	return true
}

// rows lists all waiting rows of the shard.
func (x *patient) rows(ctx context.Context) ([]schema.Row, error) {
	const page = 1000
	var all []schema.Row
	var last schema.RowName
	for {
		rows, err := x.r.store.ShardRows(ctx, x.ledger.ShardRef, x.info.Shards[x.ledger.Stream], last, page)
		if err != nil {
			return nil, err
		}
		all = append(all, rows...)
		if len(rows) < page {
			return all, nil
		}
		last = rows[len(rows)-1].Name()
	}
}

// held returns which of the rows the stream holds, or held when the plan was made.
func (x *patient) held(ctx context.Context, p *Plan, rows []schema.Row) (map[schema.UUID]bool, error) {
	stream, err := x.r.js.Stream(ctx, x.stream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return p.remember(nil, rows), nil
	}
	if err != nil {
		return nil, err
	}
	oldest := slices.MinFunc(rows, func(a, b schema.Row) int { return a.CreatedAt.Compare(b.CreatedAt) })
	wanted := make(map[schema.UUID]bool, len(rows))
	for _, row := range rows {
		wanted[row.ID] = true
	}
	found, err := scanStream(ctx, stream, x.r.cfg.Subjects, schema.SourceOf(x.info.ID), oldest.CreatedAt.Add(-x.r.margin), wanted)
	return p.remember(found, rows), err
}

// apply fences off whoever had the shard before, and puts the database right. Wherever it ends before its end, the
// shard is stopped as before or knows what is left to remove.
func (x *patient) apply(ctx context.Context) error {
	token, err := x.take(ctx)
	if err != nil {
		return err
	}
	defer x.r.release(ctx, token)
	c, params := x.fence(token), schema.RepairParams{
		ShardRef: x.ledger.ShardRef, Owner: token, Remove: x.sent, Park: x.park, RemoveScheduled: x.sentScheduled, ParkScheduled: x.parkScheduled,
		Reason: "may have been sent before: " + string(x.stop),
	}
	params.Batch, params.Total, params.CursorSeq = c.Batch, c.Total, x.ledger.CursorSeq
	if x.anew() {
		// The new cursor ends the stop, so it comes last. The stream that the owner before knew is gone, and its fence.
		if err := x.r.store.RepairShard(ctx, params); err != nil {
			return err
		}
		params = schema.RepairParams{ShardRef: x.ledger.ShardRef, Owner: token, Batch: c.Batch, Total: c.Total}
	}
	if params.CursorSeq, err = x.r.writeCursor(ctx, x.stream, x.subject, c, x.cursor.Seq); err != nil {
		return err
	}
	return x.r.store.RepairShard(ctx, params)
}

// rewrite puts the former cursor in the place of what is none. If they still do not fit each other, the next plan says so.
func (x *patient) rewrite(ctx context.Context) error {
	token, err := x.take(ctx)
	if err != nil {
		return err
	}
	defer x.r.release(ctx, token)
	_, err = x.r.writeCursor(ctx, x.stream, x.subject, x.cursor.Cursor, x.cursor.Seq)
	return err
}

// take acquires the shard, if it is still as it was when it was examined.
func (x *patient) take(ctx context.Context) (token string, err error) {
	ledger, token, err := x.r.acquire(ctx, x.ledger.ShardRef)
	if err != nil {
		return "", err
	}
	now, err := readCursor(ctx, x.r.nc, x.stream, x.subject, x.r.cfg.AckTimeout)
	if err == nil && (now.Seq != x.cursor.Seq || ledger.Batch != x.ledger.Batch) {
		err = ErrPlanChanged
	}
	if err != nil {
		x.r.release(ctx, token)
	}
	return token, err
}

// fence returns the cursor to write. With a database that is behind it names what the one before named, and the shard
// stays stopped until the ledger has followed.
func (x *patient) fence(token string) schema.Cursor {
	if x.anew() {
		return schema.Cursor{Owner: token, Batch: x.ledger.Batch, Total: x.ledger.Total, Removed: x.ledger.Batch}
	}
	c := x.cursor.Cursor
	c.Owner = token
	return c
}

// messageID returns the id of a row's message, which is not always that of the row.
func messageID(row schema.Row) string {
	if h, err := schema.ParseHeader(row.Block()); err == nil && len(h[schema.HeaderID]) == 1 {
		return h[schema.HeaderID][0]
	}
	return row.ID.String()
}
