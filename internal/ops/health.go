package ops

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millbridge/millbridge/schema"
)

const (
	// quiet is how long a consumer with messages may do nothing before nobody is thought to be there: two heartbeats.
	quiet = 10 * time.Second
	// busy is the same for one that has messages out: all its handlers may be at work, and then it asks for no more.
	busy = 45 * time.Second
	// overdue is how old a row may get in the outbox before something is thought to be wrong.
	overdue = time.Minute
	// fullPercent of its bytes is how much a stream holds that is called full.
	fullPercent = 95
)

// judge decides from what was found whether things are as they should be.
func (s *Service) judge(st *Status, now time.Time) {
	reason := func(format string, args ...any) { st.Reasons = append(st.Reasons, fmt.Sprintf(format, args...)) }
	note := func(format string, args ...any) { st.Notes = append(st.Notes, fmt.Sprintf(format, args...)) }

	st.Notes = append(st.Notes, st.Database.weak...)
	if st.Database.Outbox != "" && !st.Database.Bound {
		reason("this database is a copy or was restored elsewhere: nothing is forwarded until `millbridge repair` is run")
	}
	for _, stop := range st.Stops {
		reason("shard %d of %s is stopped (%s): %s. %s", stop.Shard, stop.Stream, stop.Stop, stop.Detail, stop.Hint)
	}
	waiting := map[schema.Stream]int64{}
	for _, b := range st.Backlogs {
		switch b.Where {
		case "outbox":
			waiting[b.Stream] += b.Rows
			if b.OldestSeconds > overdue.Seconds() {
				reason("rows of %s in the outbox: %d, the oldest for %v", b.Group, b.Rows, time.Duration(b.OldestSeconds)*time.Second)
			}
		case "parked":
			note("parked rows of %s: %d; see `millbridge poison list`", b.Group, b.Rows)
		}
	}
	for _, stock := range st.Stocks {
		judgeStock(stock, reason, note)
	}
	for _, stream := range st.Streams {
		s.judgeStream(st, stream, waiting, reason)
	}
	if s.cfg.Leases {
		for _, stream := range schema.Streams {
			if alone := unforwarded(st, stream); len(alone) > 0 && waiting[stream] > 0 {
				reason("nobody forwards shard %s of %s, rows of %s waiting: %d; start `millbridge run`",
					strings.Join(alone, ", "), stream, stream, waiting[stream])
			}
		}
	}
	open := map[string]bool{}
	for _, c := range st.Circuits {
		if c.Open {
			open[c.Handler] = true
			reason("%s %s", c.Handler, c.why)
		}
	}
	for _, c := range st.Consumers {
		if c.fault != "" {
			reason("consumer %s of stream %s: %s", c.Name, c.Stream, c.fault)
		}
		left, patience := c.Waiting, quiet
		if c.InFlight > 0 {
			left, patience = left+uint64(c.InFlight), busy
		}
		if slices.ContainsFunc(c.Handlers, func(h string) bool { return open[h] }) {
			continue // all that it may have in hand waits; that has been said
		}
		if left > 0 && !c.Pulling && now.Sub(c.LastActive) > patience {
			reason("not consuming: nobody has asked for messages of %s since %s, waiting: %d", c.Name, c.LastActive.UTC().Format(time.RFC3339), left)
		}
	}
	s.unserved(st)
	for _, u := range st.Unserved {
		reason("target %s has no consumer, messages waiting (%s): %d; start a process that knows the target", u.Target, u.Where, u.Messages)
	}
	if n := st.Dead.Letters; n > 0 {
		note("dead letters: %s; see `millbridge poison list`", st.Dead.text(n))
	}
	st.OK = len(st.Reasons) == 0
	st.Reasons, st.Notes = orEmpty(st.Reasons), orEmpty(st.Notes)
	st.Backlogs, st.Shards = orEmpty(st.Backlogs), orEmpty(st.Shards)
	st.Stops, st.Stocks = orEmpty(st.Stops), orEmpty(st.Stocks)
	st.Streams, st.Consumers, st.Circuits = orEmpty(st.Streams), orEmpty(st.Consumers), orEmpty(st.Circuits)
}

