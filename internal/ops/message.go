package ops

import (
	"encoding/json"
	"time"
	"unicode/utf8"

	"github.com/millbridge/millbridge/schema"
)

// Message is a whole message for people and programs. One that cannot be decoded has its raw headers instead of fields.
type Message struct {
	ID          string              `json:"id,omitempty"`
	Kind        string              `json:"kind,omitempty"`
	Target      string              `json:"target,omitempty"`
	Name        string              `json:"name,omitempty"`
	Visibility  string              `json:"visibility,omitempty"`
	Key         string              `json:"key,omitempty"`
	OrderingKey string              `json:"ordering_key,omitempty"`
	Tenant      string              `json:"tenant,omitempty"`
	Actor       string              `json:"actor,omitempty"`
	RequestID   string              `json:"request_id,omitempty"`
	ContentType string              `json:"content_type,omitempty"`
	Source      string              `json:"source,omitempty"`
	Time        time.Time           `json:"time,omitzero"`
	ReplayOf    string              `json:"replay_of,omitempty"`
	Metadata    map[string]string   `json:"metadata,omitempty"`
	Headers     map[string][]string `json:"headers,omitempty"`     // only of what cannot be decoded
	Undecodable string              `json:"undecodable,omitempty"` // why
	Payload     []byte              `json:"-"`
}

// MarshalJSON writes the payload as text if it is text, else as base64 under another name.
func (m Message) MarshalJSON() ([]byte, error) {
	type plain Message
	out := struct {
		plain
		Payload       *string `json:"payload,omitempty"`
		PayloadBase64 []byte  `json:"payload_base64,omitempty"`
	}{plain: plain(m)}
	if utf8.Valid(m.Payload) {
		text := string(m.Payload)
		out.Payload = &text
	} else {
		out.PayloadBase64 = m.Payload
	}
	return json.Marshal(out)
}

func newMessage(relative string, header map[string][]string, payload []byte) *Message {
	e, err := schema.Decode(relative, header, payload)
	if err != nil {
		return &Message{Headers: header, Undecodable: schema.OneLine(err.Error()), Payload: payload}
	}
	m := &Message{
		ID: e.ID, Kind: string(e.Kind), Target: e.Target, Name: e.Name, Visibility: string(e.Visibility),
		Key: e.Key, OrderingKey: e.OrderingKey, Tenant: e.Tenant, Actor: e.Actor, RequestID: e.RequestID,
		ContentType: e.ContentType, Source: e.Source, Time: e.Time, Metadata: e.Metadata, Payload: payload,
	}
	if e.Replay != nil {
		m.ReplayOf = e.Replay.Of
	}
	return m
}
