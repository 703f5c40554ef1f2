package jetstream

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/millbridge/millbridge/schema"
)

// A world is a model of one shard: its database, its stream and any number of owners who do not know of each other.
// What is on its way to either may arrive at any later time or never, also when its sender is long gone. Everything the
// owners decide is decided by the code under test; the world only keeps what a database and a stream keep.
type world struct {
	choose func(n int) int // a number below n
	off    modelFaults

	outbox  map[schema.RowName]bool
	open    []schema.RowName // numbers that uncommitted rows have drawn
	nextSeq int64
	nextID  uint64
	ledger  schema.Shard
	known   map[string]bool

	cursor  storedCursor
	lost    bool // a cursor was
	lastSeq uint64
	stream  map[schema.UUID]int // how often each row is stored
	order   []schema.UUID
	made    []schema.UUID        // ordered rows, in the order of their commits
	free    map[schema.UUID]bool // committed rows without order

	owners   []*modelOwner
	flights  []*flight              // batches on their way to the stream
	removals []*schema.RemoveParams // on their way to the database
	log      []string
}

// modelFaults break rules: those of the code under test, and those that it relies on.
type modelFaults struct {
	faults
	careless bool // owners read rows without knowing what became of their removals
	byNumber bool // a removal matches numbers only
	byRange  bool // a removal takes all between two numbers
}

// A modelOwner is an owner between two of its steps.
type modelOwner struct {
	m       machine
	took    bool
	unsure  bool          // whether the rows that its cursor names are removed
	seen    *storedCursor // read, not yet written on
	ledger  schema.Shard
	sending *flight // outcome not known to the owner
}

// A flight is a cursor, with rows or alone.
type flight struct {
	cursor schema.Cursor
	expect uint64
	rows   []schema.RowName
	slow   bool // its sender stands still
	landed bool
	seq    uint64 // if it was stored
}

func newModelWorld(choose func(n int) int, off modelFaults) *world {
	return &world{
		choose: choose, off: off, outbox: make(map[schema.RowName]bool), known: make(map[string]bool),
		stream: make(map[schema.UUID]int), free: make(map[schema.UUID]bool),
	}
}

// draw gives a new row its number.
func (w *world) draw() schema.RowName {
	w.nextID++
	w.nextSeq++
	return schema.RowName{Seq: w.nextSeq, ID: schema.UUID{8: byte(w.nextID >> 16), 9: byte(w.nextID >> 8), 10: byte(w.nextID)}}
}

// publish commits a row of the only ordering key, whose lock sees to it that numbers are in the order of commits.
func (w *world) publish() {
	name := w.draw()
	w.outbox[name] = true
	w.made = append(w.made, name.ID)
}

// commitLate commits a row without order that has had its number for a while.
func (w *world) commitLate() {
	i := w.choose(len(w.open))
	w.outbox[w.open[i]] = true
	w.free[w.open[i].ID] = true
	w.open = slices.Delete(w.open, i, i+1)
}

// crash is one of the database: connections are cut, so nobody knows what became of removals, what was uncommitted is
// gone, and numbers of removed rows come back.
func (w *world) crash() {
	for _, o := range w.owners {
		o.unsure = true
	}
	w.open, w.removals = nil, nil
	w.nextSeq = max(0, w.nextSeq-int64(w.choose(6)))
	for name := range w.outbox {
		w.nextSeq = max(w.nextSeq, name.Seq)
	}
}

// failOver is a crash after which the newest row, which the stream has, was never there.
func (w *world) failOver() {
	var last schema.RowName
	for name := range w.outbox {
		if name.Seq > last.Seq {
			last = name
		}
	}
	if w.stream[last.ID] > 0 {
		delete(w.outbox, last)
		w.crash()
		w.nextSeq = last.Seq - 1
	}
}

func (w *world) acquire() *modelOwner {
	token := fmt.Sprintf("owner-%d", len(w.known))
	w.known[token] = true
	w.ledger.Owner = token
	o := &modelOwner{m: machine{owner: token, faults: w.off.faults}, ledger: w.ledger}
	w.owners = append(w.owners, o)
	return o
}

