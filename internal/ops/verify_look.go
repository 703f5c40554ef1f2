package ops

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/millbridge/millbridge/schema"
)

// A look is one pass over everything.
type look struct {
	s      *Service
	o      VerifyOptions
	v      Verification
	info   schema.OutboxInfo
	source string // of our messages
	start  time.Time
	ttl    time.Duration // the shortest that events have; 0 if they stay for ever

	consumers  []Consumer
	accounts   schema.Accounts
	unrecorded []string               // consumers of jobs that keep no record here
	keyed      map[schema.UUID]string // ids of messages with explicit keys that have not been seen yet
	suspects   map[string]bool        // ids of jobs that were just sent and of which there is no trace
	replayed   map[string]int64       // by handler
	streams    map[schema.Stream]*StreamAccount
	missingAt  map[string]int // places of findings by id
}

func (s *Service) look(ctx context.Context, o VerifyOptions) (Verification, error) {
	l := &look{s: s, o: o, start: time.Now(), keyed: map[schema.UUID]string{}, suspects: map[string]bool{}, replayed: map[string]int64{}, streams: map[schema.Stream]*StreamAccount{}, missingAt: map[string]int{}}
	l.v.Looks = 1
	for _, role := range schema.Streams {
		l.streams[role] = &StreamAccount{Stream: role}
	}
	if err := s.store.Check(ctx); err != nil {
		return l.v, err
	}
	if err := s.natsUp(); err != nil {
		return l.v, err
	}
	var err error
	if l.info, err = s.store.Info(ctx); err != nil {
		return l.v, err
	}
	l.source, l.v.Outbox = schema.SourceOf(l.info.ID), l.info.ID
	for _, step := range []func(ctx context.Context) error{l.rows, l.keys, l.jobs, l.events, l.dead, l.lostKeys, l.missing, l.handlers} {
		if err := step(ctx); err != nil {
			return l.v, err
		}
	}
	for _, role := range schema.Streams {
		l.v.Streams = append(l.v.Streams, *l.streams[role])
	}
	return l.v, nil
}

// find notes a finding. A message may be found missing in two ways.
func (l *look) find(f Finding) {
	if f.Kind == FindMissing {
		if i, ok := l.missingAt[f.ID]; ok {
			l.v.Findings[i].guess = l.v.Findings[i].guess && f.guess
			return
		}
		l.missingAt[f.ID] = len(l.v.Findings)
	}
	l.v.Findings = append(l.v.Findings, f)
}

func (l *look) note(format string, args ...any) {
	if n := fmt.Sprintf(format, args...); !slices.Contains(l.v.Notes, n) {
		l.v.Notes = append(l.v.Notes, n)
	}
}

