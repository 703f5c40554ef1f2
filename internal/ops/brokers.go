package ops

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/millbridge/millbridge/publishers/jetstream"
	"github.com/millbridge/millbridge/schema"
)

// Stream is one of our streams. Cursors are not counted as messages.
type Stream struct {
	Name          string           `json:"name"`
	Role          string           `json:"role"` // jobs, events or dead
	Missing       bool             `json:"missing"`
	Messages      uint64           `json:"messages"`
	Bytes         uint64           `json:"bytes"`
	MaxBytes      int64            `json:"max_bytes"` // -1: no limit
	Replicas      int              `json:"replicas"`
	OldestSeconds float64          `json:"oldest_seconds"` // age of the oldest message; 0 without messages
	Groups        map[string]int64 `json:"groups"`         // messages by target, by replayed handler or by event name

	waits     map[string]int64 // jobs and replays by the filter of the one handler that they wait for
	fault     error            // of its settings
	unguarded error            // nil if the consumer is there that keeps others from eating cursors
}

// Consumer is the durable consumer of a target, of a subscription or of a handler's replays.
type Consumer struct {
	Stream      string    `json:"stream"`
	Name        string    `json:"name"`
	Handlers    []string  `json:"handlers"` // targets it serves, handlers whose replays it serves, or events
	OnlyReplays bool      `json:"only_replays"`
	Waiting     uint64    `json:"waiting"` // messages not handed out yet
	InFlight    int       `json:"in_flight"`
	Redelivered int       `json:"redelivered"`
	Pulling     bool      `json:"pulling"` // somebody asks for messages right now
	LastActive  time.Time `json:"last_active"`

	filters   []string
	role      schema.Stream
	fromStart bool // it takes all messages that are in the stream
	marks     map[string]string
	floor     uint64    // everything up to this sequence is acked
	startSeq  uint64    // the first it takes
	since     time.Time // when the oldest message that it takes was stored, at the latest
	fault     string
}

// Unserved is a group of messages that no consumer takes.
type Unserved struct {
	Target   string `json:"target"`
	Where    string `json:"where"` // outbox, scheduled or stream
	Messages int64  `json:"messages"`
}

func (s *Service) streams(ctx context.Context) ([]Stream, error) {
	var out []Stream
	for _, role := range []string{string(schema.Jobs), string(schema.Events), "dead"} {
		st, err := s.stream(ctx, role)
		if err != nil {
			return out, fmt.Errorf("stream %s: %w", st.Name, err)
		}
		out = append(out, st)
	}
	return out, nil
}

func (s *Service) streamName(role string) string {
	if role == "dead" {
		return s.cfg.Subjects.DeadStreamName()
	}
	return s.cfg.Subjects.StreamName(schema.Stream(role))
}

func (s *Service) stream(ctx context.Context, role string) (Stream, error) {
	st := Stream{Role: role, Name: s.streamName(role), Groups: map[string]int64{}, waits: map[string]int64{}}
	handle, err := s.js.Stream(ctx, st.Name)
	if errors.Is(err, natsjs.ErrStreamNotFound) {
		st.Missing = true
		return st, nil
	}
	if err != nil {
		return st, err
	}
	info := handle.CachedInfo()
	st.fault = jetstream.CheckStream(info.Config, s.cfg.Subjects, s.js.Conn().MaxPayload())
	st.Bytes, st.Replicas, st.Messages = info.State.Bytes, info.Config.Replicas, info.State.Msgs
	st.MaxBytes = info.Config.MaxBytes
	if role == string(schema.Jobs) {
		st.unguarded = jetstream.CheckGuard(ctx, s.js, s.cfg.Subjects)
		if st.unguarded != nil && !errors.Is(st.unguarded, jetstream.ErrStreams) {
			return st, st.unguarded
		}
	}
	if role == "dead" { // one subject a letter: too many to list
		return st, nil
	}
	st.Messages = 0
	filters := []string{"jobs.>", "replay.>"}
	if role == string(schema.Events) {
		filters = []string{"events.>"}
	}
	for _, filter := range filters {
		counted, err := handle.Info(ctx, natsjs.WithSubjectFilter(s.cfg.Subjects.Full(filter)))
		if err != nil {
			return st, err
		}
		for subject, n := range counted.State.Subjects {
			st.Messages += n
			group := s.group(subject)
			st.Groups[group] += int64(n)
			if role == string(schema.Jobs) {
				st.waits[strings.Replace(s.cfg.Subjects.Full(filter), ">", group+".>", 1)] += int64(n)
			}
		}
		oldest, err := handle.GetMsg(ctx, max(info.State.FirstSeq, 1), natsjs.WithGetMsgSubject(s.cfg.Subjects.Full(filter)))
		switch {
		case err == nil:
			st.OldestSeconds = max(st.OldestSeconds, seconds(time.Since(oldest.Time)))
		case !errors.Is(err, natsjs.ErrMsgNotFound):
			return st, err
		}
	}
	return st, nil
}