// land lets a batch arrive. It is stored if its cursor replaces the one that was expected.
func (w *world) land(f *flight) {
	f.landed = true
	w.flights = slices.DeleteFunc(w.flights, func(g *flight) bool { return g == f })
	if w.cursor.Seq != f.expect {
		return
	}
	for _, r := range f.rows {
		w.stream[r.ID]++
		w.order = append(w.order, r.ID)
	}
	decoded, err := schema.DecodeCursor(f.cursor.Encode())
	if err != nil {
		panic(err)
	}
	w.lastSeq += uint64(len(f.rows)) + 1
	f.seq = w.lastSeq
	w.cursor = storedCursor{Cursor: decoded, Seq: f.seq}
}

// send lets an owner write; whether it arrives, and when, is open.
func (w *world) send(o *modelOwner, c schema.Cursor, expect uint64, rows []schema.RowName) {
	o.sending = &flight{cursor: c, expect: expect, rows: rows, slow: w.choose(5) == 0}
	w.flights = append(w.flights, o.sending)
}

// remove does what a removal does when it arrives. known is false if another owner has the shard.
func (w *world) remove(p *schema.RemoveParams) (known bool) {
	w.removals = slices.DeleteFunc(w.removals, func(q *schema.RemoveParams) bool { return q == p })
	if w.ledger.Owner != p.Owner || w.ledger.Batch >= p.Batch {
		return w.ledger.Owner == p.Owner
	}
	for _, n := range p.Names {
		delete(w.outbox, n)
	}
	for n := range w.outbox {
		same := func(m schema.RowName) bool { return m.Seq == n.Seq }
		below := func(m schema.RowName) bool { return m.Seq <= n.Seq }
		above := func(m schema.RowName) bool { return m.Seq >= n.Seq }
		if w.off.byNumber && slices.ContainsFunc(p.Names, same) ||
			w.off.byRange && slices.ContainsFunc(p.Names, below) && slices.ContainsFunc(p.Names, above) {
			delete(w.outbox, n)
		}
	}
	w.ledger.Batch, w.ledger.Total, w.ledger.LedgerOwner, w.ledger.CursorSeq = p.Batch, p.Total, p.Owner, p.CursorSeq
	return true
}

func bySeq(a, b schema.RowName) int { return int(a.Seq - b.Seq) }

// repair is what an operator does about a lost cursor, also when one that is older than the ledger, and was long on its
// way, has come in its place: what the stream has is removed, and a new cursor says as much as the ledger. Nothing takes
// rows out of this stream, so it knows.
func (w *world) repair() {
	if w.ledger.Batch == 0 || !w.behind() {
		return
	}
	for n := range w.outbox {
		if w.stream[n.ID] > 0 {
			delete(w.outbox, n)
		}
	}
	o := w.acquire()
	w.owners = w.owners[:len(w.owners)-1]
	w.land(&flight{
		cursor: schema.Cursor{Owner: o.m.owner, Batch: w.ledger.Batch, Total: w.ledger.Total, Removed: w.ledger.Batch}, expect: w.cursor.Seq,
	})
}

// behind reports whether the cursor is lost, or older than the ledger after one was lost.
func (w *world) behind() bool {
	return w.cursor.Seq == 0 || w.lost && w.cursor.Batch < w.ledger.Batch
}

