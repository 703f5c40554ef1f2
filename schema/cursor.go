package schema

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
)

// Limits of what a cursor names; a shard that reaches them stops sending until removals are known to be durable.
const (
	MaxCursorBatches = 8
	MaxCursorRows    = 8192
)

// A RowName names one outbox row. The sequence alone does not: numbers come back after a crash with asynchronous
// commit, a restore or a fail-over.
type RowName struct {
	Seq int64
	ID  UUID
}

// A Cursor is the message in the stream that fences a shard's owner and names the rows it has sent. It is written in
// the same atomic batch as those rows, so it never says more or less than what the stream holds.
type Cursor struct {
	Owner   string        // token of the owner that wrote it
	Batch   int64         // k: number of the batch it was written with
	Total   int64         // rows sent by this shard up to and with batch k
	Removed int64         // j: the last batch whose rows are known to be durably removed
	Batches []CursorBatch // j+1 to k in order: every row whose removal is not known to be durable
}

// CursorBatch is one batch whose removal is not known to be durable.
type CursorBatch struct {
	Batch int64 // its number
	Total int64 // rows sent up to and with it
	Rows  []RowName
}

type cursorJSON struct {
	Version int               `json:"v"`
	Owner   string            `json:"owner"`
	Batch   int64             `json:"batch"`
	Total   int64             `json:"total"`
	Removed int64             `json:"removed"`
	Batches []cursorBatchJSON `json:"batches,omitempty"`
}

type cursorBatchJSON struct {
	Batch int64  `json:"batch"`
	Total int64  `json:"total"`
	Rows  string `json:"rows"` // base64 of, for each row, the varint difference to the row before and 16 bytes of id
}

const cursorVersion = 1

// Encode returns the cursor's body.
func (c Cursor) Encode() []byte {
	j := cursorJSON{Version: cursorVersion, Owner: c.Owner, Batch: c.Batch, Total: c.Total, Removed: c.Removed}
	for _, b := range c.Batches {
		packed := make([]byte, 0, len(b.Rows)*20)
		last := int64(0)
		for _, r := range b.Rows {
			packed = binary.AppendVarint(packed, r.Seq-last)
			packed = append(packed, r.ID[:]...)
			last = r.Seq
		}
		j.Batches = append(j.Batches, cursorBatchJSON{b.Batch, b.Total, base64.StdEncoding.EncodeToString(packed)})
	}
	body, err := json.Marshal(j)
	if err != nil {
		panic(err) // numbers and strings always encode
	}
	return body
}

// DecodeCursor reads a cursor's body and checks that it is one that could have been written.
func DecodeCursor(body []byte) (Cursor, error) {
	var j cursorJSON
	if err := json.Unmarshal(body, &j); err != nil {
		return Cursor{}, fmt.Errorf("decode cursor: %w", err)
	}
	if j.Version != cursorVersion {
		return Cursor{}, fmt.Errorf("decode cursor: version %d is not known", j.Version)
	}
	c := Cursor{Owner: j.Owner, Batch: j.Batch, Total: j.Total, Removed: j.Removed}
	rows := 0
	for _, b := range j.Batches {
		names, err := unpackRows(b.Rows)
		if err != nil {
			return Cursor{}, fmt.Errorf("decode cursor: batch %d: %w", b.Batch, err)
		}
		rows += len(names)
		c.Batches = append(c.Batches, CursorBatch{b.Batch, b.Total, names})
	}
	if err := c.check(rows); err != nil {
		return Cursor{}, fmt.Errorf("decode cursor: %w", err)
	}
	return c, nil
}

func (c Cursor) check(rows int) error {
	if c.Owner == "" || c.Removed < 0 || c.Batch < c.Removed || c.Total < 0 {
		return errors.New("numbers do not fit each other")
	}
	if len(c.Batches) > MaxCursorBatches || rows > MaxCursorRows {
		return fmt.Errorf("%d batches with %d rows are above the limits", len(c.Batches), rows)
	}
	if int64(len(c.Batches)) != c.Batch-c.Removed {
		return fmt.Errorf("%d batches are listed, want %d", len(c.Batches), c.Batch-c.Removed)
	}
	total := int64(0)
	for i, b := range c.Batches {
		if b.Batch != c.Removed+1+int64(i) || b.Total < total || b.Total > c.Total {
			return errors.New("batches are not in order")
		}
		total = b.Total
	}
	if n := len(c.Batches); n > 0 && c.Batches[n-1].Total != c.Total {
		return errors.New("the last batch has another total")
	}
	return nil
}

func unpackRows(s string) ([]RowName, error) {
	packed, err := base64.StdEncoding.DecodeString(s)
	if err != nil {
		return nil, err
	}
	var rows []RowName
	last := int64(0)
	for len(packed) > 0 {
		diff, n := binary.Varint(packed)
		if n <= 0 || len(packed) < n+16 {
			return nil, errors.New("row names are cut off")
		}
		last += diff
		rows = append(rows, RowName{Seq: last, ID: UUID(packed[n : n+16])})
		packed = packed[n+16:]
	}
	return rows, nil
}

// Names returns all rows the cursor names, oldest batch first.
func (c Cursor) Names() []RowName {
	var names []RowName
	for _, b := range c.Batches {
		names = append(names, b.Rows...)
	}
	return names
}