// counting reports progress now and then.
func (l *look) counting(step string) func(int64) {
	var mu sync.Mutex
	last := time.Now()
	return func(done int64) {
		if l.o.Progress == nil || done%256 != 0 {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		if time.Since(last) > time.Second {
			last = time.Now()
			l.o.Progress(step, done)
		}
	}
}

// rows counts what is not in its stream yet.
func (l *look) rows(ctx context.Context) error {
	list, err := l.s.store.Backlogs(ctx)
	if err != nil {
		return err
	}
	for _, b := range list {
		a := l.streams[b.Stream]
		if a == nil {
			continue
		}
		switch b.Where {
		case InOutbox:
			a.Pending += b.Rows
		case InScheduled:
			a.Scheduled += b.Rows
		case InParked:
			a.Parked += b.Rows
		}
	}
	return nil
}

// stream returns a stream; nil if it is missing, which is fine as long as nothing was sent.
func (l *look) stream(ctx context.Context, role schema.Stream) (natsjs.Stream, error) {
	name := l.s.cfg.Subjects.StreamName(role)
	stream, err := l.s.js.Stream(ctx, name)
	if !errors.Is(err, natsjs.ErrStreamNotFound) {
		return stream, err
	}
	shards, err := l.s.store.Shards(ctx, role)
	if err != nil {
		return nil, err
	}
	var sent int64
	for _, sh := range shards {
		sent += sh.Total
	}
	if l.streams[role].Sent = sent; sent > 0 {
		l.find(Finding{Kind: FindTotal, Stream: role, Count: sent, scope: "stream", Detail: fmt.Sprintf("stream %s is missing, the ledger says that %d were sent; see `millbridge status`", name, sent)})
	}
	return nil, nil
}

// ours reports whether a message says that this outbox has sent it, and gives its id, as databases know it.
func (l *look) ours(m *stored) (id string, ours bool) {
	if id, _ = schema.WatermillHeader(m.Header); id != "" {
		id = schema.UsableID(id)
	}
	source := m.Header[schema.HeaderSource]
	return id, len(source) == 1 && source[0] == l.source
}

// jobs accounts for the stream of jobs. It is read before the database: a message is noted there before it leaves the
// stream, so each is seen in one of the two, and what is seen in both is told by its sequence.
func (l *look) jobs(ctx context.Context) error {
	stream, err := l.stream(ctx, schema.Jobs)
	if err != nil {
		return err
	}
	if l.consumers, err = l.s.consumers(ctx); err != nil {
		return err
	}
	for _, c := range l.consumers {
		if c.role == schema.Jobs && (c.marks[schema.MarkInbox] != l.info.ID || c.marks[schema.MarkUnrecorded] == "true") {
			l.unrecorded = append(l.unrecorded, c.Name)
		}
	}
	var c cut
	var here scanned
	if stream != nil {
		found, err := l.s.ledgers(ctx, schema.Jobs, l.info)
		if err != nil {
			return err
		}
		l.v.Findings = append(l.v.Findings, found...)
		if c, err = l.s.cutOf(ctx, stream, schema.Jobs, l.info.ID); err != nil {
			return err
		}
		if here, err = l.scanJobs(ctx, stream, c); err != nil {
			return err
		}
	}
	if l.accounts, err = l.s.store.Accounts(ctx, schema.AccountsParams{Until: c.seq, InStream: here.sent}); err != nil {
		return err
	}
	if stream == nil {
		return nil
	}
	a := l.streams[schema.Jobs]
	a.Sent, a.Cut, a.InStream, a.Foreign = c.sent, c.seq, int64(len(here.sent)), here.foreign
	a.Accepted, a.Dropped = l.accounts.Accepted[schema.Jobs], l.accounts.Dropped[schema.Jobs]
	for _, n := range l.accounts.Settled {
		a.Settled += n
	}
	a.Settled -= l.accounts.Overlap
	diff := a.Sent - a.InStream - a.Settled - a.Accepted
	if len(l.unrecorded) > 0 && diff >= 0 {
		a.Unrecorded = diff
		l.note("jobs are handled without a record here by %s: a job that is lost cannot be told from one that is handled", strings.Join(l.unrecorded, ", "))
		diff = 0
	}
	if diff != 0 {
		l.find(l.total(a, diff))
		if diff > 0 {
			return l.suspect(ctx, c, here)
		}
	}
	return nil
}

func (l *look) total(a *StreamAccount, diff int64) Finding {
	f := Finding{Kind: FindTotal, Stream: a.Stream, Count: diff}
	sum := fmt.Sprintf("%d were sent up to sequence %d, found are %d in the stream", a.Sent, a.Cut, a.InStream)
	if a.Stream == schema.Jobs {
		sum += fmt.Sprintf(" and %d settled", a.Settled)
	}
	if a.Accepted != 0 {
		sum += fmt.Sprintf(" and %d accepted", a.Accepted)
	}
	f.Detail = sum
	return f
}

// scanned is what a scan of a stream has found of our messages.
type scanned struct {
	sent    []schema.Sent // by sequence
	foreign int64
	rows    map[schema.UUID]bool // of the rows that the cursors name, those that are in the stream
}

// scanJobs reads the stream up to the cut.
func (l *look) scanJobs(ctx context.Context, stream natsjs.Stream, c cut) (scanned, error) {
	info, err := stream.Info(ctx)
	if err != nil {
		return scanned{}, err
	}
	last := max(c.seq, info.State.LastSeq) // copies come after the cut
	order := newOrdering(c)
	type part struct {
		sent    []schema.Sent
		foreign int64
	}
	parts := make([]part, readers+1)
	ids := newTwice()
	var mu sync.Mutex
	err = l.s.sweep(ctx, l.s.cfg.Subjects.StreamName(schema.Jobs), max(info.State.FirstSeq, 1), last, l.counting("reading the stream of jobs"),
		func(n int, m *stored) error {
			relative, _ := l.s.cfg.Subjects.Relative(m.Subject)
			if strings.HasPrefix(relative, "cursor.") {
				return nil
			}
			id, ours := l.ours(m)
			if !ours {
				parts[n].foreign++
				return nil
			}
			first := id
			if of := m.Header[schema.HeaderReplayOf]; len(of) == 1 {
				first = schema.UsableID(of[0])
			}
			if m.Seq <= c.seq {
				parts[n].sent = append(parts[n].sent, schema.Sent{Sequence: m.Seq, MessageID: first})
			}
			mu.Lock()
			defer mu.Unlock()
			row := schema.RowID(id)
			delete(l.keyed, row)
			if ids.seen(row) {
				l.find(Finding{Kind: FindDoubled, Stream: schema.Jobs, ID: id, Sequence: m.Seq, Count: 1, explains: true, Detail: "it is in the stream twice"})
			}
			order.add(relative, m)
			return nil
		})
	if err != nil {
		return scanned{}, err
	}
	out := scanned{rows: order.found}
	for _, p := range parts {
		out.sent = append(out.sent, p.sent...)
		out.foreign += p.foreign
	}
	for _, f := range order.check(schema.Jobs) {
		l.find(f)
	}
	return out, nil
}

// suspect looks for messages that the cursors have just sent and of which the database has no trace, when there is
// something missing. Only these can be named; cursors forget what is done with.
func (l *look) suspect(ctx context.Context, c cut, here scanned) error {
	var ids []string
	for _, p := range c.cursors {
		for _, n := range p.Names() {
			if !here.rows[n.ID] && n.ID[6]>>4 == 7 { // others are made from ids that cannot be told from them
				ids = append(ids, n.ID.String())
			}
		}
	}
	if len(ids) == 0 {
		return nil
	}
	gone, err := l.s.store.Unplaced(ctx, ids)
	if err != nil {
		return err
	}
	for _, id := range gone {
		l.suspects[id] = true
	}
	return nil
}

// missing names the suspects that are no dead letters either.
func (l *look) missing(context.Context) error {
	for _, id := range slices.Sorted(maps.Keys(l.suspects)) {
		l.find(Finding{Kind: FindMissing, Stream: schema.Jobs, ID: id, Count: 1, guess: true, Detail: "it was sent and is neither in the stream nor handled (a replay has an id of its own)"})
	}
	return nil
}

// handlers tells for each handler what it has.
func (l *look) handlers(context.Context) error {
	list := map[string]*HandlerAccount{}
	get := func(name string) *HandlerAccount {
		if list[name] == nil {
			list[name] = &HandlerAccount{Name: name}
		}
		return list[name]
	}
	for _, c := range l.consumers {
		h := get(c.Name)
		h.Waiting += int64(c.Waiting)
		h.InFlight += int64(c.InFlight)
		h.Subscription = h.Subscription || c.role == schema.Events
	}
	for name, states := range l.accounts.Inbox {
		h := get(name)
		h.Done, h.Dead, h.Dropped = states[schema.InboxDone], states[schema.InboxDead], states[schema.InboxDropped]
	}
	for name, n := range l.accounts.Pruned {
		get(name).Forgotten = n
	}
	for name, n := range l.replayed {
		get(name).Replayed = n
	}
	for _, name := range slices.Sorted(maps.Keys(list)) {
		l.v.Handlers = append(l.v.Handlers, *list[name])
	}
	return nil
}
