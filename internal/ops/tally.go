package ops

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/millbridge/millbridge/schema"
)

// Tally shows that nothing was lost and nothing doubled: what the ledger says was sent must be found again in the
// streams, the inbox and the dead letters. It covers one outbox whose messages are all in the streams it is compared
// with; events that have expired, messages of others and handlers that keep no inbox make it differ.
type Tally struct {
	Balanced bool    `json:"balanced"` // all checks hold and nothing is in motion
	Settled  bool    `json:"settled"`  // nothing is in motion
	Waiting  Waiting `json:"waiting"`

	SentJobs   int64          `json:"sent_jobs"` // by the ledger; replays are jobs
	SentEvents int64          `json:"sent_events"`
	Handlers   []HandlerTally `json:"handlers"`
	Dead       Dead           `json:"dead"`
	Checks     []Check        `json:"checks"`
}

// Waiting counts what is in motion.
type Waiting struct {
	Outbox    int64 `json:"outbox"`
	Scheduled int64 `json:"scheduled"`
	Parked    int64 `json:"parked"`
	Jobs      int64 `json:"jobs"`    // in the stream of jobs
	Handing   int64 `json:"handing"` // events that a subscription has not settled
}

// HandlerTally counts the inbox of one handler.
type HandlerTally struct {
	Name         string `json:"name"`
	Subscription bool   `json:"subscription"`
	Running      int64  `json:"running"`
	Done         int64  `json:"done"`
	Dead         int64  `json:"dead"`
	Dropped      int64  `json:"dropped"`
	Replays      int64  `json:"replays"` // letters of this handler that were put back
}

func (h HandlerTally) settled() int64 { return h.Done + h.Dead + h.Dropped }

// Check is one equation of a [Tally].
type Check struct {
	Name  string `json:"name"`
	Left  int64  `json:"left"`
	Right int64  `json:"right"`
	How   string `json:"how"` // what was added up
	OK    bool   `json:"ok"`
}

// Tally reads everything back and compares. What it reads is not of one moment: a difference counts when it is there
// again a little later.
func (s *Service) Tally(ctx context.Context) (Tally, error) {
	const looks, pause = 5, 50 * time.Millisecond
	var before Tally
	for look := 1; ; look++ {
		t, err := s.tally(ctx)
		if err != nil {
			return t, fmt.Errorf("tally: %w", err)
		}
		if !t.Settled || t.Balanced || look == looks || slices.Equal(t.Checks, before.Checks) {
			return t, nil
		}
		before = t
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return t, fmt.Errorf("tally: %w", ctx.Err())
		}
	}
}

func (s *Service) tally(ctx context.Context) (Tally, error) {
	var t Tally
	shards, err := s.shards(ctx)
	if err != nil {
		return t, err
	}
	for _, sh := range shards {
		if sh.Stream == schema.Jobs {
			t.SentJobs += sh.Sent
		} else {
			t.SentEvents += sh.Sent
		}
	}
	backlogs, err := s.backlogs(ctx)
	if err != nil {
		return t, err
	}
	counts, err := s.store.InboxCounts(ctx)
	if err != nil {
		return t, err
	}
	if err := s.natsUp(); err != nil {
		return t, err
	}
	streams, err := s.streams(ctx)
	if err != nil {
		return t, err
	}
	consumers, err := s.consumers(ctx)
	if err != nil {
		return t, err
	}
	info, err := s.store.Info(ctx)
	if err != nil {
		return t, err
	}
	b := newBooks(counts, consumers, backlogs)
	b.source = schema.SourceOf(info.ID)
	if err := s.scanDead(ctx, func(l letter) { t.Dead.add(l); b.letter(l) }); err != nil {
		return t, err
	}
	b.waiting(&t.Waiting, consumers)
	var events map[string]int64
	for _, st := range streams {
		switch st.Role {
		case string(schema.Jobs):
			t.Waiting.Jobs = int64(st.Messages)
		case string(schema.Events):
			b.storedEvents, events = int64(st.Messages), st.Groups
		}
	}
	t.Handlers = b.list()
	t.Settled = t.Waiting == Waiting{}
	t.Checks = append(b.checks(t), b.subscriptions(consumers, events)...)
	t.Balanced = t.Settled && !slices.ContainsFunc(t.Checks, func(c Check) bool { return !c.OK })
	return t, nil
}

// books collects the entries of a tally by handler.
type books struct {
	handlers     map[string]*HandlerTally
	backlogs     []Backlog
	storedEvents int64
	source       string // of our messages
	unkeyed      int64  // letters of jobs without an inbox row of their own
	openUnkeyed  int64  // those that wait for an operator
}

