package postgres

import (
	"context"
	"time"
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

// Hold takes the lease of that name for ttl, or renews it, unless another owner has it. left is how long it lasts. If the
// clock has gone back since the other has taken it, it lasts as long as it was taken for, from now on.
func (s *Store) Hold(ctx context.Context, name, owner string, ttl time.Duration) (held bool, left time.Duration, err error) {
	var us int64
	err = s.atOnce(ctx,
		statement{
			sql: `
			INSERT INTO millbridge.leases AS l (name, owner, taken_at, lease_until)
			VALUES ($1::text, $2::text, clock_timestamp(), clock_timestamp() + $3::bigint * interval '1 microsecond')
			ON CONFLICT (name) DO UPDATE
			   SET owner = CASE WHEN l.lease_until <= clock_timestamp() THEN excluded.owner ELSE l.owner END,
			       lease_until = CASE WHEN l.owner = excluded.owner OR l.lease_until <= clock_timestamp() THEN excluded.lease_until
			                          ELSE clock_timestamp() + (l.lease_until - l.taken_at) END,
			       taken_at = clock_timestamp()
			 WHERE l.owner = excluded.owner OR l.lease_until <= clock_timestamp() OR l.taken_at > clock_timestamp()`,
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
