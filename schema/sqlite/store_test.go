package sqlite_test

import (
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/schema"
	"github.com/millbridge/millbridge/schema/sqlite"
)

// newStore returns a migrated store on a new file, and its writing side.
func newStore(t *testing.T, opts sqlite.Options) (*sqlite.Store, *sql.DB) {
	t.Helper()
	write, read := testkit.SQLite(t)
	s := sqlite.New(write, read, opts)
	t.Cleanup(s.Close)
	if _, _, err := s.MigrateUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s, write
}

func appendTo(t *testing.T, s *sqlite.Store, envs ...schema.Envelope) []schema.Receipt {
	t.Helper()
	var receipts []schema.Receipt
	err := s.InTx(t.Context(), func(tx *sql.Tx) error {
		var err error
		receipts, err = s.Append(t.Context(), tx, envs)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return receipts
}

var jobsShard = schema.ShardRef{Stream: schema.Jobs, Generation: 1}

func TestLifeOfARow(t *testing.T) {
	t.Parallel()
	s, _ := newStore(t, sqlite.Options{})
	if err := s.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	appendTo(t, s,
		schema.NewJob("shop", "order.paid", []byte{0, 255}, schema.WithKey("k")),
		schema.NewJob("shop", "order.paid", nil),
		schema.NewEvent("order.seen", map[string]int{"n": 1}),
	)
	sh, ok, err := s.Acquire(t.Context(), jobsShard, "me", time.Second)
	if err != nil || !ok || sh.Owner != "me" {
		t.Fatal(sh, ok, err)
	}
	r := s.NewReader(jobsShard, 1)
	rows, err := r.Read(t.Context(), schema.ReadParams{})
	if err != nil || len(rows) != 2 {
		t.Fatal(rows, err)
	}
	if string(rows[0].Payload) != "\x00\xff" || len(rows[1].Payload) != 0 {
		t.Errorf("payloads %q %q", rows[0].Payload, rows[1].Payload)
	}
	p := schema.RemoveParams{ShardRef: jobsShard, Owner: "me", Batch: 1, Total: 2, CursorSeq: 3, Names: []schema.RowName{rows[0].Name(), rows[1].Name(), {Seq: 99}}}
	res, err := s.Remove(t.Context(), p)
	if err != nil || res != (schema.RemoveResult{Removed: 2, Vanished: 1}) {
		t.Fatal(res, err)
	}
	if res, err = s.Remove(t.Context(), p); err != nil || !res.Done {
		t.Fatal(res, err)
	}
	p.Owner = "other"
	if _, err = s.Remove(t.Context(), p); !errors.Is(err, schema.ErrLeaseLost) || schema.KindOf(err) != schema.NotMine {
		t.Fatal(err)
	}
	b, err := s.Backlogs(t.Context())
	if err != nil || len(b) != 1 || b[0].Group != "order.seen" {
		t.Fatal(b, err)
	}
	if err := s.MigrateDown(t.Context(), false); !errors.Is(err, schema.ErrNotEmpty) {
		t.Fatal(err)
	}
	if err := s.MigrateDown(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	if have, want, err := s.SchemaVersion(t.Context()); have != 0 || want != 1 || err != nil {
		t.Fatal(have, want, err)
	}
}
