package schema

import "time"

// A Sent is a message in the stream of jobs.
type Sent struct {
	Sequence  uint64
	MessageID string // of the message as it was published first: a replay gives [Replay.Of]
}

// AccountsParams says what to count.
type AccountsParams struct {
	Until    uint64 // the cut: only messages of the stream of jobs up to this sequence
	InStream []Sent // those that are still there
}

// Accounts is what a database knows at one moment of the messages that its outbox has sent, so that all of them can be
// accounted for.
type Accounts struct {
	Inbox    map[string]map[InboxState]int64 // keys by handler and state
	Settled  map[string]int64                // by handler: messages of the stream of jobs up to the cut that are done with
	Pruned   map[string]int64                // by handler: how many of these are only counted, because their rows were old
	Overlap  int64                           // how many of AccountsParams.InStream are settled and still in the stream
	Dropped  map[Stream]int64                // parked rows that an operator dropped
	Accepted map[Stream]int64                // differences that an operator has accepted
	Created  time.Time                       // when the tables were made
}

// A DeadRecord is an inbox row whose message was given up.
type DeadRecord struct {
	Hash      [32]byte // of the key
	Handler   string
	MessageID string
	Replay    int
	Sequence  uint64 // see [Run]
}

// A PublishedKey is an explicit idempotency key that was published.
type PublishedKey struct {
	Hash      []byte
	MessageID string
	At        time.Time
}
