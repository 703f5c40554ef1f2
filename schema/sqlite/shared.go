package sqlite

import (
	"context"
	"database/sql"
	"time"

	"github.com/millbridge/millbridge/schema"
)

// Take reserves n starts of something whose rate is limited over all processes, evenly spaced by every, and returns how
// long to wait until the first of them. Starts that are not used are lost. Without n or every there is no wait.
func (s *Store) Take(ctx context.Context, name string, every time.Duration, n int) (wait time.Duration, err error) {
	if every <= 0 || n <= 0 {
		return 0, nil
	}
	err = s.update(ctx, "reserve starts", func(tx *sql.Tx) error {
		now, all := s.now(), every.Nanoseconds()*int64(n)
		var next int64
		if err := tx.QueryRowContext(ctx, `INSERT INTO millbridge_rates (name, next_at, taken_at) VALUES (?1, ?2 + ?3, ?2)
			ON CONFLICT (name) DO UPDATE SET taken_at = ?2,
				next_at = CASE WHEN taken_at > ?2 THEN ?2 ELSE max(next_at, ?2) END + ?3 -- the first: the clock has gone back since
			RETURNING next_at`, name, now, all).Scan(&next); err != nil {
			return err
		}
		wait = time.Duration(next - all - now)
		return nil
	})
	return wait, err
}

// Hold takes the lease of that name for ttl, or renews it, unless another owner has it. left is how long it lasts.
func (s *Store) Hold(ctx context.Context, name, owner string, ttl time.Duration) (held bool, left time.Duration, err error) {
	err = s.update(ctx, "hold lease", func(tx *sql.Tx) error {
		now := s.now()
		if _, err := tx.ExecContext(ctx, `INSERT INTO millbridge_leases (name, owner, lease_until) VALUES (?1, ?2, ?3)
			ON CONFLICT (name) DO UPDATE SET owner = ?2, lease_until = ?3 WHERE owner = ?2 OR lease_until <= ?4`,
			name, owner, now+ttl.Nanoseconds(), now); err != nil {
			return err
		}
		return tx.QueryRowContext(ctx, "SELECT owner = ?2, max(lease_until - ?3, 0) FROM millbridge_leases WHERE name = ?1", name, owner, now).Scan(&held, &left)
	})
	return held && err == nil, left, err
}

// LetGo ends the owner's lease of that name; if it has none, nothing changes.
func (s *Store) LetGo(ctx context.Context, name, owner string) error {
	return s.update(ctx, "let go of lease", func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "DELETE FROM millbridge_leases WHERE name = ? AND owner = ?", name, owner)
		return err
	})
}

const circuitColumns = "handler, failures, opened_at, probe_at, reason"

// scanCircuit reads a circuit as it is now.
func scanCircuit(c *schema.Circuit, now int64, scan func(dest ...any) error) error {
	var opened, probe int64
	err := scan(&c.Handler, &c.Failures, &opened, &probe, &c.Reason)
	if opened != 0 {
		c.Open, c.Since, c.Left = true, at(opened), time.Duration(probe-now)
	}
	return err
}

// Circuits returns the circuits of all handlers that have failed since they last went well.
func (s *Store) Circuits(ctx context.Context) ([]schema.Circuit, error) {
	now := s.now()
	list, err := collect(ctx, s.read, func(rows *sql.Rows, c *schema.Circuit) error { return scanCircuit(c, now, rows.Scan) },
		"SELECT "+circuitColumns+" FROM millbridge_circuits ORDER BY handler")
	return list, wrap("read circuits", err)
}

// CircuitFailed counts a failure of a handler. With the limit-th in a row its circuit opens; each further one, as that
// of a probe, keeps it open for cooldown from now on.
func (s *Store) CircuitFailed(ctx context.Context, handler, reason string, limit int, cooldown time.Duration) (c schema.Circuit, err error) {
	err = s.update(ctx, "count failure of handler", func(tx *sql.Tx) error {
		now := s.now()
		return scanCircuit(&c, now, tx.QueryRowContext(ctx, `INSERT INTO millbridge_circuits (handler, failures, opened_at, probe_at, reason)
			VALUES (?1, 1, iif(?3 <= 1, ?4, 0), iif(?3 <= 1, ?5, 0), ?2)
			ON CONFLICT (handler) DO UPDATE SET failures = failures + 1, reason = ?2,
				opened_at = iif(failures + 1 >= ?3, iif(opened_at > 0, opened_at, ?4), 0), probe_at = iif(failures + 1 >= ?3, ?5, 0)
			RETURNING `+circuitColumns, handler, schema.OneLine(reason), limit, now, now+cooldown.Nanoseconds()).Scan)
	})
	return c, err
}

// CircuitProbe asks whether a run may probe a handler whose circuit is open. One asker gets true when the circuit has
// cooled down; the next one can get it cooldown later, if the first has not reported by then.
func (s *Store) CircuitProbe(ctx context.Context, handler string, cooldown time.Duration) (ok bool, err error) {
	const due = "handler = ? AND opened_at > 0 AND probe_at <= ?"
	now := s.now()
	if ok, err = s.exists(ctx, "SELECT 1 FROM millbridge_circuits WHERE "+due, handler, now); err != nil || !ok {
		return false, wrap("probe handler", err)
	}
	err = s.update(ctx, "probe handler", func(tx *sql.Tx) error {
		n, err := affected(ctx, tx, "UPDATE millbridge_circuits SET probe_at = ? WHERE "+due, now+cooldown.Nanoseconds(), handler, now)
		ok = n == 1
		return err
	})
	return ok && err == nil, err
}

// CircuitClosed forgets the failures of a handler that went well.
func (s *Store) CircuitClosed(ctx context.Context, handler string) error {
	found, err := s.exists(ctx, "SELECT 1 FROM millbridge_circuits WHERE handler = ?", handler)
	if err != nil || !found {
		return wrap("close circuit", err)
	}
	return s.update(ctx, "close circuit", func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "DELETE FROM millbridge_circuits WHERE handler = ?", handler)
		return err
	})
}

// Durability returns how much of what it confirms this database keeps, and what makes it less than it could be.
func (s *Store) Durability(ctx context.Context) (level schema.Durability, weak string, err error) {
	name, err := s.fileName(ctx)
	switch {
	case err != nil:
		return schema.AnyDurability, "", wrap("read settings", err)
	case name == "":
		return schema.InMemory, "the SQLite database is in memory", nil
	}
	return schema.OnSQLite, "the database is a SQLite file, which is on one machine", nil
}
