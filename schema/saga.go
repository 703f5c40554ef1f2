package schema

import "time"

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
