package postgres_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/millbridge/millbridge/schema"
	"github.com/millbridge/millbridge/schema/postgres"
)

// What a look has seen is what a read would answer, row for row, and the read asks nothing.
func TestPeek_sees_what_a_read_returns(t *testing.T) {
	t.Parallel()
	s, pool := setup(t)
	looking, reading := s.NewReader(wholeStream, 1), s.NewReader(wholeStream, 1)
	read := func(r *postgres.Reader, p schema.ReadParams) []schema.Row {
		t.Helper()
		rows, err := r.Read(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		return rows
	}
	read(looking, schema.ReadParams{})
	read(reading, schema.ReadParams{})
	seen := func(exclude ...int64) schema.Sight {
		t.Helper()
		sights, err := s.Peek(t.Context(), []schema.Look{looking.Look(schema.ReadParams{Exclude: exclude})})
		if err != nil {
			t.Fatal(err)
		}
		return sights[0]
	}
	put := func(envs ...schema.Envelope) {
		t.Helper()
		tx := begin(t, pool, pgx.ReadCommitted)
		publish(t, s, tx, envs...)
		commit(t, tx)
	}
	for i := range 15 {
		put(schema.NewJob("crm", "create", fmt.Appendf(nil, "%d", i), schema.WithOrderingKey(fmt.Sprint(i%3)), schema.WithMetadata(map[string]string{"n": fmt.Sprint(i)})))
	}
	all := read(reading, schema.ReadParams{})
	for name, p := range map[string]schema.ReadParams{
		"all":        {},
		"some rows":  {MaxRows: 4},
		"some bytes": {MaxBytes: size(all[:6])},
		"one row":    {MaxBytes: 1},
		"not all":    {Exclude: []int64{all[0].Seq, all[7].Seq}},
	} {
		sight := seen(p.Exclude...)
		if !sight.Found || sight.Seen == nil {
			t.Fatalf("%s: the look found %+v", name, sight)
		}
		want := read(reading, p)
		p.Seen = sight.Seen
		if got := read(looking, p); !slices.EqualFunc(got, want, sameRow) {
			t.Errorf("%s: the look saw %v, a read %v", name, ids(t, got), ids(t, want))
		}
	}

	put(job("one-more"))
	if sight := seen(); !sight.Found || sight.Seen != nil {
		t.Errorf("a look at many rows found %+v, want no more than that they are there", sight)
	}
	exclude := make([]int64, len(all))
	for i, row := range all {
		exclude[i] = row.Seq
	}
	if sight := seen(exclude...); sight.Seen == nil {
		t.Errorf("a look at one row found %+v", sight)
	}
	put(schema.NewJob("crm", "create", make([]byte, 40<<10)))
	if sight := seen(exclude...); !sight.Found || sight.Seen != nil {
		t.Errorf("a look at a large row found %+v, want no more than that it is there", sight)
	}
}

func size(rows []schema.Row) (n int) {
	for _, row := range rows {
		n += len(row.Header) + len(row.Payload)
	}
	return n
}

func sameRow(a, b schema.Row) bool {
	return a.Name() == b.Name() && a.Stream == b.Stream && a.Slot == b.Slot && a.Subject == b.Subject && a.OrderLock == b.OrderLock &&
		a.CreatedAt.Equal(b.CreatedAt) && bytes.Equal(a.Header, b.Header) && bytes.Equal(a.Payload, b.Payload)
}

// What was seen before a removal is not believed after it: the rows may be those that are removed.
func TestPeek_before_a_removal(t *testing.T) {
	t.Parallel()
	s, pool := setup(t)
	if _, _, err := s.Acquire(t.Context(), wholeStream, "me", time.Hour); err != nil {
		t.Fatal(err)
	}
	r := newTail(t, s)
	r.wants()
	tx := begin(t, pool, pgx.ReadCommitted)
	publish(t, s, tx, job("a"), job("b"))
	commit(t, tx)
	sight := r.peek(r.Look(schema.ReadParams{}))
	if sight.Seen == nil {
		t.Fatalf("the look found %+v", sight)
	}
	rows, err := r.Read(t.Context(), schema.ReadParams{})
	if err != nil || len(rows) != 2 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	removal := schema.RemoveParams{ShardRef: wholeStream, Owner: "me", Batch: 1, Total: 1, CursorSeq: 1, Names: []schema.RowName{rows[0].Name()}}
	if _, err := s.Remove(t.Context(), removal); err != nil {
		t.Fatal(err)
	}
	rows, err = r.Read(t.Context(), schema.ReadParams{Removed: 1, Seen: sight.Seen})
	if got := ids(t, rows); err != nil || !slices.Equal(got, []string{"b"}) {
		t.Errorf("read %v, %v, want what is left", got, err)
	}
}
