package schema

import (
	"encoding/binary"
	"time"
)

// A Row is a row of the outbox: a message that is not yet in its stream. Header and Payload are what will be sent.
type Row struct {
	Seq       int64
	ID        UUID // see [RowID]
	Stream    Stream
	Slot      uint16 // see [Envelope.Slot]
	Subject   string // without prefix
	OrderLock int64  // number of the ordering key's lock; 0 without an ordering key
	Header    []byte // as databases keep it; see [Row.Block]
	Payload   []byte
	CreatedAt time.Time // by the database's clock
}

// NewRow returns the row that stores e, which must be valid. Seq and CreatedAt are the database's to fill in.
func NewRow(e Envelope) Row {
	block, rest := encodeHeader(e)
	return newRow(e, e.Subject(), block, rest)
}

// CheckedRow is [Envelope.Validate] and [NewRow] in one, for what both need is made once.
func CheckedRow(e Envelope, maxPayload int) (Row, error) {
	subject := e.Subject()
	block, rest := encodeHeader(e)
	if err := e.validate(maxPayload, len(subject), len(block)); err != nil {
		return Row{}, err
	}
	return newRow(e, subject, block, rest), nil
}

func newRow(e Envelope, subject string, block []byte, rest int) Row {
	r := Row{ID: RowID(e.ID), Stream: e.Stream(), Subject: subject, Payload: e.Payload}
	r.Header = r.stored(e, block, rest)
	h, ordered := e.OrderHash()
	r.Slot = e.slot(h, ordered)
	if ordered {
		r.OrderLock = int64(binary.BigEndian.Uint64(h[:8]))
		if r.OrderLock == 0 {
			r.OrderLock = 1
		}
	}
	return r
}

// Name returns the name that removal uses.
func (r Row) Name() RowName { return RowName{Seq: r.Seq, ID: r.ID} }

// Envelope decodes the row's message.
func (r Row) Envelope() (Envelope, error) {
	h, err := ParseHeader(r.Block())
	if err != nil {
		return Envelope{}, err
	}
	return Decode(r.Subject, h, r.Payload)
}

// A Receipt answers for one published envelope.
type Receipt struct {
	ID       string // the message that stands for this key: the new one, or the one published before
	Existing bool   // the key had been used with the same content; nothing was written
}

// A ShardRef names one shard of one stream. The generation changes with the number of shards.
type ShardRef struct {
	Stream     Stream
	Generation int
	Shard      int
}

// Slots returns the first and the last slot of the shard, one of so many.
func (r ShardRef) Slots(shards int) (first, last int) {
	shards = max(shards, 1)
	start := func(shard int) int { return (shard<<16 + shards - 1) / shards } // the lowest slot with slot*shards>>16 == shard
	return start(r.Shard), start(r.Shard+1) - 1
}

// A Shard is a row of the ledger: who owns the shard and how far its rows have been removed. The ledger never decides
// what to send.
type Shard struct {
	ShardRef
	Owner       string        // token of the last owner to acquire it; empty if none did
	LeaseLeft   time.Duration // until the lease ends, by the database's clock; 0 or less means free
	LedgerOwner string        // the owner that last removed rows
	Batch       int64         // the last batch whose rows were removed
	Total       int64         // rows removed up to and with it
	CursorSeq   uint64        // stream sequence of the cursor that named them
	UpdatedAt   time.Time     // when they were, by the database's clock
}

// OutboxInfo is what a database says about its outbox.
type OutboxInfo struct {
	ID         string // 16 of a-z and 0-9; part of cursor subjects and of the messages' source
	Bound      bool   // the database is the one the id was given to; false after a copy or a restore elsewhere
	MaxPayload int    // bytes
	Generation map[Stream]int
	Shards     map[Stream]int // number of shards of the current generation
}

// ReadParams limits one read of an outbox shard.
type ReadParams struct {
	Exclude  []int64 // sequences that are in flight
	GoOn     bool    // all rows that reads have returned since the last one without GoOn are in flight or removed
	MaxRows  int
	MaxBytes int // of header and payload, as they are stored; at least one row is returned whatever its size
	// Removed is the batch up to which the reader knows rows to be removed. If the ledger is behind it, rows may have come
	// back that were sent, and the answer is [ErrRecovered].
	Removed int64
	// Seen is what a look at what this reader said last has found for it. It takes the place of asking the database, unless
	// something was removed since.
	Seen any
}

// RemoveParams names what one removal takes out of the outbox.
type RemoveParams struct {
	ShardRef
	Owner     string
	Batch     int64 // the ledger's new batch
	Total     int64 // the ledger's new total
	CursorSeq uint64
	Names     []RowName
	Removed   int64 // as in [ReadParams]
}

// RemoveResult tells what a removal found.
type RemoveResult struct {
	Removed  int  // rows deleted
	Vanished int  // named rows that were gone already
	Done     bool // the ledger had this batch already; nothing was written
}

