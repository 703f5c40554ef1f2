package jetstream

import (
	"time"

	"github.com/millbridge/millbridge/schema"
)

// A Tally counts rows. Each claimed row ends as exactly one of the others; one that was retried is claimed again.
type Tally struct {
	Claimed int `json:"claimed"` // read to be sent
	Sent    int `json:"sent"`    // the stream has them
	Retried int `json:"retried"` // not stored; they stay in the outbox
	Parked  int `json:"parked"`  // set aside because they can never be sent
	Lost    int `json:"lost"`    // left to another owner
}

func (t *Tally) add(u Tally) {
	t.Claimed += u.Claimed
	t.Sent += u.Sent
	t.Retried += u.Retried
	t.Parked += u.Parked
	t.Lost += u.Lost
}

// ShardState says what a shard is doing.
type ShardState string

// The states of a shard in this process.
const (
	ShardIdle    ShardState = "idle"    // not taken up, or released
	ShardStandby ShardState = "standby" // another process owns it
	ShardRunning ShardState = "running" // ours
	ShardWaiting ShardState = "waiting" // it cannot go on now and tries again; Error says why
	ShardStopped ShardState = "stopped" // it needs a person; Stop, Error and Hint say why and what to do
)

// ShardStatus is what this process knows about a shard.
type ShardStatus struct {
	schema.ShardRef
	StreamName string // of the JetStream stream
	Subject    string // of the cursor
	State      ShardState
	Stop       Stop   // when stopped
	Hint       string // when stopped
	Error      string // last error; empty when it works
	ErrorAt    time.Time
	Tally
	Vanished int // rows that the cursor named and that were gone from the outbox before we removed them

	Ledger    int64  // batch of the last removal
	Batch     int64  // of the cursor
	Total     int64  // rows sent by this shard, all owners
	CursorSeq uint64 // of the cursor in the stream
	InFlight  int    // rows sent and not yet removed
}

// Status tells how each shard is doing. It does no I/O.
func (f *Forwarder) Status() []ShardStatus {
	var all []ShardStatus
	for _, sh := range f.all() {
		sh.mu.Lock()
		all = append(all, sh.status)
		sh.mu.Unlock()
	}
	return all
}
