package jetstream

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/millbridge/millbridge/schema"
)

// A world is a model of one shard: its database, its stream and any number of owners who do not know of each other.
// Everything the owners do is done by the code under test; the world only keeps what a database and a stream keep.
type world struct {
	rnd      *rand.Rand
	faults   faults
	careless bool // owners read rows without knowing what became of their removals

	outbox  map[schema.RowName]bool
	nextSeq int64
	nextID  uint64
	ledger  schema.Shard
	known   map[string]bool

	cursor storedCursor
	stream map[schema.UUID]int // how often each row is stored
	order  []schema.UUID
	made   []schema.UUID // in the order of their commits

	owners []*modelOwner
	log    []string
}

// A modelOwner is an owner between two of its steps.
type modelOwner struct {
	m       machine
	took    bool
	unsure  bool          // whether a removal was done
	seen    *storedCursor // read, not yet written on
	ledger  schema.Shard
	sending *modelBatch // written, outcome not known to the owner
}

type modelBatch struct {
	cursor schema.Cursor
	expect uint64
	stored bool
}

func (w *world) publish() {
	w.nextID++
	w.nextSeq++
	name := schema.RowName{Seq: w.nextSeq, ID: schema.UUID{8: byte(w.nextID >> 16), 9: byte(w.nextID >> 8), 10: byte(w.nextID)}}
	w.outbox[name] = true
	w.made = append(w.made, name.ID)
}

// reuse gives numbers of removed rows out again, as a database does that comes back from a crash. The crash has cut all
// connections, so no owner knows what became of its removal.
func (w *world) reuse() {
	for _, o := range w.owners {
		o.unsure = true
	}
	w.nextSeq = max(0, w.nextSeq-w.rnd.Int64N(6))
	for name := range w.outbox {
		w.nextSeq = max(w.nextSeq, name.Seq)
	}
}

func (w *world) acquire() {
	token := fmt.Sprintf("owner-%d", len(w.known))
	w.known[token] = true
	w.ledger.Owner = token
	w.owners = append(w.owners, &modelOwner{m: machine{owner: token, faults: w.faults}, ledger: w.ledger})
}

// write stores rows and cursor together, if the cursor replaces the one that was expected.
func (w *world) write(c schema.Cursor, expect uint64, rows []schema.RowName) bool {
	if w.cursor.Seq != expect {
		return false
	}
	for _, r := range rows {
		w.stream[r.ID]++
		w.order = append(w.order, r.ID)
	}
	decoded, err := schema.DecodeCursor(c.Encode())
	if err != nil {
		panic(err)
	}
	w.cursor = storedCursor{Cursor: decoded, Seq: w.cursor.Seq + uint64(len(rows)) + 1}
	return true
}

func (w *world) remove(p schema.RemoveParams) (known bool) {
	if w.ledger.Owner != p.Owner || w.ledger.Batch >= p.Batch {
		return w.ledger.Owner == p.Owner
	}
	for _, n := range p.Names {
		delete(w.outbox, n)
	}
	w.ledger.Batch, w.ledger.Total, w.ledger.LedgerOwner, w.ledger.CursorSeq = p.Batch, p.Total, p.Owner, p.CursorSeq
	return true
}

