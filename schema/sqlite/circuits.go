package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/millbridge/millbridge/schema"
)

const circuitColumns = "handler, failures, failing_at, opened_at, probe_at, disabled_at, reason"

// scanCircuit reads a circuit as it is now.
func scanCircuit(c *schema.Circuit, now int64, scan func(dest ...any) error) error {
	var failing, opened, probe, disabled int64
	err := scan(&c.Handler, &c.Failures, &failing, &opened, &probe, &disabled, &c.Reason)
	if failing != 0 {
		c.Failing = time.Duration(now - failing)
	}
	switch {
	case disabled != 0:
		c.Open, c.Disabled, c.Since = true, true, at(disabled)
	case opened != 0:
		c.Open, c.Since, c.Left = true, at(opened), time.Duration(probe-now)
	}
	return err
}

// Circuits returns the circuits of all handlers that have failed since they last went well, or are disabled.
func (s *Store) Circuits(ctx context.Context) ([]schema.Circuit, error) {
	now := s.now()
	list, err := collect(ctx, s.read, func(rows *sql.Rows, c *schema.Circuit) error { return scanCircuit(c, now, rows.Scan) },
		"SELECT "+circuitColumns+" FROM millbridge_circuits ORDER BY handler")
	return list, wrap("read circuits", err)
}

// CircuitFailed counts a failure of a handler. With the limit-th in a row its circuit opens; each further one, as that
// of a probe, keeps it open for cooldown from now on. With a limit of 0 failures are counted, and it never opens.
func (s *Store) CircuitFailed(ctx context.Context, handler, reason string, limit int, cooldown time.Duration) (c schema.Circuit, err error) {
	err = s.update(ctx, "count failure of handler", func(tx *sql.Tx) error {
		now := s.now()
		return scanCircuit(&c, now, tx.QueryRowContext(ctx, `INSERT INTO millbridge_circuits (handler, failures, failing_at, opened_at, probe_at, disabled_at, reason)
			VALUES (?1, 1, ?4, iif(?3 = 1, ?4, 0), iif(?3 = 1, ?5, 0), 0, ?2)
			ON CONFLICT (handler) DO UPDATE SET failures = failures + 1, failing_at = iif(failing_at > 0, min(failing_at, ?4), ?4),
				reason = iif(disabled_at > 0, reason, ?2), opened_at = iif(failures + 1 >= nullif(?3, 0), iif(opened_at > 0, opened_at, ?4), 0),
				probe_at = iif(failures + 1 >= nullif(?3, 0), ?5, 0)
			RETURNING `+circuitColumns, handler, schema.OneLine(reason), limit, now, now+cooldown.Nanoseconds()).Scan)
	})
	return c, err
}

// CircuitProbe asks whether a run may probe a handler whose circuit is open. One asker gets true when the circuit has
// cooled down; the next one can get it cooldown later, if the first has not reported by then. Nobody may probe a handler
// that is disabled. If the clock has gone back since the circuit opened, so that it would be open for longer, it cools down
// from now on.
func (s *Store) CircuitProbe(ctx context.Context, handler string, cooldown time.Duration) (ok bool, err error) {
	const (
		due    = "handler = ?1 AND opened_at > 0 AND disabled_at = 0 AND probe_at <= ?2"
		tooFar = "handler = ?1 AND opened_at > 0 AND disabled_at = 0 AND probe_at > ?3"
	)
	now := s.now()
	next := now + cooldown.Nanoseconds()
	if found, err := s.exists(ctx, "SELECT 1 FROM millbridge_circuits WHERE "+due+" OR "+tooFar, handler, now, next); err != nil || !found {
		return false, wrap("probe handler", err)
	}
	err = s.update(ctx, "probe handler", func(tx *sql.Tx) error {
		n, err := affected(ctx, tx, "UPDATE millbridge_circuits SET probe_at = ?3 WHERE "+due, handler, now, next)
		if ok = n == 1; ok || err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, "UPDATE millbridge_circuits SET probe_at = ?3 WHERE "+tooFar, handler, now, next)
		return err
	})
	return ok && err == nil, err
}

// CircuitClosed forgets the failures of a handler that went well. One that is disabled stays so.
func (s *Store) CircuitClosed(ctx context.Context, handler string) error {
	const enabled = "handler = ? AND disabled_at = 0"
	found, err := s.exists(ctx, "SELECT 1 FROM millbridge_circuits WHERE "+enabled, handler)
	if err != nil || !found {
		return wrap("close circuit", err)
	}
	return s.update(ctx, "close circuit", func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "DELETE FROM millbridge_circuits WHERE "+enabled, handler)
		return err
	})
}

// DisableHandler disables a handler in all processes, and publishes [schema.HandlerDisabled] with that. With failing above
// 0 it does so only if the handler has failed for as long, and not gone well since. It returns the circuit as it is then,
// and whether this call has changed it.
func (s *Store) DisableHandler(ctx context.Context, handler, reason string, failing time.Duration) (c schema.Circuit, changed bool, err error) {
	err = s.update(ctx, "disable handler", func(tx *sql.Tx) error {
		now := s.now()
		one := func(query string, args ...any) (bool, error) {
			err := scanCircuit(&c, now, tx.QueryRowContext(ctx, query, args...).Scan)
			if errors.Is(err, sql.ErrNoRows) {
				return false, nil
			}
			return err == nil, err
		}
		var err error
		if failing > 0 {
			changed, err = one(`UPDATE millbridge_circuits SET disabled_at = ?3, reason = ?2
				WHERE handler = ?1 AND disabled_at = 0 AND failing_at > 0 AND failing_at <= ?4 RETURNING `+circuitColumns,
				handler, schema.OneLine(reason), now, now-failing.Nanoseconds())
		} else {
			changed, err = one(`INSERT INTO millbridge_circuits (handler, failures, failing_at, opened_at, probe_at, disabled_at, reason)
				VALUES (?1, 0, 0, 0, 0, ?3, ?2) ON CONFLICT (handler) DO UPDATE SET disabled_at = ?3, reason = ?2 WHERE disabled_at = 0
				RETURNING `+circuitColumns, handler, schema.OneLine(reason), now)
		}
		if err != nil {
			return err
		}
		if changed {
			return s.tellOf(ctx, tx, schema.HandlerDisabled, c)
		}
		_, err = one("SELECT "+circuitColumns+" FROM millbridge_circuits WHERE handler = ?", handler)
		return err
	})
	return c, changed && err == nil, err
}

// EnableHandler ends what [Store.DisableHandler] has begun, and publishes [schema.HandlerEnabled] with that: the handler
// has messages again as if it had never failed. It returns the circuit as it was, and whether this call has changed it.
func (s *Store) EnableHandler(ctx context.Context, handler string) (c schema.Circuit, changed bool, err error) {
	err = s.update(ctx, "enable handler", func(tx *sql.Tx) error {
		err := scanCircuit(&c, s.now(), tx.QueryRowContext(ctx,
			"DELETE FROM millbridge_circuits WHERE handler = ? AND disabled_at > 0 RETURNING "+circuitColumns, handler).Scan)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		changed = true
		return s.tellOf(ctx, tx, schema.HandlerEnabled, c)
	})
	return c, changed && err == nil, err
}

// tellOf publishes what has become of a handler in the transaction in which it does.
func (s *Store) tellOf(ctx context.Context, tx *sql.Tx, event schema.EventType[schema.HandlerChange], c schema.Circuit) error {
	env := event.New(c.Change())
	env.Time = at(s.now())
	_, err := s.Append(ctx, tx, []schema.Envelope{env})
	return err
}