// step lets one owner do one thing. It returns false if the owner is gone.
func (w *world) step(o *modelOwner) bool {
	switch {
	case o.sending != nil:
		return w.outcome(o)
	case !o.took && o.seen == nil:
		c := w.cursor
		known := c.Seq == 0 || w.known[c.Owner]
		if stop, detail := stopFor(true, o.ledger, c, known); stop != "" {
			if w.ledger.Owner == o.m.owner && !w.behind() {
				w.log = append(w.log, fmt.Sprintf("stopped: %s: %s", stop, detail))
			}
			return false
		}
		if c.Seq != 0 && c.Owner == o.m.owner { // an earlier try was stored after all
			o.m.stored(c.Cursor, c.Seq)
			o.took, o.unsure = true, true
			return true
		}
		o.seen = &c
	case !o.took:
		c := takeOver(o.m.owner, *o.seen, o.ledger, w.off.faults)
		if o.seen.Seq == 0 && w.off.dataOnZero {
			o.m.stored(c, 0)
			o.took, o.unsure = true, true
		} else {
			w.send(o, c, o.seen.Seq, nil)
		}
		o.seen = nil
	case o.m.removed < o.ledger.Batch: // cannot be: taking over has set it
		w.log = append(w.log, "took over behind the ledger")
		return false
	case o.unsure && !w.off.careless, w.choose(2) == 0:
		return w.stepRemoval(o)
	default:
		if rows := w.read(o); len(rows) > 0 {
			w.send(o, o.m.next(rows), o.m.seq, rows)
		}
	}
	return true
}

// outcome is what an owner makes of the answer, or of there being none.
func (w *world) outcome(o *modelOwner) bool {
	f := o.sending
	heard := w.choose(3) > 0
	switch {
	case heard && !f.landed:
		return true // it waits
	case heard && f.seq > 0 && o.took:
		o.sending = nil
		o.m.stored(f.cursor, f.seq)
		return true
	}
	o.sending = nil
	switch {
	case !o.took: // look at cursor and ledger again
		if w.ledger.Owner != o.m.owner {
			return false
		}
		return true
	case w.off.trustMemory:
		o.m.stored(f.cursor, w.cursor.Seq)
	case w.cursor.Seq < o.m.seq, w.cursor.Owner != o.m.owner: // the cursor is lost, or another's
		return false
	default:
		o.m.stored(w.cursor.Cursor, w.cursor.Seq)
	}
	return true
}

func (w *world) stepRemoval(o *modelOwner) bool {
	p, ok := o.m.removal(schema.ShardRef{})
	if !ok {
		o.unsure = false
		return true
	}
	w.removals = append(w.removals, &p)
	if w.choose(4) == 0 { // no answer, and it may be done later
		o.unsure = true
		return true
	}
	o.unsure = false
	if !w.remove(&p) {
		return false
	}
	if o.unsure = w.choose(4) == 0; !o.unsure {
		o.m.removedTo(p.Batch)
	}
	return true
}

// read returns the next rows for an owner, as a reader does.
func (w *world) read(o *modelOwner) []schema.RowName {
	most := min(o.m.room(0, 0, schema.MaxCursorRows), 1+w.choose(4))
	inFlight := make(map[int64]bool)
	for _, n := range o.m.named() {
		inFlight[n.Seq] = true
	}
	var rows []schema.RowName
	for _, n := range slices.SortedFunc(maps.Keys(w.outbox), bySeq) {
		if len(rows) < most && !inFlight[n.Seq] {
			rows = append(rows, n)
		}
	}
	return rows
}

// faultsFound lists rows that are not stored once, or not in order.
func (w *world) faultsFound() []string {
	found := w.log
	count := func(id schema.UUID) {
		if n := w.stream[id]; n != 1 {
			found = append(found, fmt.Sprintf("row %x is stored %d times", id[8:11], n))
		}
	}
	for _, id := range w.made {
		count(id)
	}
	for id := range w.free {
		count(id)
	}
	order := slices.DeleteFunc(slices.Clone(w.order), func(id schema.UUID) bool { return w.free[id] })
	if len(found) == 0 && !slices.Equal(order, w.made) {
		found = append(found, "the order is wrong")
	}
	return found
}

