package subscribers

import (
	"cmp"
	"container/heap"
	"context"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
)

// held is a message in the hands of an ordered subscription, until it is settled.
type held struct {
	m     *nats.Msg
	d     *Delivery // as it arrived
	hands uint64    // how often it was handed out here before
	size  int
	alive time.Time // when the server last heard of it

	queue   *queue
	running bool                    // it is handed out
	waiting *time.Timer             // until its next try; nil when it is due
	offered bool                    // it is among those that may be next
	leaving bool                    // to be given back when it has run
	cancel  context.CancelCauseFunc // of its run
}

// queue is what is in hand of one key, in the stream's order. Nothing of it is handed out before the first is settled.
type queue struct {
	id      queueID
	list    []*held
	running bool // one of list, which was the first when it was handed out
}

// queueID is a key, or the sequence of a message without one.
type queueID struct {
	key string
	seq uint64
}

// queues are all messages in hand.
type queues struct {
	byID  map[queueID]*queue
	bySeq map[uint64]*held
	offer offers
	bytes int
}

func newQueues() *queues {
	return &queues{byID: make(map[queueID]*queue), bySeq: make(map[uint64]*held)}
}

// add takes a message in. One that is in hand already stays in its place, whatever it is doing.
func (q *queues) add(m *nats.Msg, d *Delivery, key string) (added bool) {
	if old := q.bySeq[d.Sequence]; old != nil {
		old.m, old.d, old.alive = m, d, time.Now()
		return false
	}
	id := queueID{key: key}
	if key == "" {
		id.seq = d.Sequence
	}
	mine := q.byID[id]
	if mine == nil {
		mine = &queue{id: id}
		q.byID[id] = mine
	}
	h := &held{m: m, d: d, alive: time.Now(), size: m.Size(), queue: mine}
	at, _ := slices.BinarySearchFunc(mine.list, d.Sequence, func(h *held, seq uint64) int { return cmp.Compare(h.d.Sequence, seq) })
	mine.list = slices.Insert(mine.list, at, h)
	q.bySeq[d.Sequence] = h
	q.bytes += h.size
	q.offerFirst(mine)
	return true
}

// offerFirst lets the first of a key be next, unless one of the key is out or the first waits.
func (q *queues) offerFirst(of *queue) {
	if of.running || len(of.list) == 0 {
		return
	}
	if first := of.list[0]; first.waiting == nil && !first.offered {
		first.offered = true
		heap.Push(&q.offer, first)
	}
}

// next returns the message that is to be handed out next, the oldest of those that may be, or nil.
func (q *queues) next() *held {
	for len(q.offer) > 0 {
		h := heap.Pop(&q.offer).(*held)
		h.offered = false
		// It may have been given back since, or have got somebody in front of it.
		if q.bySeq[h.d.Sequence] == h && !h.queue.running && h.queue.list[0] == h && h.waiting == nil {
			h.running, h.queue.running = true, true
			return h
		}
	}
	return nil
}

// idle reports whether nothing may be handed out now.
func (q *queues) idle() bool {
	for _, of := range q.byID {
		if of.running || of.list[0].waiting == nil {
			return false
		}
	}
	return true
}

// back ends a run whose message stays in its place.
func (q *queues) back(h *held) {
	h.running, h.queue.running = false, false
	q.offerFirst(h.queue)
}

// remove forgets a message.
func (q *queues) remove(h *held) {
	of := h.queue
	if h.running {
		h.running, of.running = false, false
	}
	if h.waiting != nil {
		h.waiting.Stop()
	}
	delete(q.bySeq, h.d.Sequence)
	q.bytes -= h.size
	of.list = slices.DeleteFunc(of.list, func(other *held) bool { return other == h })
	if len(of.list) == 0 {
		delete(q.byID, of.id)
	}
	q.offerFirst(of)
}

// sorted returns all messages in hand in the stream's order.
func (q *queues) sorted() []*held {
	all := make([]*held, 0, len(q.bySeq))
	for _, h := range q.bySeq {
		all = append(all, h)
	}
	slices.SortFunc(all, func(a, b *held) int { return cmp.Compare(a.d.Sequence, b.d.Sequence) })
	return all
}

// offers is a heap by sequence.
type offers []*held

func (o offers) Len() int           { return len(o) }
func (o offers) Less(i, j int) bool { return o[i].d.Sequence < o[j].d.Sequence }
func (o offers) Swap(i, j int)      { o[i], o[j] = o[j], o[i] }
func (o *offers) Push(h any)        { *o = append(*o, h.(*held)) }
func (o *offers) Pop() any {
	last := len(*o) - 1
	h := (*o)[last]
	(*o)[last] = nil
	*o = (*o)[:last]
	return h
}
