package foreign

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/millbridge/millbridge/internal/ops"
	"github.com/millbridge/millbridge/schema"
)

// row is one exported row. Columns that say nothing about what is to be delivered are not looked at.
type row struct {
	ID      text            `json:"id"`
	Key     text            `json:"idempotency_key"`
	Payload json.RawMessage `json:"payload"`
	Status  text            `json:"status"`
	Created text            `json:"created_at"`

	// Rows for a target: the payload holds action and args.
	Target text `json:"target"`
	NextAt text `json:"next_attempt_at"`

	// Rows of a kind: the payload is the message's own, or the whole message.
	Kind        text `json:"kind"`
	Name        text `json:"name"`
	AvailableAt text `json:"available_at"`
}

// text is a column of text. Numbers are taken by their digits, null is empty.
type text string

func (t *text) UnmarshalJSON(b []byte) error {
	switch {
	case bytes.Equal(b, []byte("null")):
		*t = ""
		return nil
	case len(b) > 0 && (b[0] == '-' || b[0] >= '0' && b[0] <= '9'):
		*t = text(b)
		return nil
	}
	var s string
	err := json.Unmarshal(b, &s)
	*t = text(s)
	return err
}

// envelope returns the message that the row holds.
func (r row) envelope(o Options) (schema.Envelope, error) {
	payload, err := plain(r.Payload)
	if err != nil {
		return schema.Envelope{}, err
	}
	var env schema.Envelope
	due := r.AvailableAt
	switch {
	case r.Target != "":
		due = r.NextAt
		env, err = targeted(string(r.Target), payload)
	case r.Kind == text(schema.KindJob), r.Kind == text(schema.KindEvent):
		env, err = named(r, payload, o.Target)
	case r.Kind != "":
		err = fmt.Errorf("kind: %q is neither job nor event", schema.OneLine(string(r.Kind)))
	default:
		err = errors.New("has neither a target nor a kind")
	}
	if err != nil {
		return env, err
	}
	if err := r.fill(&env, due, o.Now); err != nil {
		return env, err
	}
	return env, env.Validate(o.MaxPayload)
}

// targeted reads a payload {"action": ..., "args": {...}}.
func targeted(target string, payload []byte) (schema.Envelope, error) {
	var p struct {
		Action *string          `json:"action"`
		Args   *json.RawMessage `json:"args"`
	}
	if err := json.Unmarshal(payload, &p); err != nil || p.Action == nil {
		return schema.Envelope{}, errors.New("payload: wants an object with a text \"action\"")
	}
	args := json.RawMessage("{}")
	if p.Args != nil {
		args = *p.Args
	}
	if args[0] != '{' {
		return schema.Envelope{}, errors.New("payload: \"args\" is no object")
	}
	return schema.NewJob(target, *p.Action, args), nil
}

// whole is a payload column that holds the message with its context.
type whole struct {
	Name       text            `json:"name"`
	Payload    json.RawMessage `json:"payload"`
	Key        text            `json:"idempotency_key"`
	Actor      text            `json:"actor_id"`
	Tenant     text            `json:"tenant_id"`
	Request    text            `json:"request_id"`
	EnqueuedAt text            `json:"enqueued_at"`
	Attempt    int             `json:"attempt"`
	Visibility text            `json:"visibility"`
}

// named reads a row of a kind. A payload is taken for the whole message only if it repeats the row's name and has no
// other fields than such a message.
func named(r row, payload []byte, target string) (schema.Envelope, error) {
	var w whole
	dec := json.NewDecoder(bytes.NewReader(payload))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&w); err != nil || w.Name != r.Name || w.Payload == nil {
		w = whole{Payload: payload}
	}
	opts := []schema.Option{
		schema.WithKey(string(w.Key)), schema.WithActor(string(w.Actor)), schema.WithTenant(string(w.Tenant)), schema.WithRequestID(string(w.Request)),
	}
	at, err := readTime("enqueued_at", w.EnqueuedAt)
	if err != nil {
		return schema.Envelope{}, err
	}
	opts = append(opts, schema.WithTime(at))
	if r.Kind == text(schema.KindEvent) {
		if w.Visibility == text(schema.Public) {
			opts = append(opts, schema.WithPublic())
		}
		return schema.NewEvent(string(r.Name), w.Payload, opts...), nil
	}
	action := string(r.Name)
	if target == "" {
		var ok bool
		if target, action, ok = strings.Cut(action, "."); !ok {
			return schema.Envelope{}, fmt.Errorf("name: %q does not say which target the job is for: name it with --target, or <target>.<action>", schema.OneLine(string(r.Name)))
		}
	}
	return schema.NewJob(target, action, w.Payload, opts...), nil
}

// fill adds what both shapes have. A row without a key is known by its id from then on: that is what makes importing it
// once more harmless.
func (r row) fill(env *schema.Envelope, due text, now time.Time) error {
	if _, err := schema.ParseUUID(strings.ToLower(string(r.ID))); err == nil {
		env.ID = strings.ToLower(string(r.ID))
	}
	switch {
	case r.Key != "":
		env.Key = string(r.Key)
	case env.Key == "" && r.ID == "":
		return errors.New("has neither an idempotency_key nor an id")
	case env.Key == "":
		env.Key = string(r.ID)
	}
	if env.Time.IsZero() {
		var err error
		if env.Time, err = readTime("created_at", r.Created); err != nil {
			return err
		}
	}
	at, err := readTime("the time of the next attempt", due)
	if err != nil {
		return err
	}
	if at.After(now) {
		env.DueAt = at
	}
	return nil
}

// plain returns the JSON of a payload, which databases without a type for it export as text. It has no spaces: they
// depend on who exported it, and what is imported twice must be the same twice.
func plain(raw json.RawMessage) ([]byte, error) {
	if len(raw) > 0 && raw[0] == '"' {
		var s string
		if err := json.Unmarshal(raw, &s); err != nil {
			return nil, fmt.Errorf("payload: %w", err)
		}
		raw = []byte(s)
	}
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil || b.Len() == 0 {
		return nil, errors.New("payload: is not JSON")
	}
	return b.Bytes(), nil
}

// timeLayouts are how databases write times; one without a zone is UTC.
var timeLayouts = []string{
	time.RFC3339Nano, "2006-01-02 15:04:05.999999999Z07:00", "2006-01-02 15:04:05.999999999Z07", "2006-01-02T15:04:05.999999999", "2006-01-02 15:04:05.999999999",
}

func readTime(column string, s text) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	for _, layout := range timeLayouts {
		if t, err := time.Parse(layout, string(s)); err == nil {
			return t.UTC(), nil
		}
	}
	return time.Time{}, fmt.Errorf("%s: %q is no time", column, schema.OneLine(string(s)))
}

// state says what has become of the row.
func (r row) state() (ops.State, error) {
	state, err := ops.ParseState(string(r.Status))
	if err != nil {
		return "", fmt.Errorf("status: %w", err)
	}
	return state, nil
}
