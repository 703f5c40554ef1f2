package schema

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Decode reads a message from the stream: its subject without prefix, its headers in any case, its bytes. Messages of
// other publishers are read as far as their subject and headers allow: they need an id, in [HeaderID] or [HeaderCEID].
// The error wraps [ErrUndecodable] and is [Permanent].
func Decode(relative string, header map[string][]string, payload []byte) (Envelope, error) {
	e, err := decode(relative, header, payload)
	if err != nil {
		return e, WithKind(Permanent, fmt.Errorf("%w: %w", ErrUndecodable, err))
	}
	return e, nil
}

func decode(relative string, header map[string][]string, payload []byte) (Envelope, error) {
	e, err := parseSubject(relative)
	if err != nil {
		return e, err
	}
	e.Payload = payload
	lower := true
	for k, vs := range header {
		low := strings.ToLower(k)
		if isOthers(low) {
			continue
		}
		if len(vs) != 1 {
			return e, fmt.Errorf("header %q has %d values", OneLine(k), len(vs))
		}
		if isReservedLow(low) {
			lower = lower && low == k
			continue
		}
		if e.Metadata == nil {
			e.Metadata = make(map[string]string, max(0, len(header)-usualHeaders))
		}
		e.Metadata[k] = vs[0]
	}
	ours := reserved(header)
	if !lower {
		if ours, err = lowered(header); err != nil {
			return e, err
		}
	}
	if vs, ok := ours[HeaderVersion]; ok {
		if major, _, _ := strings.Cut(vs[0], "."); major != WireVersion {
			return e, fmt.Errorf("wire version %q is not known", OneLine(vs[0]))
		}
	}
	e.ID = ours.get(HeaderID)
	if e.ID == "" {
		e.ID = percentDecode(ours.get(HeaderCEID))
	}
	if e.ID == "" {
		return e, fmt.Errorf("neither %s nor %s names an id", HeaderID, HeaderCEID)
	}
	e.Key = percentDecode(ours.get(HeaderKey))
	if id := UsableID(e.ID); id != e.ID {
		if e.Key == "" {
			e.Key = e.ID
		}
		e.ID = id
	}
	e.OrderingKey = percentDecode(ours.get(HeaderOrderingKey))
	e.Tenant = percentDecode(ours.get(HeaderTenant))
	e.Actor = percentDecode(ours.get(HeaderActor))
	e.RequestID = percentDecode(ours.get(HeaderRequestID))
	e.ContentType = percentDecode(ours.get(HeaderContentType))
	e.TraceParent = ours.get(HeaderTraceParent)
	e.TraceState = ours.get(HeaderTraceState)
	e.Source = percentDecode(ours.get(HeaderSource))
	if at := ours.get(HeaderTime); at != "" { // else the error would cost as much as the rest
		if t, err := time.Parse(time.RFC3339Nano, at); err == nil {
			e.Time = t.UTC()
		}
	}
	if err := e.decodeReplay(ours); err != nil {
		return e, err
	}
	if err := e.decodeReplyTo(ours); err != nil {
		return e, err
	}
	if err := e.decodeVia(ours); err != nil {
		return e, err
	}
	if key := e.Key; key != "" { // a key that says no more than the default is none
		if e.Key = ""; e.IdempotencyKey() != key {
			e.Key = key
		}
	}
	if encoded := ours.get(HeaderEncoded); encoded != "" {
		for k := range strings.SplitSeq(encoded, " ") {
			if v, ok := e.Metadata[k]; ok {
				e.Metadata[k] = percentDecode(v)
			}
		}
	}
	return e, nil
}

// usualHeaders is how many of a message's headers are ours, mostly.
const usualHeaders = 10

// reserved are the headers of a message, with our names in lower case and one value each.
type reserved map[string][]string

func (h reserved) get(name string) string {
	if vs := h[name]; len(vs) == 1 {
		return vs[0]
	}
	return ""
}

// isOthers reports whether a header in lower case is no part of the message: it is the broker's, or a dead letter's.
func isOthers(low string) bool { return isBroker(low) || strings.HasPrefix(low, headerDeadPrefix) }

// lowered is for messages of publishers that write our names in another case.
func lowered(header map[string][]string) (reserved, error) {
	ours := make(reserved, len(header))
	for k, vs := range header {
		low := strings.ToLower(k)
		if isOthers(low) || !isReservedLow(low) {
			continue
		}
		if ours[low] != nil {
			return nil, fmt.Errorf("header %q is there twice", OneLine(low))
		}
		ours[low] = vs
	}
	return ours, nil
}

// decodeReplay reads what makes e a replay. The subject says whether it is one: subjects are what the broker's
// permissions guard. Only a replay takes kind, target and visibility from its type, because its subject has no room.
func (e *Envelope) decodeReplay(ours reserved) error {
	of, number := ours.get(HeaderReplayOf), ours.get(HeaderReplay)
	if e.Replay == nil {
		if of != "" || number != "" {
			return fmt.Errorf("replay headers on a message that is none: %q, %q", OneLine(of), OneLine(number))
		}
		return nil
	}
	var ok bool
	if e.Kind, e.Target, e.Visibility, ok = parseType(percentDecode(ours.get(HeaderType))); !ok {
		return fmt.Errorf("a replay needs the header %s, got %q", HeaderType, OneLine(ours.get(HeaderType)))
	}
	n, err := strconv.Atoi(number)
	if err != nil || n < 1 || n > MaxReplay || !isID(of) {
		return fmt.Errorf("a replay needs the headers %s and %s, got %q and %q", HeaderReplayOf, HeaderReplay, OneLine(of), OneLine(number))
	}
	e.Replay.Of, e.Replay.Number = of, n
	e.Source = percentDecode(ours.get(HeaderReplaySource))
	return nil
}

// decodeReplyTo reads where the outcome is to be reported. One that cannot be read is an error: somebody may wait for it.
func (e *Envelope) decodeReplyTo(ours reserved) error {
	to, ref := ours.get(HeaderReplyTo), percentDecode(ours.get(HeaderReplyRef))
	if to == "" && ref == "" {
		return nil
	}
	target, action, _ := strings.Cut(to, ".")
	e.ReplyTo = &ReplyTo{Target: target, Action: action, Ref: ref}
	var v validator
	v.replyTo(*e)
	if len(v.faults) > 0 {
		return fmt.Errorf("headers %s and %s: %s", HeaderReplyTo, HeaderReplyRef, v.faults[0])
	}
	return nil
}