func newBooks(counts map[string]map[schema.InboxState]int64, consumers []Consumer, backlogs []Backlog) *books {
	b := &books{handlers: map[string]*HandlerTally{}, backlogs: backlogs}
	for _, c := range consumers {
		if c.role == schema.Events {
			b.handler(c.Name).Subscription = true
		}
	}
	for name, states := range counts {
		h := b.handler(name)
		h.Running, h.Done = states[schema.InboxRunning], states[schema.InboxDone]
		h.Dead, h.Dropped = states[schema.InboxDead], states[schema.InboxDropped]
	}
	return b
}

func (b *books) handler(name string) *HandlerTally {
	if b.handlers[name] == nil {
		b.handlers[name] = &HandlerTally{Name: name}
	}
	return b.handlers[name]
}

func (b *books) letter(l letter) {
	h := b.handler(l.handler)
	if l.cause == schema.CauseUndecodable || l.cause == schema.CauseKeyReused {
		if l.stream == schema.Jobs && l.source == b.source {
			b.unkeyed++
		}
		if l.tombstone == "" {
			b.openUnkeyed++
		}
		return
	}
	if l.tombstone == string(schema.InboxDropped) || l.tombstone == "" {
		return
	}
	h.Replays++
}

func (b *books) waiting(w *Waiting, consumers []Consumer) {
	for _, log := range b.backlogs {
		switch log.Where {
		case "outbox":
			w.Outbox += log.Rows
		case "scheduled":
			w.Scheduled += log.Rows
		case "parked":
			w.Parked += log.Rows
		}
	}
	for _, c := range consumers {
		if c.role == schema.Events {
			w.Handing += int64(c.Waiting) + int64(c.InFlight)
		}
	}
}

func (b *books) list() []HandlerTally {
	var list []HandlerTally
	for _, name := range slices.Sorted(maps.Keys(b.handlers)) {
		list = append(list, *b.handlers[name])
	}
	return list
}

// checks writes the equations down. Each life of a message in the stream of jobs was sent once: the life that the inbox
// has settled, and those before it that ended in a letter that was replayed. A subscription's first life was an event.
func (b *books) checks(t Tally) []Check {
	jobs := t.Waiting.Jobs + b.unkeyed
	how := []string{fmt.Sprintf("%d in the stream", t.Waiting.Jobs)}
	var dead, settled, replays int64
	for _, h := range t.Handlers {
		dead += h.Dead
		replays += h.Replays
		if !h.Subscription {
			settled += h.settled()
		}
	}
	jobs += settled + replays
	how = append(how, fmt.Sprintf("%d settled", settled), fmt.Sprintf("%d replayed", replays))
	if b.unkeyed > 0 {
		how = append(how, fmt.Sprintf("%d undecodable", b.unkeyed))
	}
	if unsent := b.unsentReplays(); unsent > 0 {
		jobs -= unsent
		how = append(how, fmt.Sprintf("less %d replays not sent", unsent))
	}
	return []Check{
		check("jobs sent are waiting or settled", t.SentJobs, jobs, strings.Join(how, " + ")),
		check("events sent are in the stream", t.SentEvents, b.storedEvents, fmt.Sprintf("%d in the stream", b.storedEvents)),
		check("given up is in the poison queue", dead+b.openUnkeyed, t.Dead.Letters, fmt.Sprintf("%d in the queue", t.Dead.Letters)),
	}
}

// subscriptions compares what each subscription has in the inbox with the events that match it.
func (b *books) subscriptions(consumers []Consumer, events map[string]int64) []Check {
	var list []Check
	for _, c := range consumers {
		if c.role != schema.Events || !c.fromStart {
			continue // from where on it takes events is not known
		}
		var matching int64
		for name, n := range events {
			if slices.ContainsFunc(c.Handlers, func(filter string) bool { return matches(filter, name) }) {
				matching += n
			}
		}
		h := b.handler(c.Name)
		known := h.settled() + h.Running
		list = append(list, check("events reached "+c.Name, matching, known, fmt.Sprintf("%d in its inbox", known)))
	}
	return list
}

// matches reports whether an event name fits a filter: "*" stands for one token, a final ">" for the rest.
func matches(filter, name string) bool {
	want, have := strings.Split(filter, "."), strings.Split(name, ".")
	for i, token := range want {
		switch {
		case i == len(have):
			return false
		case token == ">":
			return true
		case token != "*" && token != have[i]:
			return false
		}
	}
	return len(want) == len(have)
}

// unsentReplays counts the replays for subscriptions that wait in the database: their letter is marked already.
func (b *books) unsentReplays() int64 {
	var n int64
	for _, log := range b.backlogs {
		if h := b.handlers[log.Group]; log.Stream == schema.Jobs && h != nil && h.Subscription {
			n += log.Rows
		}
	}
	return n
}

func check(name string, left, right int64, how string) Check {
	return Check{name, left, right, how, left == right}
}