// ParkParams names a row that can never be forwarded.
type ParkParams struct {
	ShardRef
	Owner  string
	Name   RowName
	Reason string
}

// TendResult tells what the upkeep of an outbox did.
type TendResult struct {
	Moved   int           // scheduled rows that became due
	Parked  int           // rows moved behind a parked row of their ordering key
	NextDue time.Duration // until the next scheduled row is due; 0 if there is none
	More    bool          // a step has reached its limit: there is probably more to do
}

// A ParkedRow is an outbox row that can never be forwarded, or that waits behind one.
type ParkedRow struct {
	Row
	Reason   string
	Behind   bool // it is here only because of its ordering key
	ParkedAt time.Time
}

// A ScheduledRow is a message that waits for its time.
type ScheduledRow struct {
	Row
	DueAt time.Time
}

// Backlog counts waiting rows of one destination.
type Backlog struct {
	Where  string // "outbox", "scheduled" or "parked"
	Stream Stream
	Group  string        // target of jobs, handler of replays, name of events
	Rows   int64         //
	Oldest time.Duration // age of the oldest, by the database's clock
}

// A RowFilter selects rows for a listing, oldest first. Zero fields do not filter.
type RowFilter struct {
	Stream Stream
	Group  string // as in [Backlog]
	ID     string // message id
	After  int64  // only sequences above
	Limit  int    // at most this many; 0 means 100
}

// InboxKey names one handling: a key is handled once per handler.
type InboxKey struct {
	Handler string
	Source  string
	Tenant  string
	Event   string // name of an event: publishers' keys are unique within it; empty for jobs
	Key     string
}

// Hash names the key in 32 bytes, as the inbox stores it.
func (k InboxKey) Hash() [32]byte {
	return hashFields("inbox", k.Handler, k.Source, k.Tenant, k.Event, k.Key)
}

// InboxKeyOf returns the key of e for one handler.
func InboxKeyOf(handler string, e Envelope) InboxKey {
	k := InboxKey{Handler: handler, Source: e.Source, Tenant: e.Tenant, Key: e.IdempotencyKey()}
	if e.Kind == KindEvent {
		k.Event = e.Name
	}
	return k
}

// InboxState is the state of one key for one handler.
type InboxState string

const (
	InboxRunning InboxState = "running" // being handled, or waiting for its next attempt
	InboxDone    InboxState = "done"    // handled; later deliveries are acked unhandled
	InboxDead    InboxState = "dead"    // given up; a dead letter has been or will be written
	InboxDropped InboxState = "dropped" // given up, and an operator dropped the dead letter; treated like done
)

// A Run is one delivery that wants to be handled.
type Run struct {
	Key       InboxKey
	Owner     string        // token of this run; new for each delivery
	MessageID string        // of the first message: a replay gives [Replay.Of]
	BodyHash  [32]byte      // see [Envelope.BodyHash]
	Replay    int           // 0 for an original
	Sequence  uint64        // of the message in the stream of jobs if the store's own outbox sent it, else 0; see [Accounts]
	Lease     time.Duration // how long this run keeps others out without renewal
}

// Claim is the inbox's answer to a Run.
type Claim uint8

const (
	ClaimRun        Claim = iota // handle it
	ClaimDone                    // already handled: ack
	ClaimDead                    // given up before: make sure the dead letter is there, then ack
	ClaimBusy                    // another run holds the key, or its next attempt is not due: costs no attempt
	ClaimReused                  // the key belongs to other content: dead-letter this message
	ClaimSuperseded              // a later replay has taken over: ack
)

// An InboxRecord is what the inbox knows about a key.
type InboxRecord struct {
	Key        InboxKey // the store fills in Handler; others only where it keeps them
	State      InboxState
	MessageID  string
	BodyHash   [32]byte
	Attempts   int    // failed attempts recorded
	Deliveries uint64 // the broker's delivery count at the last recorded settle
	Replay     int
	Sequence   uint64 // of the last run, see [Run]
	Cause      Cause  // of death
	LastError  string // one line
	LeaseOwner string // empty when nobody runs it
	NextTry    time.Time
	UpdatedAt  time.Time
}

// ClaimResult is the answer to a Run with the record it was decided on.
type ClaimResult struct {
	Claim  Claim
	Record InboxRecord
	Wait   time.Duration // ClaimBusy: until the lease or the wait for the next attempt ends, by the database's clock; 0 if unknown
}

// A Failure is recorded when a handler has failed or a verdict was reached. Recording the one of a delivery again, because
// the answer of the first call was lost, changes nothing.
type Failure struct {
	Reason     string // one line
	Attempted  bool   // the handler ran: counts as an attempt
	Attempts   int    // recorded when the run was let start, see [InboxRecord.Records]
	Deliveries uint64 // the broker's delivery count now
	Dead       bool   // verdict: give up
	Cancelled  bool   // verdict: no longer wanted. The key is done, with [CauseCancelled] and the reason
	Cause      Cause  // with Dead
	RetryIn    time.Duration
}
