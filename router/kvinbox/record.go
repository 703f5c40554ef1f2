package kvinbox

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/millbridge/millbridge/schema"
)

// version is that of the records' format.
const version = 1

// A record is what the bucket keeps of a key. Its times count from the moment at which the server stored it.
type record struct {
	Version    int    `json:"version"`
	Handler    string `json:"handler"`
	Source     string `json:"source"`
	Tenant     string `json:"tenant"`
	Event      string `json:"event,omitempty"`
	Key        string `json:"key"`
	State      string `json:"state"`
	MessageID  string `json:"message_id"`
	BodyHash   []byte `json:"body_hash"`
	Attempts   int    `json:"attempts"`
	Deliveries uint64 `json:"deliveries"`
	Replay     int    `json:"replay"`
	Sequence   uint64 `json:"sequence"`
	Cause      string `json:"cause,omitempty"`
	LastError  string `json:"last_error,omitempty"`
	Owner      string `json:"owner,omitempty"`

	Lease   time.Duration  `json:"lease_ns,omitempty"`
	RetryIn *time.Duration `json:"retry_in_ns,omitempty"` // nil: no attempt is waited for
}

func encode(r schema.InboxRow) ([]byte, error) {
	rec := record{
		Version: version, Handler: r.Key.Handler, Source: r.Key.Source, Tenant: r.Key.Tenant, Event: r.Key.Event, Key: r.Key.Key,
		State: string(r.State), MessageID: r.MessageID, BodyHash: r.BodyHash[:], Attempts: r.Attempts, Deliveries: r.Deliveries,
		Replay: r.Replay, Sequence: r.Sequence, Cause: string(r.Cause), LastError: r.LastError, Owner: r.LeaseOwner,
	}
	if !r.LeaseUntil.IsZero() {
		rec.Lease = r.LeaseUntil.Sub(r.UpdatedAt)
	}
	if !r.NextTry.IsZero() {
		wait := r.NextTry.Sub(r.UpdatedAt)
		rec.RetryIn = &wait
	}
	body, err := json.Marshal(rec)
	if err != nil {
		return nil, fmt.Errorf("encode record: %w", err)
	}
	return body, nil
}

// decode reads a record that the server stored at this time.
func decode(body []byte, at time.Time) (schema.InboxRow, error) {
	var rec record
	if err := json.Unmarshal(body, &rec); err != nil {
		return schema.InboxRow{}, fmt.Errorf("decode record: %w", err)
	}
	if rec.Version != version || len(rec.BodyHash) != 32 {
		return schema.InboxRow{}, fmt.Errorf("decode record: version %d with a hash of %d bytes, want version %d and 32", rec.Version, len(rec.BodyHash), version)
	}
	row := schema.InboxRow{InboxRecord: schema.InboxRecord{
		Key:   schema.InboxKey{Handler: rec.Handler, Source: rec.Source, Tenant: rec.Tenant, Event: rec.Event, Key: rec.Key},
		State: schema.InboxState(rec.State), MessageID: rec.MessageID, BodyHash: [32]byte(rec.BodyHash), Attempts: rec.Attempts,
		Deliveries: rec.Deliveries, Replay: rec.Replay, Sequence: rec.Sequence, Cause: schema.Cause(rec.Cause), LastError: rec.LastError,
		LeaseOwner: rec.Owner, UpdatedAt: at,
	}}
	if rec.Owner != "" {
		row.LeaseUntil = at.Add(rec.Lease)
	}
	if rec.RetryIn != nil {
		row.NextTry = at.Add(*rec.RetryIn)
	}
	return row, nil
}
