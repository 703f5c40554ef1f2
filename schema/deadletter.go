package schema

import (
	"cmp"
	"encoding/binary"
	"encoding/hex"
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
	headerDeadKey        = "mb-dead-key"     // hash of the inbox key, in hex
	headerDeadMessage    = "mb-dead-message" // the message's id, if the subject has a longer one
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
	headerDeadRaw        = "mb-dead-raw-"  // precedes original names that mean something to the broker or to this letter
	headerDeadBlock      = "mb-dead-block" // how many bytes at the start of the body are the original headers

	// LetterRoom is how much larger than its message a dead letter may be, which must not be too large for the server.
	LetterRoom = 32 << 10

	letterSlack    = 1 << 10 // of LetterRoom: what the broker's client adds
	maxStory       = LetterRoom - 2*letterSlack
	maxStack       = 8 << 10
	maxPoisoned    = 1000     // bytes of what stands there once more for Watermill
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
	CauseCancelled   Cause = "cancelled"   // the handler said that it is no longer wanted; there is no dead letter
)

// A DeadLetter is a message that was given up, kept whole in the DEAD stream with the story of its end.
type DeadLetter struct {
	Handler    string    // the handler that gave it up
	ID         string    // the message's id; for undecodable messages "seq-<sequence>"; longer if another letter has that one
	Message    string    // the message's id if ID is longer, else empty; see [DeadLetter.MessageID]
	Key        [32]byte  // hash of the inbox key that the verdict is recorded under, see [InboxKey.Hash]; zero if under none
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

// MessageID returns the id of the message, as it is in the inbox.
func (d DeadLetter) MessageID() string { return cmp.Or(d.Message, d.ID) }

// Encode returns the message that keeps the letter: the original headers, made harmless to the broker, our own and
// those of Watermill's poison queue, and the original bytes. Original headers that do not fit beside ours, or that the
// broker's client would refuse or change, stand at the start of the body instead.
func (d DeadLetter) Encode() (header map[string][]string, body []byte) {
	h := d.story()
	kept := make(map[string][]string, len(d.Header))
	for k, vs := range d.Header {
		if !carriable(k, vs) {
			return d.withBlock(h)
		}
		if isReservedInLetter(k) {
			k = headerDeadRaw + k
		}
		kept[k] = slices.Clone(vs)
	}
	if headerSize(h)+headerSize(kept) > min(maxDeadHeaders, arrivedSize(d.Header)+LetterRoom-letterSlack) {
		return d.withBlock(h)
	}
	maps.Copy(h, kept)
	return h, d.Payload
}

// story returns the headers that tell how the message ended, at most maxStory bytes of them, whatever is in it.
func (d DeadLetter) story() map[string][]string {
	h := make(map[string][]string, len(d.Header)+20)
	set := func(k, v string) { h[k] = []string{v} }
	reason := OneLine(d.Reason)
	set(headerDeadCause, string(d.Cause))
	set(headerDeadHandler, d.Handler)
	set(headerDeadReason, reason)
	set(headerDeadAttempts, strconv.Itoa(d.Attempts))
	set(headerDeadDeliveries, strconv.FormatUint(d.Deliveries, 10))
	set(headerDeadStream, string(d.Stream))
	set(headerDeadSubject, percentEncode(d.Subject, unsafeInCloudEvents))
	set(headerDeadSequence, strconv.FormatUint(d.Sequence, 10))
	set(headerDeadTime, d.Time.UTC().Format(time.RFC3339Nano))
	set("reason_poisoned", cutBytes(reason, maxPoisoned))
	set("topic_poisoned", cutBytes(OneLine(d.Subject), maxPoisoned))
	set("handler_poisoned", d.Handler)
	set("subscriber_poisoned", "millbridge")
	if d.Tombstone != "" {
		set(headerDeadTomb, d.Tombstone)
	}
	if d.Message != "" {
		set(headerDeadMessage, d.Message)
	}
	if d.Key != [32]byte{} {
		set(headerDeadKey, hex.EncodeToString(d.Key[:]))
	}
	if room := min(maxStack, maxStory-headerSize(h)-len(headerDeadStack)-4); d.Stack != "" && room > 0 {
		stack := percentEncode(d.Stack[:min(len(d.Stack), room)], unsafeInCloudEvents)
		if len(stack) > room {
			stack = stack[:room]
			if i := strings.LastIndexByte(stack, '%'); i > len(stack)-3 { // half a code
				stack = stack[:i]
			}
		}
		set(headerDeadStack, stack)
	}
	return h
}

// cutBytes returns as much of s as fits in n bytes.
func cutBytes(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "")
}

