package schema

import (
	"fmt"
	"strconv"
	"strings"
)

// Stream is one of the two streams that an outbox feeds.
type Stream string

const (
	Jobs   Stream = "jobs"   // jobs and replays; a work queue
	Events Stream = "events" // events; kept for a time
)

// Streams lists both, in the order in which they are always visited.
var Streams = [...]Stream{Jobs, Events}

// DefaultPrefix is the first token of all subjects unless configured.
const DefaultPrefix = "mb"

// What the metadata of a consumer says about the messages that it has taken, so that they can be accounted for.
const (
	MarkInbox        = "millbridge.inbox"         // id of the outbox whose database has the handler's inbox
	MarkUnrecorded   = "millbridge.unrecorded"    // "true" if the handler succeeds, or did once, without a record
	MarkFiltersSince = "millbridge.filters-since" // when the filters were changed; older events may have been passed by
)

// JobSubject returns the subject, without prefix, of a job.
func JobSubject(target, action string) string { return "jobs." + target + "." + action }

// EventSubject returns the subject, without prefix, of an event.
func EventSubject(v Visibility, name string) string { return "events." + string(v) + "." + name }

// ReplaySubject returns the subject, without prefix, of a replay for one handler.
func ReplaySubject(handler, name string) string { return "replay." + handler + "." + name }

// Subjects turns the relative subjects that the outbox stores into the broker's and back, and names the streams. Its
// zero value uses [DefaultPrefix].
type Subjects struct{ Prefix string }

// Validate reports a prefix that is not one token of lower-case letters, digits, '-' and '_'.
func (s Subjects) Validate() error {
	if s.Prefix != "" && !isToken(s.Prefix, MaxPrefix) {
		return fmt.Errorf("prefix %q: want 1 to %d of a-z, 0-9, '-' and '_', starting with a letter or digit", OneLine(s.Prefix), MaxPrefix)
	}
	return nil
}

func (s Subjects) prefix() string {
	if s.Prefix == "" {
		return DefaultPrefix
	}
	return s.Prefix
}

// Full returns the broker's subject for a relative one.
func (s Subjects) Full(relative string) string { return s.prefix() + "." + relative }

// Relative takes the prefix off a broker's subject; ok is false if it has another.
func (s Subjects) Relative(full string) (relative string, ok bool) {
	rest, ok := strings.CutPrefix(full, s.prefix())
	if !ok || rest == "" || rest[0] != '.' {
		return full, false
	}
	return rest[1:], true
}

// StreamName returns the name of the JetStream stream: <PREFIX>_JOBS or <PREFIX>_EVENTS.
func (s Subjects) StreamName(st Stream) string {
	return strings.ToUpper(s.prefix()) + "_" + strings.ToUpper(string(st))
}

// DeadStreamName returns the name of the stream that keeps dead letters: <PREFIX>_DEAD.
func (s Subjects) DeadStreamName() string { return strings.ToUpper(s.prefix()) + "_DEAD" }

// Target returns the filter that matches all jobs of one target.
func (s Subjects) Target(target string) string { return s.Full("jobs." + target + ".>") }

// Replays returns the filter that matches all replays for one handler.
func (s Subjects) Replays(handler string) string { return s.Full("replay." + handler + ".>") }

// Event returns the filter that matches one event name in either visibility. The name may end in ".>" and have "*" tokens.
func (s Subjects) Event(name string) string { return s.Full("events.*." + name) }

// Dead returns the subject of a dead letter: the one place for this (handler, message, replay), so that writing it
// twice can be refused.
func (s Subjects) Dead(st Stream, handler, id string, replay int) string {
	return s.Full("dead." + string(st) + "." + handler + "." + id + "." + strconv.Itoa(replay))
}

// Cursor returns the subject of a shard's cursor.
func (s Subjects) Cursor(st Stream, outboxID string, generation, shard int) string {
	return s.Full(fmt.Sprintf("cursor.%s.%s.%d.%d", st, outboxID, generation, shard))
}

// parseSubject reads kind, target, name and visibility (or a replay's handler) from a relative subject.
func parseSubject(relative string) (Envelope, error) {
	var e Envelope
	what, rest, _ := strings.Cut(relative, ".")
	whose, name, ok := strings.Cut(rest, ".")
	e.Name = name
	switch {
	case ok && what == "jobs":
		e.Kind, e.Target = KindJob, whose
	case ok && what == "events":
		e.Kind, e.Visibility = KindEvent, Visibility(whose)
	case ok && what == "replay":
		e.Replay = &Replay{Handler: whose}
	default:
		return e, fmt.Errorf("subject %q names no message", OneLine(relative))
	}
	return e, nil
}

// parseType reads a CloudEvents type as [Envelope.Type] writes it, but for the name.
func parseType(t string) (kind Kind, target string, vis Visibility, ok bool) {
	parts := strings.SplitN(t, ".", 3)
	if len(parts) < 3 {
		return "", "", "", false
	}
	switch parts[0] {
	case "job":
		return KindJob, parts[1], "", true
	case "event":
		return KindEvent, "", Visibility(parts[1]), true
	}
	return "", "", "", false
}

// isToken reports whether s is 1 to limit of a-z, 0-9, '-' and '_' and starts with a letter or digit.
func isToken(s string, limit int) bool {
	if s == "" || len(s) > limit || s[0] == '-' || s[0] == '_' {
		return false
	}
	for i := range len(s) {
		if c := s[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return false
		}
	}
	return true
}

// isName reports whether s is dot-separated tokens.
func isName(s string) bool {
	for part := range strings.SplitSeq(s, ".") {
		if !isToken(part, MaxName) {
			return false
		}
	}
	return true
}
