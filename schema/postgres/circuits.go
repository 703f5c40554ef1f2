package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millbridge/millbridge/schema"
)

const circuitColumns = `handler, failures, coalesce((extract(epoch FROM clock_timestamp() - failing_at) * 1000000)::bigint, 0), opened_at,
	coalesce((extract(epoch FROM probe_at - clock_timestamp()) * 1000000)::bigint, 0), disabled_at, reason`

func scanCircuit(rows rowSet) (c schema.Circuit, err error) {
	var opened, disabled *time.Time
	var failing, left int64
	err = rows.Scan(&c.Handler, &c.Failures, &failing, &opened, &left, &disabled, &c.Reason)
	c.Failing = time.Duration(failing) * time.Microsecond
	switch {
	case disabled != nil:
		c.Open, c.Disabled, c.Since = true, true, disabled.UTC()
	case opened != nil:
		c.Open, c.Since, c.Left = true, opened.UTC(), time.Duration(left)*time.Microsecond
	}
	return c, err
}

// into reads the one row that a statement returns, if it does.
func into(c *schema.Circuit, found *bool) func(rowSet) error {
	return func(rows rowSet) (err error) {
		*c, err = scanCircuit(rows)
		*found = true
		return err
	}
}

// Circuits returns the circuits of all handlers that have failed since they last went well, or are disabled.
func (s *Store) Circuits(ctx context.Context) ([]schema.Circuit, error) {
	var list []schema.Circuit
	err := pgxRunner{s.pool}.run(ctx, statement{
		sql: `SELECT ` + circuitColumns + ` FROM millbridge.circuits ORDER BY handler`,
		each: func(rows rowSet) error {
			c, err := scanCircuit(rows)
			list = append(list, c)
			return err
		},
	})
	return list, s.failed("read circuits", err)
}

// CircuitFailed counts a failure of a handler. With the limit-th in a row its circuit opens; each further one, as that
// of a probe, keeps it open for cooldown from now on. With a limit of 0 failures are counted, and it never opens.
func (s *Store) CircuitFailed(ctx context.Context, handler, reason string, limit int, cooldown time.Duration) (c schema.Circuit, err error) {
	var found bool
	err = s.atOnce(ctx, statement{
		sql: `
			INSERT INTO millbridge.circuits AS c (handler, failures, failing_at, opened_at, probe_at, reason)
			VALUES ($1::text, 1, clock_timestamp(), CASE WHEN $3::integer = 1 THEN clock_timestamp() END,
			        CASE WHEN $3::integer = 1 THEN clock_timestamp() + $4::bigint * interval '1 microsecond' END, $2::text)
			ON CONFLICT (handler) DO UPDATE
			   SET failures = c.failures + 1, failing_at = least(c.failing_at, clock_timestamp()),
			       reason = CASE WHEN c.disabled_at IS NULL THEN excluded.reason ELSE c.reason END,
			       opened_at = CASE WHEN c.failures + 1 >= nullif($3::integer, 0) THEN coalesce(c.opened_at, clock_timestamp()) END,
			       probe_at = CASE WHEN c.failures + 1 >= nullif($3::integer, 0) THEN clock_timestamp() + $4::bigint * interval '1 microsecond' END
			RETURNING ` + circuitColumns,
		args: []any{handler, schema.OneLine(reason), limit, cooldown.Microseconds()}, each: into(&c, &found),
	})
	return c, s.failed("count failure of handler", err)
}

// CircuitProbe asks whether a run may probe a handler whose circuit is open. One asker gets true when the circuit has
// cooled down; the next one can get it cooldown later, if the first has not reported by then. Nobody may probe a handler
// that is disabled. If the clock has gone back since the circuit opened, so that it would be open for longer, it cools down
// from now on.
func (s *Store) CircuitProbe(ctx context.Context, handler string, cooldown time.Duration) (bool, error) {
	tag, err := s.pool.Exec(ctx, `
		UPDATE millbridge.circuits SET probe_at = clock_timestamp() + $2::bigint * interval '1 microsecond'
		 WHERE handler = $1::text AND opened_at IS NOT NULL AND probe_at <= clock_timestamp() AND disabled_at IS NULL`, handler, cooldown.Microseconds())
	if err == nil && tag.RowsAffected() == 0 {
		_, err := s.pool.Exec(ctx, `
			UPDATE millbridge.circuits SET probe_at = clock_timestamp() + $2::bigint * interval '1 microsecond'
			 WHERE handler = $1::text AND probe_at > clock_timestamp() + $2::bigint * interval '1 microsecond'`, handler, cooldown.Microseconds())
		return false, s.failed("probe handler", err)
	}
	return err == nil, s.failed("probe handler", err)
}