// group names what a subject belongs to: the target of jobs, the handler of replays, the name of events.
func (s *Service) group(subject string) string {
	relative, _ := s.cfg.Subjects.Relative(subject)
	parts := strings.SplitN(relative, ".", 3)
	switch {
	case len(parts) < 3:
		return subject
	case parts[0] == "events":
		return parts[2]
	}
	return parts[1]
}

func (s *Service) consumers(ctx context.Context) ([]Consumer, error) {
	var out []Consumer
	for _, role := range schema.Streams {
		name := s.cfg.Subjects.StreamName(role)
		handle, err := s.js.Stream(ctx, name)
		if errors.Is(err, natsjs.ErrStreamNotFound) {
			continue // reported with the streams
		}
		if err != nil {
			return out, err
		}
		list := handle.ListConsumers(ctx)
		for info := range list.Info() {
			if info.Name == jetstream.GuardName || info.Config.Durable == "" {
				continue
			}
			out = append(out, s.consumer(role, info))
		}
		if err := list.Err(); err != nil {
			return out, err
		}
	}
	slices.SortFunc(out, func(a, b Consumer) int {
		return cmp.Or(strings.Compare(string(b.role), string(a.role)), strings.Compare(a.Name, b.Name)) // jobs first
	})
	return out, nil
}

func (s *Service) consumer(role schema.Stream, info *natsjs.ConsumerInfo) Consumer {
	c := Consumer{
		Stream: info.Stream, Name: info.Name, Waiting: info.NumPending, InFlight: info.NumAckPending,
		Redelivered: info.NumRedelivered, Pulling: info.NumWaiting > 0, filters: info.Config.FilterSubjects, role: role,
		fromStart: info.Config.DeliverPolicy == natsjs.DeliverAllPolicy,
	}
	c.marks, c.floor, c.startSeq = info.Config.Metadata, info.AckFloor.Stream, info.Config.OptStartSeq
	switch {
	case info.Config.DeliverPolicy == natsjs.DeliverByStartTimePolicy && info.Config.OptStartTime != nil:
		c.since = info.Config.OptStartTime.Add(startSlack)
	case info.Config.DeliverPolicy != natsjs.DeliverAllPolicy && info.Config.DeliverPolicy != natsjs.DeliverByStartSequencePolicy:
		c.since = info.Created.Add(startSlack)
	}
	if changed, err := time.Parse(time.RFC3339Nano, c.marks[schema.MarkFiltersSince]); err == nil && changed.Add(startSlack).After(c.since) {
		c.since = changed.Add(startSlack)
	}
	if info.Config.FilterSubject != "" {
		c.filters = []string{info.Config.FilterSubject}
	}
	c.OnlyReplays = len(c.filters) > 0
	for _, f := range c.filters {
		c.OnlyReplays = c.OnlyReplays && strings.HasPrefix(f, s.cfg.Subjects.Full("replay."))
		if g := s.group(f); !slices.Contains(c.Handlers, g) {
			c.Handlers = append(c.Handlers, g)
		}
	}
	c.fault = faultOf(info)
	c.LastActive = info.Created
	for _, last := range []*time.Time{info.Delivered.Last, info.AckFloor.Last} {
		if last != nil && last.After(c.LastActive) {
			c.LastActive = *last
		}
	}
	return c
}

// faultOf names the settings with which a consumer loses messages or hands none out.
func faultOf(info *natsjs.ConsumerInfo) string {
	c := info.Config
	var faults []string
	if c.AckPolicy != natsjs.AckExplicitPolicy {
		faults = append(faults, fmt.Sprintf("its ack policy is %v, want explicit", c.AckPolicy))
	}
	if c.MaxDeliver > 0 {
		faults = append(faults, fmt.Sprintf("its max deliver is %d, want -1: after so many tries nobody gets a message", c.MaxDeliver))
	}
	if c.InactiveThreshold > 0 {
		faults = append(faults, fmt.Sprintf("it vanishes when it is idle for %v", c.InactiveThreshold))
	}
	if c.HeadersOnly {
		faults = append(faults, "it hands out headers only")
	}
	if info.Paused {
		until := "it is paused"
		if c.PauseUntil != nil {
			until += " until " + c.PauseUntil.UTC().Format(time.RFC3339)
		}
		faults = append(faults, until)
	}
	return strings.Join(faults, "; ")
}

// takes reports whether the consumer takes all that matches the filter.
func (c Consumer) takes(filter string) bool {
	return len(c.filters) == 0 || jetstream.Covers(c.filters, filter)
}
