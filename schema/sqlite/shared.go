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

// Hold takes the lease of that name for ttl, or renews it, unless another owner has it. left is how long it lasts. If the
// clock has gone back since the other has taken it, it lasts as long as it was taken for, from now on.
func (s *Store) Hold(ctx context.Context, name, owner string, ttl time.Duration) (held bool, left time.Duration, err error) {
	err = s.update(ctx, "hold lease", func(tx *sql.Tx) error {
		now := s.now()
		if _, err := tx.ExecContext(ctx, `INSERT INTO millbridge_leases (name, owner, taken_at, lease_until) VALUES (?1, ?2, ?4, ?3)
			ON CONFLICT (name) DO UPDATE SET owner = iif(lease_until <= ?4, ?2, owner),
				lease_until = iif(owner = ?2 OR lease_until <= ?4, ?3, ?4 + lease_until - taken_at), taken_at = ?4
			WHERE owner = ?2 OR lease_until <= ?4 OR taken_at > ?4`,
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
