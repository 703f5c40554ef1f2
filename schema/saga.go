package schema

import (
	"encoding/json"
	"fmt"
	"time"
)

// SagaStatus says where a saga stands.
type SagaStatus string

const (
	SagaRunning      SagaStatus = "running"      // its next step is on its way
	SagaWaiting      SagaStatus = "waiting"      // for a report, a signal or a time
	SagaCompensating SagaStatus = "compensating" // it takes back what it did, last step first
	SagaDone         SagaStatus = "done"         // it went through
	SagaCompensated  SagaStatus = "compensated"  // everything was taken back
	SagaStuck        SagaStatus = "stuck"        // a person must act
)

// Ended reports whether a saga in this status has nothing left to do.
func (s SagaStatus) Ended() bool { return s == SagaDone || s == SagaCompensated }

// A SagaRecord is a saga as it stands. The store fills in the times, by the database's clock.
type SagaRecord struct {
	Saga      string // its definition, which is the name of its target
	ID        string
	Tenant    string
	Status    SagaStatus
	Step      string
	State     []byte // JSON
	Version   int    // 1 for the first, then 2, ...: the number of its last event
	CreatedAt time.Time
	UpdatedAt time.Time
}

// A SagaEvent is a line of a saga's ledger: one change, with what it asked others to do. It is written once.
type SagaEvent struct {
	N         int // 1 for the first
	Step      string
	Kind      string // of change, for example forward or compensate
	Rationale string // why, in the words of the step
	Intents   []byte // JSON: what the step asked others to do
	State     []byte // JSON: the state after it
	At        time.Time
}

// A SagaFilter selects sagas for a listing, by saga and id. Zero fields do not filter.
type SagaFilter struct {
	Saga   string
	Tenant string
	Status SagaStatus
	Idle   time.Duration // unchanged for at least as long
	// AfterSaga and AfterID name the last one of the listing before.
	AfterSaga, AfterID string
	Limit              int // at most this many; 0 means 100
}

// CheckSaga reports what a store cannot keep of a saga's record and event. The error is a [*ValidationError].
func CheckSaga(rec SagaRecord, ev SagaEvent) error {
	var v validator
	v.target("saga", rec.Saga)
	if rec.ID == "" {
		v.add("id", "is empty")
	}
	v.key("id", rec.ID)
	v.text("tenant", rec.Tenant, MaxContext)
	switch rec.Status {
	case SagaRunning, SagaWaiting, SagaCompensating, SagaDone, SagaCompensated, SagaStuck:
	default:
		v.add("status", fmt.Sprintf("%q is none", OneLine(string(rec.Status))))
	}
	if rec.Version < 1 {
		v.add("version", "must be at least 1")
	}
	v.text("step", rec.Step, MaxName)
	v.json("state", rec.State)
	v.text("event.step", ev.Step, MaxName)
	v.text("event.kind", ev.Kind, MaxName)
	v.utf8("event.rationale", ev.Rationale)
	v.json("event.intents", ev.Intents)
	v.json("event.state", ev.State)
	return v.err(rec.ID)
}

// json reports what is there and is not JSON.
func (v *validator) json(field string, b []byte) {
	if len(b) > 0 && !json.Valid(b) {
		v.add(field, "is not JSON")
	}
	v.utf8(field, string(b))
}