// withBlock puts the original headers at the start of the body: each name and each of its values in turn, with its length
// as a varint before it. So they take hardly more there than where they came from, whatever bytes they are made of.
func (d DeadLetter) withBlock(h map[string][]string) (header map[string][]string, body []byte) {
	for _, k := range slices.Sorted(maps.Keys(d.Header)) {
		for _, v := range d.Header[k] {
			for _, field := range [...]string{k, v} {
				body = append(binary.AppendUvarint(body, uint64(len(field))), field...)
			}
		}
	}
	h[headerDeadBlock] = []string{strconv.Itoa(len(body))}
	return h, append(body, d.Payload...)
}

// takeBlock undoes withBlock: it fills in Header and takes the block off Payload.
func (d *DeadLetter) takeBlock(size string) error {
	n, err := strconv.Atoi(size)
	if err != nil || n < 0 || n > len(d.Payload) {
		return fmt.Errorf("header %s is %q, the body has %d bytes", headerDeadBlock, OneLine(size), len(d.Payload))
	}
	block := d.Payload[:n]
	for len(block) > 0 {
		var fields [2]string
		for i := range fields {
			length, used := binary.Uvarint(block)
			if used <= 0 || length > uint64(len(block)-used) {
				return fmt.Errorf("the block of headers is cut off %d bytes before its end", len(block))
			}
			end := used + int(length)
			fields[i], block = string(block[used:end]), block[end:]
		}
		d.Header[fields[0]] = append(d.Header[fields[0]], fields[1])
	}
	d.Payload = d.Payload[n:]
	return nil
}

// carriable reports whether NATS clients send this header as it is: they refuse some names and trim values.
func carriable(name string, values []string) bool {
	return IsHeaderName(name) && !slices.ContainsFunc(values, func(v string) bool {
		return strings.ContainsAny(v, "\r\n") || strings.Trim(v, " \t") != v
	})
}

// isReservedInLetter reports whether an original header's name means something else in a dead letter.
func isReservedInLetter(name string) bool {
	low := strings.ToLower(name)
	return isBroker(low) || strings.HasPrefix(low, headerDeadPrefix) || isPoisonKey(name)
}

// headerSize returns what headers take when the broker's client writes them.
func headerSize(h map[string][]string) int { return sizeWith(h, len(": \r\n")) }

// arrivedSize returns the least that headers can have taken when they arrived.
func arrivedSize(h map[string][]string) int { return sizeWith(h, len(":\r\n")) }

func sizeWith(h map[string][]string, each int) int {
	n := 0
	for k, vs := range h {
		for _, v := range vs {
			n += len(k) + len(v) + each
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
	if d.Replay, err = strconv.Atoi(parts[4]); err != nil || d.Replay < 0 || d.Replay > MaxReplay || strconv.Itoa(d.Replay) != parts[4] {
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
	d.Subject = percentDecode(get(headerDeadSubject))
	d.Sequence, _ = strconv.ParseUint(get(headerDeadSequence), 10, 64)
	d.Time, _ = time.Parse(time.RFC3339Nano, get(headerDeadTime))
	d.Tombstone = get(headerDeadTomb)
	d.Message = OneLine(get(headerDeadMessage))
	if key, err := hex.DecodeString(get(headerDeadKey)); err == nil && len(key) == len(d.Key) {
		d.Key = [32]byte(key)
	}
	for k, vs := range header {
		if raw, ok := strings.CutPrefix(k, headerDeadRaw); ok {
			d.Header[raw] = slices.Clone(vs)
		} else if !isReservedInLetter(k) {
			d.Header[k] = slices.Clone(vs)
		}
	}
	if size := get(headerDeadBlock); size != "" {
		if err := d.takeBlock(size); err != nil {
			return DeadLetter{}, fmt.Errorf("decode dead letter %s: %w", OneLine(relative), err)
		}
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
