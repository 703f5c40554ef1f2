package schema

// RepairParams puts a shard's ledger and outbox rows right after database and stream had come apart. All of it happens
// in one transaction, or none.
type RepairParams struct {
	ShardRef
	Owner     string // must own the shard
	Batch     int64  // the ledger's new batch
	Total     int64
	CursorSeq uint64
	Remove    []RowName // rows that the stream has
	Park      []RowName // rows set aside for a person to decide on
	Reason    string    // why they are parked

	RemoveScheduled []RowName // scheduled rows that had become due and that the stream has
	ParkScheduled   []RowName // scheduled rows set aside
}