// unforwarded returns the numbers of the shards that no process holds, without those of which it is said why.
func unforwarded(st *Status, stream schema.Stream) (numbers []string) {
	for _, sh := range st.Shards {
		stopped := slices.ContainsFunc(st.Stops, func(stop Stop) bool { return stop.Stream == stream && stop.Shard == sh.Shard })
		if sh.Stream == stream && sh.LeaseSeconds <= 0 && !stopped {
			numbers = append(numbers, strconv.Itoa(sh.Shard))
		}
	}
	return numbers
}

// nothingSent tells a bridge that has never run: nothing can have been in streams that are missing.
func nothingSent(st *Status) bool {
	return len(st.Shards) > 0 && !slices.ContainsFunc(st.Shards, func(sh Shard) bool { return sh.Sent > 0 })
}

func (s *Service) judgeStream(st *Status, stream Stream, waiting map[schema.Stream]int64, reason func(string, ...any)) {
	if stream.Missing {
		remedy := ""
		switch {
		case nothingSent(st):
			remedy = "; `millbridge run` makes it"
		case stream.Role == "dead":
			remedy = "; `millbridge repair --stream-recreated` makes it anew"
		}
		if stream.Role == "dead" {
			reason("stream %s is missing: messages that are given up stay where they are%s", stream.Name, remedy)
			return
		}
		subjects := s.cfg.Subjects.Full(stream.Role + ".>")
		reason("stream %s is missing: messages of %s have nowhere to go, rows waiting in the outbox: %d%s",
			stream.Name, subjects, waiting[schema.Stream(stream.Role)], remedy)
		return
	}
	if stream.fault != nil {
		reason("%v", stream.fault)
	}
	// A little below the limit the next message may be too large already.
	if full := stream.MaxBytes > 0 && stream.Bytes >= uint64(stream.MaxBytes)/100*fullPercent; full && stream.Role == "dead" {
		reason("stream %s is full (%d of %d bytes): messages that are given up stay where they are; drop dead letters, or raise its max_bytes",
			stream.Name, stream.Bytes, stream.MaxBytes)
	} else if full {
		reason("stream %s is full (%d of %d bytes), rows waiting in the outbox: %d; it empties as messages are handled or expire, or raise its max_bytes",
			stream.Name, stream.Bytes, stream.MaxBytes, waiting[schema.Stream(stream.Role)])
	}
	if stream.unguarded != nil {
		reason("%v; a process that forwards makes it again when it is missing", stream.unguarded)
	}
	switch {
	case stream.Replicas >= 3 || s.cfg.Durable:
	case stream.Replicas <= 1:
		st.Notes = append(st.Notes, fmt.Sprintf("stream %s has %d of 3 copies: the loss of a server's disk loses messages, "+
			"and so does its power failure unless it has sync_interval: always", stream.Name, stream.Replicas))
	default:
		st.Notes = append(st.Notes, fmt.Sprintf("stream %s has %d of 3 copies: the loss of a server's disk loses messages", stream.Name, stream.Replicas))
	}
}

// unserved finds the targets that have messages but no consumer.
func (s *Service) unserved(st *Status) {
	served := func(filter string) bool {
		return slices.ContainsFunc(st.Consumers, func(c Consumer) bool { return c.role == schema.Jobs && c.takes(filter) })
	}
	if !st.NATS.Reachable || slices.ContainsFunc(st.Streams, func(s Stream) bool { return s.Missing && s.Role == string(schema.Jobs) }) {
		st.Unserved = orEmpty(st.Unserved)
		return // it cannot be known, or has been said
	}
	for _, b := range st.Backlogs {
		if b.Stream == schema.Jobs && b.Where != "parked" && !served(s.cfg.Subjects.Target(b.Group)) {
			st.Unserved = append(st.Unserved, Unserved{b.Group, b.Where, b.Rows})
		}
	}
	inStream := map[string]int64{}
	for _, stream := range st.Streams {
		for filter, n := range stream.waits {
			if !served(filter) {
				inStream[s.group(filter)] += n
			}
		}
	}
	for target, n := range inStream {
		st.Unserved = append(st.Unserved, Unserved{target, "stream", n})
	}
	slices.SortFunc(st.Unserved, func(a, b Unserved) int {
		return cmp.Or(strings.Compare(a.Target, b.Target), strings.Compare(a.Where, b.Where))
	})
	st.Unserved = orEmpty(st.Unserved)
}

// orEmpty makes JSON print an empty list instead of null.
func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
