package schema

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

const tokenRule = "must be a-z, 0-9, '-' and '_', starting with a letter or digit"

// CheckTarget reports a target's or handler's name that is not allowed.
func CheckTarget(name string) error {
	var v validator
	v.target("target", name)
	return v.err("")
}

// CheckName reports an action or event name that is not allowed.
func CheckName(name string) error {
	var v validator
	v.name("name", name)
	return v.err("")
}

// Validate proves that e can travel the whole path: names, sizes, keys, metadata and the header block that will be
// sent. maxPayload is the database's limit in bytes; 0 means [DefaultPayload]. The error is a [*ValidationError] with
// all faults, in the order of the fields.
func (e Envelope) Validate(maxPayload int) error {
	return e.validate(maxPayload, len(e.Subject()), len(EncodeHeader(e)))
}

// validate is told the lengths of e's subject and header block.
func (e Envelope) validate(maxPayload, subject, header int) error {
	var v validator
	if !isID(e.ID) {
		v.length("id", "must be letters, digits, '-' and '_'", e.ID, MaxID)
	}
	before := len(v.faults)
	switch e.Kind {
	case KindJob:
		v.target("target", e.Target)
		v.name("action", e.Name)
		if e.Visibility != "" {
			v.add("visibility", "only events have one")
		}
	case KindEvent:
		v.name("name", e.Name)
		if e.Target != "" {
			v.add("target", "only jobs have one")
		}
		if e.Visibility != Internal && e.Visibility != Public {
			v.add("visibility", fmt.Sprintf("%q is neither internal nor public", OneLine(string(e.Visibility))))
		}
	default:
		v.add("kind", fmt.Sprintf("%q is neither job nor event", OneLine(string(e.Kind))))
	}
	if n := subject + 1 + MaxPrefix; n > MaxSubject && len(v.faults) == before && e.Replay == nil {
		v.faults = append(v.faults, Fault{Field: "subject", Reason: "target and name together are too long", Length: n, Limit: MaxSubject})
	}
	v.key("key", e.Key)
	v.key("ordering_key", e.OrderingKey)
	v.text("tenant", e.Tenant, MaxContext)
	v.text("actor", e.Actor, MaxContext)
	v.text("request_id", e.RequestID, MaxContext)
	v.printable("traceparent", e.TraceParent, MaxContext)
	v.printable("tracestate", e.TraceState, MaxTraceState)
	v.printable("content_type", e.ContentType, MaxContentType)
	v.metadata(e.Metadata)
	v.replyTo(e)
	v.via(e.Via)
	maxHeader, reserve := MaxHeaderBytes, headerReserve
	if len(e.Via) == 0 { // one that was passed on may use what was kept free for that
		reserve += viaReserve
	}
	if maxPayload == 0 {
		maxPayload = DefaultPayload
	}
	if r := e.Replay; r != nil {
		// It was in a stream and reached a handler. What fitted then fits again, whoever published it under what limits;
		// only the replay's own headers come on top.
		v.faults = slices.DeleteFunc(v.faults, func(f Fault) bool { return f.Limit > 0 || f.Field == "action" || f.Field == "name" })
		maxHeader, reserve, maxPayload = serverMaxHeader, headerReserve/2, max(maxPayload, ServerMaxPayload)
		v.target("replay.handler", r.Handler)
		if !isID(r.Of) {
			v.length("replay.of", "must be letters, digits, '-' and '_'", r.Of, MaxID)
		}
		if r.Number < 1 || r.Number > MaxReplay {
			v.add("replay.number", fmt.Sprintf("must be from 1 to %d", MaxReplay))
		}
	}
	v.year("time", e.Time, 1, 9999)
	v.year("due_at", e.DueAt, 1970, 2261) // what both databases can store
	switch {
	case e.Delay < 0:
		v.add("delay", "must not be negative")
	case e.Delay > maxDelay:
		v.add("delay", "must not be longer than 100 years")
	case e.Delay > 0 && !e.DueAt.IsZero():
		v.add("delay", "cannot go with due_at")
	}
	switch {
	case e.err != nil:
		v.add("payload", OneLine(e.err.Error()))
	case len(e.Payload) > maxPayload:
		v.faults = append(v.faults, Fault{Field: "payload", Reason: "too large", Length: len(e.Payload), Limit: maxPayload})
	}
	if n := header + reserve; n > maxHeader {
		v.faults = append(v.faults, Fault{
			Field: "headers", Reason: "metadata, keys and context together are too large",
			Length: n, Limit: maxHeader,
		})
	}
	return v.err(e.ID)
}

const maxDelay = 100 * 365 * 24 * time.Hour

type validator struct{ faults []Fault }