// step lets one owner do one thing. It returns false if the owner is gone.
func (w *world) step(o *modelOwner) bool {
	switch {
	case o.sending != nil: // the answer comes, or it does not
		lost := w.rnd.IntN(3) == 0
		b := o.sending
		o.sending = nil
		if b.stored && !lost {
			o.m.stored(b.cursor, b.expect+uint64(len(b.cursor.Batches[len(b.cursor.Batches)-1].Rows))+1)
			return true
		}
		if w.faults.trustMemory {
			o.m.stored(b.cursor, w.cursor.Seq)
			return true
		}
		if w.cursor.Owner != o.m.owner {
			return false
		}
		o.m.stored(w.cursor.Cursor, w.cursor.Seq)
	case !o.took && o.seen == nil:
		c := w.cursor
		known := c.Seq == 0 || w.known[c.Owner]
		if stop, detail := stopFor(true, o.ledger, c, known); stop != "" {
			if w.ledger.Owner == o.m.owner {
				w.log = append(w.log, fmt.Sprintf("stopped: %s: %s", stop, detail))
			}
			return false
		}
		o.seen = &c
	case !o.took:
		c := takeOver(o.m.owner, *o.seen, o.ledger, w.faults)
		if w.write(c, o.seen.Seq, nil) {
			o.m.stored(c, w.cursor.Seq)
			o.took = true
		}
		o.seen = nil
	case o.m.removed < o.ledger.Batch: // cannot be: taking over has set it
		w.log = append(w.log, "took over behind the ledger")
		return false
	case o.unsure && !w.careless, w.rnd.IntN(2) == 0:
		o.unsure = false
		if p, ok := o.m.removal(schema.ShardRef{}); ok {
			if !w.remove(p) {
				return false
			}
			if o.unsure = w.rnd.IntN(4) == 0; !o.unsure {
				o.m.removedTo(p.Batch)
			}
		}
	default:
		rows := w.read(o)
		if len(rows) == 0 {
			return true
		}
		b := &modelBatch{cursor: o.m.next(rows), expect: o.m.seq}
		if w.rnd.IntN(5) > 0 { // else it is lost on its way
			b.stored = w.write(b.cursor, b.expect, rows)
		}
		o.sending = b
	}
	return true
}

// read returns the next rows for an owner, as a reader does.
func (w *world) read(o *modelOwner) []schema.RowName {
	most := min(o.m.room(0, 0, schema.MaxCursorRows), 1+w.rnd.IntN(4))
	inFlight := make(map[int64]bool)
	for _, n := range o.m.named() {
		inFlight[n.Seq] = true
	}
	names := slices.SortedFunc(maps.Keys(w.outbox), func(a, b schema.RowName) int { return int(a.Seq - b.Seq) })
	var rows []schema.RowName
	for _, n := range names {
		if len(rows) < most && !inFlight[n.Seq] {
			rows = append(rows, n)
		}
	}
	return rows
}

// faultsFound lists rows that are not stored once, or not in order.
func (w *world) faultsFound() []string {
	found := w.log
	for _, id := range w.made {
		if n := w.stream[id]; n != 1 {
			found = append(found, fmt.Sprintf("row %x is stored %d times", id[8:11], n))
		}
	}
	if len(found) == 0 && !slices.Equal(w.order, w.made) {
		found = append(found, "the order is wrong")
	}
	return found
}

// play runs owners that crash, lose answers and take over from each other at any moment.
func play(seed uint64, f faults, careless bool) []string {
	w := &world{
		rnd: rand.New(rand.NewPCG(seed, 1)), faults: f, careless: careless,
		outbox: make(map[schema.RowName]bool), known: make(map[string]bool), stream: make(map[schema.UUID]int),
	}
	for range 400 {
		switch n := w.rnd.IntN(20); {
		case n < 4:
			w.publish()
		case n == 4 && len(w.owners) < 3:
			w.acquire()
		case n == 5 && len(w.owners) > 0 && w.rnd.IntN(3) == 0:
			w.owners = slices.Delete(w.owners, 0, 1) // a crash
		case n == 6:
			w.reuse()
		case len(w.owners) > 0:
			i := w.rnd.IntN(len(w.owners))
			if !w.step(w.owners[i]) {
				w.owners = slices.Delete(w.owners, i, i+1)
			}
		}
	}
	w.owners = nil
	for range 4000 { // calm
		if len(w.outbox) == 0 {
			break
		}
		if len(w.owners) == 0 {
			w.acquire()
		}
		if !w.step(w.owners[0]) {
			w.owners = nil
			if len(w.log) > 0 {
				break
			}
		}
	}
	return w.faultsFound()
}

func TestMachine_any_interleaving_keeps_each_row_once_and_in_order(t *testing.T) {
	t.Parallel()
	for seed := range uint64(3000) {
		if found := play(seed, faults{}, false); len(found) > 0 {
			t.Fatalf("seed %d: %v", seed, found[:min(len(found), 5)])
		}
	}
}

