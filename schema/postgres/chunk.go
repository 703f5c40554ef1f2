package postgres

import (
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/millbridge/millbridge/schema"
)

// One statement takes at most this much, so that a parameter stays far below PostgreSQL's limit of 1 GB.
const (
	chunkRows  = 10_000
	chunkBytes = 16 << 20
)

// A chunk is the rows of one insert as columns.
type chunk struct {
	plain    bool // no row has a due time or an explicit key
	streams  []string
	slots    []int32
	ids      uuids
	subjects []string
	headers  [][]byte
	payloads [][]byte
	locks    []int64  // 0 is none
	due      []int64  // microseconds since 1970, or from now on if negative; 0 is none
	keys     [][]byte // empty is none
}

// chunks yields the rows to write in the order given, without those whose key another envelope of the call stands for.
func (a *appending) chunks() func(yield func(*chunk) bool) {
	return func(yield func(*chunk) bool) {
		for from := 0; from < len(a.rows); {
			to, size := from, 0
			for to < len(a.rows) && to-from < chunkRows && size < chunkBytes {
				size += len(a.rows[to].Header) + len(a.rows[to].Payload)
				to++
			}
			if c := a.chunk(from, to); len(c.ids) > 0 && !yield(c) {
				return
			}
			from = to
		}
	}
}

// chunk returns the rows from to to-1.
func (a *appending) chunk(from, to int) *chunk {
	n := to - from
	c := &chunk{
		plain: true, streams: make([]string, 0, n), slots: make([]int32, 0, n), ids: make(uuids, 0, n), subjects: make([]string, 0, n),
		headers: make([][]byte, 0, n), payloads: make([][]byte, 0, n), locks: make([]int64, 0, n),
		due: make([]int64, 0, n), keys: make([][]byte, 0, n),
	}
	for i := from; i < to; i++ {
		key := []byte{}
		if a.keys != nil && a.keys[i] != nil {
			if a.keys[i].env != i {
				continue
			}
			key = a.keys[i].hash[:]
		}
		c.add(a.rows[i], due(a.envs[i]), key)
	}
	return c
}

func (c *chunk) add(r schema.Row, due int64, key []byte) {
	c.streams = append(c.streams, string(r.Stream))
	c.slots = append(c.slots, int32(r.Slot))
	c.ids = append(c.ids, uuid(r.ID))
	c.subjects = append(c.subjects, r.Subject)
	c.headers = append(c.headers, r.Header)
	c.payloads = append(c.payloads, orEmpty(r.Payload))
	c.locks = append(c.locks, r.OrderLock)
	c.due = append(c.due, due)
	c.keys = append(c.keys, key)
	c.plain = c.plain && due == 0 && len(key) == 0
}

func (c *chunk) args(locks []int64) []any {
	return append(make([]any, 0, 13), c.streams, c.slots, c.ids, c.subjects, c.headers, c.payloads, c.locks, locks)
}

// uuid and uuids are what the driver can send in each of its modes. What it does not know, as an array of 16 bytes, it can send
// only where it has asked the server for the parameter's type: not in the modes exec and simple_protocol.
func uuid(id schema.UUID) pgtype.UUID { return pgtype.UUID{Bytes: id, Valid: true} }

type uuids = pgtype.FlatArray[pgtype.UUID]
