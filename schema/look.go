package schema

// A Look is what the reader of a shard knows about it, by which a store can tell cheaply whether a read may find
// something. Only the store whose reader made it can use it.
type Look struct {
	ShardRef
	FromSlot, ToSlot int     // of the shard, both included
	Exclude          []int64 // sequences that are in flight
	After            int64   // where nothing more can come up to here

	// Rested is a place beyond After up to which nothing is left either, as long as the transactions below RestedXID that
	// are open in the database are those in Open. 0 is no such place.
	Rested, RestedXID int64
	Open              []int64

	Identity string // of the database that all this is about
}

// A Sight is what a look has found for its reader.
type Sight struct {
	Found bool // a read may find something
	// Seen is the answer of that read, for [ReadParams]. It is nil if the reader has to ask.
	Seen any
}
