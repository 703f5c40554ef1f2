package ops

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/millbridge/millbridge/schema"
)

// ordering checks the order of the rows that a cut's cursors name: within an ordering key it must be that of their
// numbers in the outbox.
type ordering struct {
	named map[schema.UUID]int64
	found map[schema.UUID]bool
	keys  map[int64][]orderedRow // by the ordering key's lock
}

type orderedRow struct {
	row int64 // in the outbox
	seq uint64
	id  string
}

func newOrdering(c cut) *ordering {
	o := &ordering{named: map[schema.UUID]int64{}, found: map[schema.UUID]bool{}, keys: map[int64][]orderedRow{}}
	for _, p := range c.cursors {
		for _, n := range p.Names() {
			o.named[n.ID] = n.Seq
		}
	}
	return o
}

// add takes note of a message of ours.
func (o *ordering) add(relative string, m *stored) {
	id, _ := schema.WatermillHeader(m.Header)
	row := schema.RowID(id)
	number, named := o.named[row]
	if !named {
		return
	}
	o.found[row] = true
	env, err := schema.Decode(relative, m.Header, nil)
	if err != nil || env.OrderingKey == "" {
		return
	}
	lock := schema.NewRow(env).OrderLock
	o.keys[lock] = append(o.keys[lock], orderedRow{number, m.Seq, id})
}

func (o *ordering) check(stream schema.Stream) []Finding {
	var found []Finding
	for _, rows := range o.keys {
		slices.SortFunc(rows, func(a, b orderedRow) int { return cmp.Compare(a.seq, b.seq) })
		for i := 1; i < len(rows); i++ {
			if a, b := rows[i-1], rows[i]; b.row < a.row {
				found = append(found, Finding{
					Kind: FindOutOfOrder, Stream: stream, ID: b.id, Sequence: b.seq, Count: 1,
					Detail: fmt.Sprintf("it was committed before %s of its ordering key and comes after it in the stream", a.id),
				})
			}
		}
	}
	slices.SortFunc(found, func(a, b Finding) int { return cmp.Compare(a.Sequence, b.Sequence) })
	return found
}

// twice notices what comes a second time, as long as fewer than a million others came in between.
type twice struct{ now, before map[schema.UUID]struct{} }

const twiceKeeps = 1_000_000

func newTwice() *twice { return &twice{now: map[schema.UUID]struct{}{}} }

func (t *twice) seen(id schema.UUID) bool {
	_, now := t.now[id]
	_, before := t.before[id]
	if t.now[id] = struct{}{}; len(t.now) >= twiceKeeps {
		t.now, t.before = map[schema.UUID]struct{}{}, t.now
	}
	return now || before
}
