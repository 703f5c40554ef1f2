//go:build unix

package pgserver_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/internal/testkit/pgserver"
)

// A server that is killed keeps what was committed; its standby has it too and takes writes after it was promoted.
func TestServer_is_killed_restarted_and_replaced(t *testing.T) {
	t.Parallel()
	primary, err := pgserver.StartWith(pgserver.Options{Settings: "wal_level = replica\nwork_mem = 5MB"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, primary) })
	exec := func(s *pgserver.Server, query string) error {
		conn, err := pgx.Connect(t.Context(), s.URL())
		if err != nil {
			return err
		}
		defer conn.Close(t.Context())
		_, err = conn.Exec(t.Context(), query)
		return err
	}
	if err := exec(primary, `CREATE TABLE x AS SELECT current_setting('work_mem') AS v`); err != nil {
		t.Fatal(err)
	}
	if err := primary.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := exec(primary, `SELECT 1`); err == nil {
		t.Fatal("it answers after it was killed")
	}
	if err := primary.Restart(); err != nil {
		t.Fatal(err)
	}
	if err := exec(primary, `INSERT INTO x SELECT v FROM x WHERE v = '5MB'`); err != nil {
		t.Fatal(err)
	}
	standby, err := primary.Standby(pgserver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, standby) })
	if err := exec(standby, `INSERT INTO x VALUES ('')`); err == nil {
		t.Error("a standby takes writes")
	}
	if err := primary.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := standby.Promote(); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, time.Minute, func() error {
		conn, err := pgx.Connect(t.Context(), standby.URL())
		if err != nil {
			return err
		}
		defer conn.Close(t.Context())
		var n int
		if err := conn.QueryRow(t.Context(), `INSERT INTO x VALUES ('') RETURNING (SELECT count(*) FROM x)`).Scan(&n); err != nil || n != 2 {
			return fmt.Errorf("%d rows, %w", n, err)
		}
		return nil
	})
}

func stop(t *testing.T, s *pgserver.Server) {
	t.Helper()
	if err := s.Stop(); err != nil {
		t.Error(err)
	}
}
