package schema

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	headerDeadPrefix     = "mb-dead-"
	headerDeadCause      = "mb-dead-cause"
	headerDeadHandler    = "mb-dead-handler"
	headerDeadReason     = "mb-dead-reason"
	headerDeadStack      = "mb-dead-stack"
	headerDeadAttempts   = "mb-dead-attempts"
	headerDeadDeliveries = "mb-dead-deliveries"
	headerDeadStream     = "mb-dead-stream"
	headerDeadSubject    = "mb-dead-subject"
	headerDeadSequence   = "mb-dead-sequence"
	headerDeadTime       = "mb-dead-time"
	headerDeadTomb       = "mb-dead-tombstone"
	headerDeadRaw        = "mb-dead-raw-" // precedes original names that the broker would obey

	maxStack       = 8 << 10
	maxDeadHeaders = 60 << 10 // nats-server refuses header blocks above 64 KiB
)

// Cause says why a message was given up.
type Cause string

const (
	CausePermanent   Cause = "permanent"   // the handler said that trying again is useless
	CauseExhausted   Cause = "exhausted"   // the policy's attempts are used up
	CauseCrashing    Cause = "crashing"    // delivered again and again without a result
	CauseUndecodable Cause = "undecodable" // not one of our messages
	CauseKeyReused   Cause = "key_reused"  // the idempotency key belongs to other content
)

// A DeadLetter is a message that was given up, kept whole in the DEAD stream with the story of its end.
type DeadLetter struct {
	Handler    string    // the handler that gave it up
	ID         string    // the message's id; for undecodable messages "seq-<sequence>"
	Replay     int       // how often it had been replayed when it died
	Cause      Cause     //
	Reason     string    // last error, one line
	Stack      string    // of a panic; may be empty
	Attempts   int       // that reached the handler
	Deliveries uint64    // by the broker
	Time       time.Time // when it died

	Stream   Stream              // it came from
	Subject  string              // whole subject in that stream
	Sequence uint64              // in that stream
	Header   map[string][]string // as received
	Payload  []byte              // as received

	Tombstone string // not empty: the letter was "replayed" or "dropped" and only this mark is left
}

// Encode returns the headers to write the letter with: the original ones, made harmless to the broker, our own, and
// those of Watermill's poison queue. A stack is left out when there is no room for it.
func (d DeadLetter) Encode() map[string][]string {
	h := make(map[string][]string, len(d.Header)+16)
	for k, vs := range d.Header {
		low := strings.ToLower(k)
		switch {
		case strings.HasPrefix(low, headerDeadPrefix): // a letter about a letter keeps the newer story
		case isBroker(low):
			h[headerDeadRaw+k] = slices.Clone(vs)
		default:
			h[k] = slices.Clone(vs)
		}
	}
	set := func(k, v string) { h[k] = []string{v} }
	set(headerDeadCause, string(d.Cause))
	set(headerDeadHandler, d.Handler)
	set(headerDeadReason, d.Reason)
	set(headerDeadAttempts, strconv.Itoa(d.Attempts))
	set(headerDeadDeliveries, strconv.FormatUint(d.Deliveries, 10))
	set(headerDeadStream, string(d.Stream))
	set(headerDeadSubject, d.Subject)
	set(headerDeadSequence, strconv.FormatUint(d.Sequence, 10))
	set(headerDeadTime, d.Time.UTC().Format(time.RFC3339Nano))
	set("reason_poisoned", d.Reason)
	set("topic_poisoned", d.Subject)
	set("handler_poisoned", d.Handler)
	set("subscriber_poisoned", "millbridge")
	if d.Tombstone != "" {
		set(headerDeadTomb, d.Tombstone)
	}
	if size := headerSize(h); d.Stack != "" {
		stack := percentEncode(d.Stack[:min(len(d.Stack), maxStack)])
		if size+len(stack) < maxDeadHeaders {
			set(headerDeadStack, stack)
		}
	} else if size > maxDeadHeaders {
		short := OneLine(d.Reason)
		short = strings.ToValidUTF8(short[:min(len(short), 200)], "")
		set(headerDeadReason, short)
		delete(h, "reason_poisoned")
	}
	return h
}

func headerSize(h map[string][]string) int {
	n := 0
	for k, vs := range h {
		for _, v := range vs {
			n += len(k) + len(v) + 4
		}
	}
	return n
}

// DecodeDeadLetter reads a message of the DEAD stream; relative is its subject without prefix.
func DecodeDeadLetter(relative string, header map[string][]string, payload []byte) (DeadLetter, error) {
	parts := strings.Split(relative, ".")
	if len(parts) != 5 || parts[0] != "dead" {
		return DeadLetter{}, fmt.Errorf("subject %q is not a dead letter's", OneLine(relative))
	}
	d := DeadLetter{Stream: Stream(parts[1]), Handler: parts[2], ID: parts[3], Header: make(map[string][]string, len(header)), Payload: payload}
	var err error
	if d.Replay, err = strconv.Atoi(parts[4]); err != nil || d.Replay < 0 {
		return DeadLetter{}, fmt.Errorf("subject %q is not a dead letter's", OneLine(relative))
	}
	get := func(k string) string {
		if vs := header[k]; len(vs) > 0 {
			return vs[0]
		}
		return ""
	}
	d.Cause = Cause(get(headerDeadCause))
	d.Reason = OneLine(get(headerDeadReason))
	d.Stack = percentDecode(get(headerDeadStack))
	d.Attempts, _ = strconv.Atoi(get(headerDeadAttempts))
	d.Deliveries, _ = strconv.ParseUint(get(headerDeadDeliveries), 10, 64)
	d.Subject = get(headerDeadSubject)
	d.Sequence, _ = strconv.ParseUint(get(headerDeadSequence), 10, 64)
	d.Time, _ = time.Parse(time.RFC3339Nano, get(headerDeadTime))
	d.Tombstone = get(headerDeadTomb)
	for k, vs := range header {
		if raw, ok := strings.CutPrefix(k, headerDeadRaw); ok {
			d.Header[raw] = slices.Clone(vs)
			continue
		}
		low := strings.ToLower(k)
		if isBroker(low) || strings.HasPrefix(low, headerDeadPrefix) || isPoisonKey(k) {
			continue
		}
		d.Header[k] = slices.Clone(vs)
	}
	return d, nil
}

func isPoisonKey(k string) bool {
	switch k {
	case "reason_poisoned", "topic_poisoned", "handler_poisoned", "subscriber_poisoned":
		return true
	}
	return false
}

// Envelope decodes the message inside the letter; subjects takes the prefix off its subject.
func (d DeadLetter) Envelope(subjects Subjects) (Envelope, error) {
	relative, ok := subjects.Relative(d.Subject)
	if !ok {
		return Envelope{}, WithKind(Permanent, fmt.Errorf("%w: subject %q has another prefix", ErrUndecodable, OneLine(d.Subject)))
	}
	return Decode(relative, maps.Clone(d.Header), d.Payload)
}
