package postgres

import (
	"context"
	"time"

	"github.com/millbridge/millbridge/schema"
)

// Take reserves n starts of something whose rate is limited over all processes, evenly spaced by every, and returns how
// long to wait until the first of them. Starts that are not used are lost. Without n or every there is no wait. A crash
// of the server may forget what was reserved in the second before it.
func (s *Store) Take(ctx context.Context, name string, every time.Duration, n int) (wait time.Duration, err error) {
	if every <= 0 || n <= 0 {
		return 0, nil
	}
	var us int64
	err = s.atOnce(ctx,
		statement{sql: `SELECT set_config('synchronous_commit', 'off', true)`},
		statement{
			sql: `
			INSERT INTO millbridge.rates AS r (name, next_at, taken_at)
			VALUES ($1::text, clock_timestamp() + $2::bigint * interval '1 microsecond', clock_timestamp())
			ON CONFLICT (name) DO UPDATE
			   SET next_at = CASE WHEN r.taken_at > clock_timestamp() THEN clock_timestamp() -- the clock has gone back since
			                      ELSE greatest(r.next_at, clock_timestamp()) END + $2::bigint * interval '1 microsecond',
			       taken_at = clock_timestamp()
			RETURNING (extract(epoch FROM next_at - clock_timestamp()) * 1000000)::bigint - $2::bigint`,
			args: []any{name, (every * time.Duration(n)).Microseconds()}, each: scan(&us),
		})
	return max(0, time.Duration(us)*time.Microsecond), s.failed("reserve starts", err)
}

// Hold takes the lease of that name for ttl, or renews it, unless another owner has it. left is how long it lasts.
func (s *Store) Hold(ctx context.Context, name, owner string, ttl time.Duration) (held bool, left time.Duration, err error) {
	var us int64
	err = s.atOnce(ctx,
		statement{
			sql: `
			INSERT INTO millbridge.leases AS l (name, owner, lease_until)
			VALUES ($1::text, $2::text, clock_timestamp() + $3::bigint * interval '1 microsecond')
			ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, lease_until = excluded.lease_until
			 WHERE l.owner = excluded.owner OR l.lease_until <= clock_timestamp()`,
			args: []any{name, owner, ttl.Microseconds()},
		},
		statement{
			sql: `SELECT owner = $2::text, (extract(epoch FROM lease_until - clock_timestamp()) * 1000000)::bigint
				FROM millbridge.leases WHERE name = $1::text`,
			args: []any{name, owner}, each: scan(&held, &us),
		})
	return held && err == nil, max(0, time.Duration(us)*time.Microsecond), s.failed("hold lease", err)
}

// LetGo ends the owner's lease of that name; if it has none, nothing changes.
func (s *Store) LetGo(ctx context.Context, name, owner string) error {
	_, err := s.pool.Exec(ctx, `DELETE FROM millbridge.leases WHERE name = $1::text AND owner = $2::text`, name, owner)
	return s.failed("let go of lease", err)
}

// leaseKeep is how long a lease that nobody has renewed stays in its table.
const leaseKeep = time.Hour

func pruneLeases(limit int, gone *int) statement {
	return statement{sql: `
		WITH old AS MATERIALIZED (
			SELECT name FROM millbridge.leases WHERE lease_until < clock_timestamp() - $1::bigint * interval '1 microsecond'
			 ORDER BY lease_until LIMIT $2::bigint FOR UPDATE SKIP LOCKED),
		gone AS (DELETE FROM millbridge.leases AS l USING old WHERE l.name = old.name RETURNING 1)
		SELECT count(*) FROM gone`, args: []any{leaseKeep.Microseconds(), limit}, each: scan(gone)}
}

const circuitColumns = `handler, failures, opened_at, coalesce((extract(epoch FROM probe_at - clock_timestamp()) * 1000000)::bigint, 0), reason`

func scanCircuit(rows rowSet) (c schema.Circuit, err error) {
	var opened *time.Time
	var us int64
	err = rows.Scan(&c.Handler, &c.Failures, &opened, &us, &c.Reason)
	if opened != nil {
		c.Open, c.Since, c.Left = true, *opened, time.Duration(us)*time.Microsecond
	}
	return c, err
}

// Circuits returns the circuits of all handlers that have failed since they last went well.
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
// of a probe, keeps it open for cooldown from now on.
func (s *Store) CircuitFailed(ctx context.Context, handler, reason string, limit int, cooldown time.Duration) (c schema.Circuit, err error) {
	err = s.atOnce(ctx, statement{
		sql: `
			INSERT INTO millbridge.circuits AS c (handler, failures, opened_at, probe_at, reason)
			VALUES ($1::text, 1, CASE WHEN $3::integer <= 1 THEN clock_timestamp() END,
			        CASE WHEN $3::integer <= 1 THEN clock_timestamp() + $4::bigint * interval '1 microsecond' END, $2::text)
			ON CONFLICT (handler) DO UPDATE
			   SET failures = c.failures + 1, reason = excluded.reason,
			       opened_at = CASE WHEN c.failures + 1 >= $3::integer THEN coalesce(c.opened_at, clock_timestamp()) END,
			       probe_at = CASE WHEN c.failures + 1 >= $3::integer THEN clock_timestamp() + $4::bigint * interval '1 microsecond' END
			RETURNING ` + circuitColumns,
		args: []any{handler, schema.OneLine(reason), limit, cooldown.Microseconds()},
		each: func(rows rowSet) (err error) {
			c, err = scanCircuit(rows)
			return err
		},
	})
	return c, s.failed("count failure of handler", err)
}

// CircuitProbe asks whether a run may probe a handler whose circuit is open. One asker gets true when the circuit has
// cooled down; the next one can get it cooldown later, if the first has not reported by then.
func (s *Store) CircuitProbe(ctx context.Context, handler string, cooldown time.Duration) (bool, error) {
	tag, err := s.pool.Exec(ctx, `
		UPDATE millbridge.circuits SET probe_at = clock_timestamp() + $2::bigint * interval '1 microsecond'
		 WHERE handler = $1::text AND opened_at IS NOT NULL AND probe_at <= clock_timestamp()`, handler, cooldown.Microseconds())
	return err == nil && tag.RowsAffected() == 1, s.failed("probe handler", err)
}

// CircuitClosed forgets the failures of a handler that went well.
func (s *Store) CircuitClosed(ctx context.Context, handler string) error {
	_, err := s.pool.Exec(ctx, `DELETE FROM millbridge.circuits WHERE handler = $1::text`, handler)
	return s.failed("close circuit", err)
}
