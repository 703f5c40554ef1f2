package postgres

import (
	"context"
	"errors"
)

// Try runs f in a savepoint.
func (u *unit) Try(ctx context.Context, f func() error) error {
	tx, err := u.begin()
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, "SAVEPOINT millbridge_try"); err != nil {
		return wrap("set savepoint", err)
	}
	failed := f()
	if failed != nil {
		if _, err := tx.Exec(ctx, "ROLLBACK TO SAVEPOINT millbridge_try"); err != nil {
			return errors.Join(failed, wrap("roll back to savepoint", err))
		}
	}
	if _, err := tx.Exec(ctx, "RELEASE SAVEPOINT millbridge_try"); err != nil {
		return errors.Join(failed, wrap("release savepoint", err))
	}
	return failed
}
