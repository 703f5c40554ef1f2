package schema

import (
	"encoding/json"
	"fmt"
)

// ReplyTo names the job that reports how a job has ended.
type ReplyTo struct {
	Target string
	Action string
	Ref    string // given back in the report; limits as of a key
}

// An Outcome is the payload of the report that [ReplyTo] asks for. A job that died is reported, and once more when it
// was replayed: Replay tells the reports apart.
type Outcome struct {
	Ref    string          `json:"ref"`
	ID     string          `json:"id"`     // of the job that is reported; a replay gives [Replay.Of]
	Key    string          `json:"key"`    // its idempotency key
	Target string          `json:"target"` // its target
	Action string          `json:"action"`
	Replay int             `json:"replay"` // 0 for the original
	OK     bool            `json:"ok"`
	Result json.RawMessage `json:"result,omitempty"` // with OK: what the handler answered; may be empty
	Cause  Cause           `json:"cause,omitempty"`  // without OK
	Reason string          `json:"reason,omitempty"` // without OK: the last error, one line
}

// Report returns the job that reports how e has ended to whoever has asked for that, with all that o says of e filled in;
// ok is false if nobody has. It has a key of its own for each replay, so that publishing it again changes nothing.
func (e Envelope) Report(o Outcome) (job Envelope, ok bool) {
	to := e.ReplyTo
	if to == nil || e.Kind != KindJob {
		return Envelope{}, false
	}
	o.Ref, o.ID, o.Key, o.Target, o.Action = to.Ref, e.ID, e.IdempotencyKey(), e.Target, e.Name
	if r := e.Replay; r != nil {
		o.ID, o.Replay = r.Of, r.Number
	}
	return NewJob(to.Target, to.Action, o, WithKey(fmt.Sprintf("%s/%d/report", o.ID, o.Replay)), WithTenant(e.Tenant),
		WithActor(e.Actor), WithRequestID(e.RequestID), WithTrace(e.TraceParent, e.TraceState)), true
}
