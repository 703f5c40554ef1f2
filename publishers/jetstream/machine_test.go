package jetstream

import (
	"testing"

	"github.com/millbridge/millbridge/schema"
)

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
		"no cursor in its place":  {true, false, 5, storedCursor{Seq: 9, bad: errKilled}, StopUnreadable},
		"nothing sent, and that":  {true, false, 0, storedCursor{Seq: 9, bad: errKilled}, StopUnreadable},
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