// CircuitClosed forgets the failures of a handler that went well. One that is disabled stays so.
func (s *Store) CircuitClosed(ctx context.Context, handler string) error {
	_, err := s.pool.Exec(ctx, `DELETE FROM millbridge.circuits WHERE handler = $1::text AND disabled_at IS NULL`, handler)
	return s.failed("close circuit", err)
}

// DisableHandler disables a handler in all processes, and publishes [schema.HandlerDisabled] with that. With failing above
// 0 it does so only if the handler has failed for as long, and not gone well since. It returns the circuit as it is then,
// and whether this call has changed it.
func (s *Store) DisableHandler(ctx context.Context, handler, reason string, failing time.Duration) (c schema.Circuit, changed bool, err error) {
	err = s.InTx(ctx, func(tx pgx.Tx) error {
		change := statement{
			sql: `
				INSERT INTO millbridge.circuits AS c (handler, failures, disabled_at, reason) VALUES ($1::text, 0, clock_timestamp(), $2::text)
				ON CONFLICT (handler) DO UPDATE SET disabled_at = excluded.disabled_at, reason = excluded.reason WHERE c.disabled_at IS NULL
				RETURNING ` + circuitColumns,
			args: []any{handler, schema.OneLine(reason)}, each: into(&c, &changed),
		}
		if failing > 0 {
			change.sql = `
				UPDATE millbridge.circuits SET disabled_at = clock_timestamp(), reason = $2::text
				 WHERE handler = $1::text AND disabled_at IS NULL AND failing_at <= clock_timestamp() - $3::bigint * interval '1 microsecond'
				RETURNING ` + circuitColumns
			change.args = append(change.args, failing.Microseconds())
		}
		if err := (pgxRunner{tx}).run(ctx, change); err != nil {
			return err
		}
		if changed {
			return s.tellOf(ctx, tx, schema.HandlerDisabled, c)
		}
		var found bool
		return pgxRunner{tx}.run(ctx, statement{
			sql:  `SELECT ` + circuitColumns + ` FROM millbridge.circuits WHERE handler = $1::text`,
			args: []any{handler}, each: into(&c, &found),
		})
	})
	return c, changed && err == nil, s.failed("disable handler", err)
}

// EnableHandler ends what [Store.DisableHandler] has begun, and publishes [schema.HandlerEnabled] with that: the handler
// has messages again as if it had never failed. It returns the circuit as it was, and whether this call has changed it.
func (s *Store) EnableHandler(ctx context.Context, handler string) (c schema.Circuit, changed bool, err error) {
	err = s.InTx(ctx, func(tx pgx.Tx) error {
		err := pgxRunner{tx}.run(ctx, statement{
			sql:  `DELETE FROM millbridge.circuits WHERE handler = $1::text AND disabled_at IS NOT NULL RETURNING ` + circuitColumns,
			args: []any{handler}, each: into(&c, &changed),
		})
		if err != nil || !changed {
			return err
		}
		return s.tellOf(ctx, tx, schema.HandlerEnabled, c)
	})
	return c, changed && err == nil, s.failed("enable handler", err)
}

// tellOf publishes what has become of a handler in the transaction in which it does.
func (s *Store) tellOf(ctx context.Context, tx pgx.Tx, event schema.EventType[schema.HandlerChange], c schema.Circuit) error {
	env := event.New(c.Change())
	env.Time = time.Now().UTC()
	_, err := s.Append(ctx, tx, []schema.Envelope{env})
	return err
}
