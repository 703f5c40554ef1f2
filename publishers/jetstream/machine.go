package jetstream

import (
	"slices"

	"github.com/millbridge/millbridge/schema"
)

// A machine is what the owner of a shard knows about it: the cursor as the stream has it and how far its rows are
// known to be removed for good. It does no I/O. What it says to remove is what the cursor names, never what was sent.
type machine struct {
	owner   string
	cursor  schema.Cursor
	seq     uint64 // of the cursor in the stream
	removed int64  // j: the last batch whose removal is known to be durable

	faults faults
}

// faults break a rule on purpose, so that tests can show that it is needed. Nothing but a test sets them.
type faults struct {
	forgetNames      bool // a take-over does not carry names forward
	nameOwnBatchOnly bool // a cursor names only the rows it was written with
	trustMemory      bool // what was sent counts as stored, whatever the cursor says
	dataOnZero       bool // a first owner sends rows without a cursor to replace
	lowSequences     bool // a stream made anew counts from one
}

// takeOver returns the cursor with which owner takes over from the one in the stream: the same batch number, and all
// names whose removal the ledger does not prove. With none in the stream it is the first cursor of all.
func takeOver(owner string, found storedCursor, ledger schema.Shard, f faults) schema.Cursor {
	if found.Seq == 0 {
		return schema.Cursor{Owner: owner}
	}
	c := schema.Cursor{Owner: owner, Batch: found.Batch, Total: found.Total, Removed: ledger.Batch, Batches: after(found.Batches, ledger.Batch)}
	if f.forgetNames {
		c.Batches = nameless(c.Batches)
	}
	return c
}

// after returns the batches with a number above n.
func after(batches []schema.CursorBatch, n int64) []schema.CursorBatch {
	for i, b := range batches {
		if b.Batch > n {
			return batches[i:len(batches):len(batches)]
		}
	}
	return nil
}

// nameless is for faults.
func nameless(batches []schema.CursorBatch) []schema.CursorBatch {
	without := slices.Clone(batches)
	for i := range without {
		without[i].Rows = nil
	}
	return without
}

// next returns the cursor to write with a batch of rows. It carries forward the names of all rows whose removal is not
// known to be durable. Without rows it says the same as the cursor in the stream.
func (m *machine) next(rows []schema.RowName) schema.Cursor {
	c := schema.Cursor{Owner: m.owner, Batch: m.cursor.Batch, Total: m.cursor.Total, Removed: m.removed, Batches: after(m.cursor.Batches, m.removed)}
	if len(rows) == 0 {
		return c
	}
	c.Batch++
	c.Total += int64(len(rows))
	if m.faults.nameOwnBatchOnly {
		c.Batches = nameless(c.Batches)
	}
	c.Batches = append(c.Batches, schema.CursorBatch{Batch: c.Batch, Total: c.Total, Rows: rows})
	return c
}

// stored takes over a cursor of ours that the stream has: the server confirmed it, or it was read.
func (m *machine) stored(c schema.Cursor, seq uint64) {
	m.cursor, m.seq = c, seq
	m.removed = max(m.removed, c.Removed)
}

// room tells how many more rows may be sent when staged batches of rows rows wait for their cursor, and a cursor may
// name at most so many; 0 until removals have caught up.
func (m *machine) room(staged, rows, most int) int {
	for _, b := range after(m.cursor.Batches, m.removed) {
		staged++
		rows += len(b.Rows)
	}
	if staged >= schema.MaxCursorBatches {
		return 0
	}
	return max(0, most-rows)
}

// removal returns the rows that the cursor names and whose removal is not known to be durable. ok is false if there
// are none.
func (m *machine) removal(ref schema.ShardRef) (p schema.RemoveParams, ok bool) {
	if m.removed >= m.cursor.Batch {
		return p, false
	}
	p = schema.RemoveParams{ShardRef: ref, Owner: m.owner, Batch: m.cursor.Batch, Total: m.cursor.Total, CursorSeq: m.seq, Removed: m.removed}
	for _, b := range after(m.cursor.Batches, m.removed) {
		p.Names = append(p.Names, b.Rows...)
	}
	return p, true
}

// removedTo notes that the rows of all batches up to n are removed for good.
func (m *machine) removedTo(n int64) { m.removed = max(m.removed, n) }

// named returns the names that the cursor carries and whose removal is not known to be durable.
func (m *machine) named() []schema.RowName {
	var names []schema.RowName
	for _, b := range after(m.cursor.Batches, m.removed) {
		names = append(names, b.Rows...)
	}
	return names
}
