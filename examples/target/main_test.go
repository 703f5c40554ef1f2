package main

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millbridge/millbridge/examples/target/carrier"
	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/handlers/handlertest"
	"github.com/millbridge/millbridge/publishers"
	"github.com/millbridge/millbridge/router"
	"github.com/millbridge/millbridge/router/embedded"
	"github.com/millbridge/millbridge/schema"
)

func Example() {
	main()
	// Output:
	// carrier: a parcel with key o-7/parcel
	// mail: order o-7 is on its way, parcel P-1138
}

// fake is a carrier that records its calls.
type fake struct{ *handlertest.Recorder }

func (f fake) Book(ctx context.Context, key string, p carrier.Parcel) (carrier.Booked, error) {
	return carrier.Booked{Number: "P-1"}, f.Call(ctx, "book", key, p)
}

// shop is the program with a fake carrier.
type shop struct {
	rec    *handlertest.Recorder
	db     *sql.DB
	outbox publishers.Publisher[*sql.Tx]
	bridge *router.Bridge
}

func openShop(t *testing.T) *shop {
	t.Helper()
	in, err := embedded.Open(t.Context(), filepath.Join(t.TempDir(), "data"), embedded.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := in.Close(); err != nil {
			t.Error(err)
		}
	})
	if _, err := in.DB.ExecContext(t.Context(), `CREATE TABLE orders (number text PRIMARY KEY, state text, parcel text)`); err != nil {
		t.Fatal(err)
	}
	rec := &handlertest.Recorder{ByKey: true}
	bridge, err := open(t.Context(), in, fake{rec})
	if err != nil {
		t.Fatal(err)
	}
	return &shop{rec, in.DB, publishers.NewOutbox(in.Store, publishers.Config{}), bridge}
}

func (s *shop) want(t *testing.T, order, state, parcel string) {
	t.Helper()
	var gotState, gotParcel string
	if err := s.db.QueryRowContext(t.Context(), `SELECT state, parcel FROM orders WHERE number = ?`, order).Scan(&gotState, &gotParcel); err != nil {
		t.Fatal(err)
	}
	if gotState != state || gotParcel != parcel {
		t.Errorf("order %s is %q with parcel %q, want %q with %q", order, gotState, gotParcel, state, parcel)
	}
}

func TestShop_ships_an_order(t *testing.T) {
	t.Parallel()
	s := openShop(t)
	if err := place(t.Context(), s.db, s.outbox, "o-7", 900); err != nil {
		t.Fatal(err)
	}
	tally := handlertest.DrainUntilEmpty(t, s.bridge)
	if tally.Handled != 3 || tally.Dead != 0 { // the booking, its report, and the event for mail
		t.Errorf("tally %+v", tally)
	}
	s.rec.Want(t, handlertest.Call{Action: "book", Key: "o-7/parcel", Args: carrier.Parcel{Order: "o-7", Grams: 900}})
	s.want(t, "o-7", "shipped", "P-1")
}

func TestShop_hears_of_what_cannot_be_shipped(t *testing.T) {
	t.Parallel()
	s := openShop(t)
	s.rec.FailAlways("book", handlers.Permanent(errors.New("no such place")))
	if err := place(t.Context(), s.db, s.outbox, "o-8", 900); err != nil {
		t.Fatal(err)
	}
	if tally := handlertest.DrainUntilEmpty(t, s.bridge); tally.Handled != 1 || tally.Dead != 1 {
		t.Errorf("tally %+v", tally)
	}
	s.want(t, "o-8", "no parcel", "")
}

func TestPlace_commits_both_or_neither(t *testing.T) {
	t.Parallel()
	s := openShop(t)
	if _, err := s.db.ExecContext(t.Context(), `INSERT INTO orders VALUES ('o-9', 'closed', '')`); err != nil {
		t.Fatal(err)
	}
	if err := place(t.Context(), s.db, s.outbox, "o-9", 900); err == nil {
		t.Error("an order was placed twice")
	}
	if err := place(t.Context(), s.db, s.outbox, strings.Repeat("9", 300), 900); !errors.Is(err, schema.ErrInvalid) {
		t.Errorf("an order whose job's key is too long: %v", err)
	}
	if tally := handlertest.DrainUntilEmpty(t, s.bridge); tally.Handled != 0 {
		t.Errorf("tally %+v", tally)
	}
	s.rec.Want(t)
	s.want(t, "o-9", "closed", "")
	var orders int
	if err := s.db.QueryRowContext(t.Context(), `SELECT count(*) FROM orders`).Scan(&orders); err != nil || orders != 1 {
		t.Errorf("%d orders, error %v", orders, err)
	}
}