// move makes one thing happen.
func (w *world) move() {
	switch n := w.choose(32); {
	case n < 5:
		w.publish()
	case n == 5:
		w.open = append(w.open, w.draw())
	case n == 6 && len(w.open) > 0:
		w.commitLate()
	case n == 7 && len(w.owners) < 3:
		w.acquire()
	case n == 8 && len(w.owners) > 0 && w.choose(3) == 0:
		w.owners = slices.Delete(w.owners, 0, 1) // a crash
	case n == 9 && w.choose(2) == 0:
		w.crash()
	case n == 9:
		w.failOver()
	case n == 10 && w.choose(3) == 0 && w.ledger.Batch > 0: // before, a lost cursor cannot be told from a new shard
		w.cursor, w.lost = storedCursor{}, true
	case n == 11 && len(w.removals) > 0:
		w.remove(w.removals[w.choose(len(w.removals))])
	case n == 12:
		w.repair()
	case n < 19 && len(w.flights) > 0:
		if f := w.flights[w.choose(len(w.flights))]; !f.slow || w.choose(8) == 0 {
			w.land(f)
		}
	case n == 19 && len(w.flights) > 0: // lost on its way
		i := w.choose(len(w.flights))
		w.flights = slices.Delete(w.flights, i, i+1)
	case len(w.owners) > 0:
		i := w.choose(len(w.owners))
		if !w.step(w.owners[i]) {
			w.owners = slices.Delete(w.owners, i, i+1)
		}
	}
}

// calm lets what is on its way arrive and one owner finish.
func (w *world) calm() {
	for len(w.open) > 0 {
		w.commitLate()
	}
	for len(w.flights) > 0 {
		w.land(w.flights[0])
	}
	for len(w.removals) > 0 {
		w.remove(w.removals[0])
	}
	w.owners = nil
	for range 4000 {
		if len(w.outbox) == 0 || len(w.log) > 0 {
			return
		}
		w.repair()
		if len(w.owners) == 0 {
			w.acquire()
		}
		if !w.step(w.owners[0]) {
			w.owners = nil
		}
		for len(w.flights) > 0 {
			w.land(w.flights[0])
		}
	}
	w.log = append(w.log, fmt.Sprintf("%d rows are left", len(w.outbox)))
}

// play lets owners crash, lose answers and take over from each other at any moment.
func play(choose func(n int) int, off modelFaults) []string {
	w := newModelWorld(choose, off)
	for range 500 {
		w.move()
	}
	w.calm()
	return w.faultsFound()
}

// seeded chooses by chance.
func seeded(seed uint64) func(n int) int { return rand.New(rand.NewPCG(seed, 1)).IntN }

// What rapid finds, it makes small.
func TestMachine_any_interleaving_keeps_each_row_once_and_in_order(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		choose := func(n int) int { return rapid.IntRange(0, n-1).Draw(rt, "choice") }
		if found := play(choose, modelFaults{}); len(found) > 0 {
			rt.Fatal(found[:min(len(found), 5)])
		}
	})
}

func TestMachine_a_thousand_known_interleavings(t *testing.T) {
	t.Parallel()
	for seed := range uint64(1000) {
		if found := play(seeded(seed), modelFaults{}); len(found) > 0 {
			t.Fatalf("seed %d: %v", seed, found[:min(len(found), 5)])
		}
	}
}

func TestMachine_every_rule_is_needed(t *testing.T) {
	t.Parallel()
	for name, off := range map[string]modelFaults{
		"a take-over carries names forward":          {faults: faults{forgetNames: true}},
		"a cursor names all rows not yet removed":    {faults: faults{nameOwnBatchOnly: true}},
		"only the cursor says what is stored":        {faults: faults{trustMemory: true}},
		"no row is sent without a cursor to replace": {faults: faults{dataOnZero: true}},
		"removals are settled before reading":        {careless: true},
		"a removal matches numbers and ids":          {byNumber: true},
		"a removal takes no range":                   {byRange: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(3000) {
				if found := play(seeded(seed), off); len(found) > 0 {
					t.Logf("seed %d: %v", seed, found[0])
					return
				}
			}
			t.Error("the model does not notice that this rule is broken")
		})
	}
}
