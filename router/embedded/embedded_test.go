package embedded_test

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/millbridge/millbridge/router/embedded"
	"github.com/millbridge/millbridge/schema"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestOpen(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	in, err := embedded.Open(t.Context(), dir, embedded.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if _, err := embedded.Open(t.Context(), dir, embedded.Options{}); !errors.Is(err, embedded.ErrInUse) {
		t.Errorf("opening it twice: %v", err)
	}

	// The application's table and the outbox commit together.
	if _, err := in.DB.ExecContext(t.Context(), "CREATE TABLE orders (n INTEGER)"); err != nil {
		t.Fatal(err)
	}
	tx, err := in.DB.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback() //nolint:errcheck // after a commit there is nothing to roll back
	if _, err := tx.ExecContext(t.Context(), "INSERT INTO orders VALUES (1)"); err != nil {
		t.Fatal(err)
	}
	if _, err := in.Store.Append(t.Context(), tx, []schema.Envelope{schema.NewEvent("order.placed", nil)}); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	var orders, rows int
	err = in.DB.QueryRowContext(t.Context(), "SELECT (SELECT count(*) FROM orders), (SELECT count(*) FROM millbridge_outbox)").Scan(&orders, &rows)
	if err != nil || orders != 1 || rows != 1 {
		t.Errorf("%d orders, %d rows, %v", orders, rows, err)
	}

	other, err := nats.Connect(in.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	for _, nc := range []*nats.Conn{in.Conn, other} {
		if _, err := nc.RTT(); err != nil {
			t.Error(err)
		}
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if err := in.DB.PingContext(t.Context()); err == nil {
		t.Error("the database is open after Close")
	}
	if !in.Conn.IsClosed() {
		t.Error("the connection is open after Close")
	}
}