func (v *validator) err(id string) error {
	if len(v.faults) == 0 {
		return nil
	}
	return &ValidationError{ID: OneLine(id), Faults: v.faults}
}

func (v *validator) add(field, reason string) {
	v.faults = append(v.faults, Fault{Field: field, Reason: reason})
}

// length reports s as too long if it is longer than limit, else gives the reason.
func (v *validator) length(field, reason, s string, limit int) {
	switch {
	case s == "":
		v.add(field, "is empty")
	case len(s) > limit:
		v.faults = append(v.faults, Fault{Field: field, Reason: "too long", Length: len(s), Limit: limit})
	default:
		v.add(field, fmt.Sprintf("%q %s", OneLine(s), reason))
	}
}

func (v *validator) target(field, s string) {
	if !isToken(s, MaxTarget) {
		v.length(field, tokenRule, s, MaxTarget)
	}
}

func (v *validator) name(field, s string) {
	if len(s) > MaxName || !isName(s) {
		v.length(field, "must be dot-separated tokens of a-z, 0-9, '-' and '_'", s, MaxName)
	}
}

// key needs no check of bytes: MaxKeyChars characters never have more than MaxKeyBytes.
func (v *validator) key(field, s string) {
	if n := utf8.RuneCountInString(s); n > MaxKeyChars {
		v.faults = append(v.faults, Fault{Field: field, Reason: "too long in characters", Length: n, Limit: MaxKeyChars})
	}
	v.utf8(field, s)
}

func (v *validator) text(field, s string, limit int) {
	if len(s) > limit {
		v.faults = append(v.faults, Fault{Field: field, Reason: "too long", Length: len(s), Limit: limit})
	}
	v.utf8(field, s)
}

func (v *validator) utf8(field, s string) {
	if !utf8.ValidString(s) {
		v.add(field, "is not valid UTF-8")
	}
	if strings.IndexByte(s, 0) >= 0 {
		v.add(field, "has a NUL byte")
	}
}

func (v *validator) year(field string, t time.Time, first, last int) {
	if y := t.UTC().Year(); !t.IsZero() && (y < first || y > last) {
		v.add(field, fmt.Sprintf("year %d is not between %d and %d", y, first, last))
	}
}

func (v *validator) printable(field, s string, limit int) {
	if len(s) > limit {
		v.faults = append(v.faults, Fault{Field: field, Reason: "too long", Length: len(s), Limit: limit})
	}
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			v.add(field, "must be printable ASCII")
			return
		}
	}
	if s != strings.TrimSpace(s) {
		v.add(field, "starts or ends with a space")
	}
}

func (v *validator) metadata(m map[string]string) {
	if len(m) > MaxMetadata {
		v.faults = append(v.faults, Fault{Field: "metadata", Reason: "too many entries", Length: len(m), Limit: MaxMetadata})
	}
	first := len(v.faults)
	for k := range m {
		switch {
		case k == "" || len(k) > MaxMetadataKey:
			v.length(entry(k), "", k, MaxMetadataKey)
		case !IsHeaderName(k):
			v.add(entry(k), "a key must be printable ASCII without space and without any of "+notInHeaderNames)
		case isReserved(k):
			v.add(entry(k), "the name is reserved")
		}
	}
	slices.SortFunc(v.faults[first:], func(a, b Fault) int { return strings.Compare(a.Field, b.Field) })
}

// entry names an entry of the metadata as a field.
func entry(key string) string { return "metadata[" + OneLine(key) + "]" }

func (v *validator) replyTo(e Envelope) {
	r := e.ReplyTo
	if r == nil {
		return
	}
	if e.Kind != KindJob {
		v.add("reply_to", "only jobs have one")
	}
	v.target("reply_to.target", r.Target)
	v.name("reply_to.action", r.Action)
	if n := len(JobSubject(r.Target, r.Action)) + 1 + MaxPrefix; n > MaxSubject {
		v.faults = append(v.faults, Fault{Field: "reply_to", Reason: "target and action together are too long", Length: n, Limit: MaxSubject})
	}
	v.key("reply_to.ref", r.Ref)
}

// notInHeaderNames are the printable characters that nats.go, as HTTP does, refuses in a header's name.
const notInHeaderNames = `"(),/:;<=>?@[\]{}`

// IsHeaderName reports whether s can be the name of a header in NATS and HTTP.
func IsHeaderName(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' || strings.IndexByte(notInHeaderNames, s[i]) >= 0 {
			return false
		}
	}
	return s != ""
}

func isID(s string) bool {
	if s == "" || len(s) > MaxID {
		return false
	}
	for i := range len(s) {
		if c := s[i]; (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return false
		}
	}
	return true
}
