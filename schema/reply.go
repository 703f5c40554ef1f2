package schema

import "encoding/json"

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