func TestMachine_every_rule_is_needed(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]faults{
		"a take-over carries names forward":       {forgetNames: true},
		"a cursor names all rows not yet removed": {nameOwnBatchOnly: true},
		"only the cursor says what is stored":     {trustMemory: true},
		"removals are settled before reading":     {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(3000) {
				if len(play(seed, f, f == faults{})) > 0 {
					return
				}
			}
			t.Error("the model does not notice that this rule is broken")
		})
	}
}

func TestMachine_room_ends_at_the_limits_of_a_cursor(t *testing.T) {
	t.Parallel()
	m := machine{owner: "me"}
	m.stored(schema.Cursor{Owner: "me"}, 1)
	for i := range schema.MaxCursorBatches {
		if m.room(0, 0, schema.MaxCursorRows) == 0 {
			t.Fatalf("no room for batch %d", i)
		}
		m.stored(m.next([]schema.RowName{{Seq: int64(i)}}), uint64(i)+2)
	}
	if got := m.room(0, 0, schema.MaxCursorRows); got != 0 {
		t.Errorf("room for %d rows after %d batches", got, schema.MaxCursorBatches)
	}
	m.removedTo(1)
	if got, want := m.room(0, 100, schema.MaxCursorRows), schema.MaxCursorRows-schema.MaxCursorBatches+1-100; got != want {
		t.Errorf("room for %d rows, want %d", got, want)
	}
	if got := m.room(1, 0, schema.MaxCursorRows); got != 0 {
		t.Errorf("room for %d rows with a batch staged", got)
	}
	if got := m.room(0, 0, 5); got != 0 {
		t.Errorf("room for %d rows where the server takes five names", got)
	}
	if _, err := schema.DecodeCursor(m.next([]schema.RowName{{Seq: 100}}).Encode()); err != nil {
		t.Errorf("a full cursor cannot be read: %v", err)
	}
}

func TestStops(t *testing.T) {
	t.Parallel()
	cursor := func(j, k int64) storedCursor {
		return storedCursor{Cursor: schema.Cursor{Owner: "x", Batch: k, Removed: j}, Seq: 9}
	}
	for name, c := range map[string]struct {
		bound, known bool
		ledger       int64
		cursor       storedCursor
		want         Stop
	}{
		"new":                     {true, true, 0, storedCursor{}, ""},
		"ledger within cursor":    {true, true, 5, cursor(3, 7), ""},
		"ledger at j":             {true, true, 3, cursor(3, 7), ""},
		"ledger at k":             {true, true, 7, cursor(3, 7), ""},
		"ledger below j":          {true, true, 2, cursor(3, 7), StopDatabaseBehind},
		"ledger above k":          {true, true, 8, cursor(3, 7), StopStreamBehind},
		"no cursor":               {true, true, 1, storedCursor{}, StopStreamLost},
		"unknown owner":           {true, false, 5, cursor(3, 7), StopForeignOwner},
		"unknown owner, behind":   {true, false, 2, cursor(3, 7), StopDatabaseBehind},
		"copy":                    {false, true, 5, cursor(3, 7), StopClone},
		"unknown owner, new ours": {true, false, 0, cursor(0, 0), StopForeignOwner},
	} {
		got, detail := stopFor(c.bound, schema.Shard{Batch: c.ledger}, c.cursor, c.known)
		if got != c.want || (got == "") != (detail == "") || (got != "") && got.Hint() == "" {
			t.Errorf("%s: %q (%s), want %q", name, got, detail, c.want)
		}
	}
}

func TestBatchLimit_finds_the_refused_row_by_halves(t *testing.T) {
	t.Parallel()
	for _, bad := range []int{0, 1, 357, 500, 998} {
		l, sent, tries := newBatchLimit(schema.MaxBatchRows), 0, 0
		for l.next > 1 || sent+1 <= bad {
			if tries++; tries > 30 {
				t.Fatalf("row %d: not found after %d tries", bad, tries)
			}
			if n := min(l.next, 999-sent); sent+n > bad {
				if n == 1 {
					break
				}
				l.refused(n)
			} else {
				sent += n
				l.sent(n)
			}
		}
		if sent != bad {
			t.Errorf("row %d: %d rows were sent before it", bad, sent)
		}
		l.parked()
		for range 10 {
			l.sent(l.next)
		}
		if l.next != schema.MaxBatchRows {
			t.Errorf("the limit stays at %d", l.next)
		}
	}
}
