package dbdown

import (
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/internal/testkit/netproxy"
	"github.com/millbridge/millbridge/publishers/jetstream"
	"github.com/millbridge/millbridge/router"
)

// quickly shortens leases and waits, so that a short test sees them end.
func quickly(c *router.Config) {
	c.Lease = 5 * time.Second
	c.Forwarder = jetstream.ForwarderConfig{Lease: 3 * time.Second, RetryMax: time.Second}
}

func unchanged(*router.Config) {}

// pace is quickly, unless there is time for what users have.
func pace() func(*router.Config) {
	if long {
		return unchanged
	}
	return quickly
}

// behind returns a pool that reaches the database of direct through a proxy.
func behind(t *testing.T, direct *pgxpool.Pool) (*pgxpool.Pool, *netproxy.Proxy) {
	t.Helper()
	u, err := url.Parse(testkit.PostgresURL(direct))
	if err != nil {
		t.Fatal(err)
	}
	proxy := netproxy.Start(t, u.Host)
	u.Host = proxy.Addr()
	return pool(t, u.String(), nil), proxy
}

// The administrator throws out all sessions, again and again; then the network resets connections, at any moment and in
// place of the answer to a commit.
func TestPostgres_connections_are_cut(t *testing.T) {
	t.Parallel()
	direct := testkit.Postgres(t)
	shared, proxy := behind(t, direct)
	w := onPostgres(t, shared, direct, pace())
	stop := w.produce(3, 10*time.Millisecond)
	var back []time.Duration
	for i := range times(3, 30) {
		pause(700 * time.Millisecond)
		switch i % 3 {
		case 0:
			const throwOut = `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`
			conn, err := pgx.Connect(t.Context(), testkit.PostgresURL(direct))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := conn.Exec(t.Context(), throwOut); err != nil {
				t.Error(err)
			}
			conn.Close(t.Context())
		case 1:
			proxy.Cut()
		case 2:
			for range 3 {
				select {
				case <-proxy.ResetAnswer("commit", "COMMIT").Fired():
				case <-time.After(30 * time.Second):
					t.Fatal("no commit passed")
				}
			}
		}
		back = append(back, w.recovers(time.Minute))
	}
	stop()
	w.well(3 * time.Minute)
	w.settled(3 * time.Minute)
	took(t, "connections cut", back)
}

// The network drops every packet and nobody is told: whoever waits for an answer gives up in bounded time, and all goes
// on when packets pass again.
func TestPostgres_is_silent(t *testing.T) {
	t.Parallel()
	direct := testkit.Postgres(t)
	shared, proxy := behind(t, direct)
	w := onPostgres(t, shared, direct, pace())
	stop := w.produce(3, 20*time.Millisecond)
	var back []time.Duration
	for range times(1, 4) {
		pause(time.Second)
		proxy.Freeze(netproxy.Both)
		began := time.Now()
		w.says(3*time.Minute, "health", "does not answer in time")
		t.Logf("health says so after %v", time.Since(began).Round(time.Millisecond))
		w.says(3*time.Minute, "status", "database unknown: no answer")
		if long {
			<-time.After(45 * time.Second) // longer than any lease
		}
		// What was on its way is lost for good: as if the connections had been forgotten on the way.
		proxy.Swallow(netproxy.Both)
		proxy.Heal()
		back = append(back, w.recovers(2*time.Minute))
	}
	stop()
	w.well(3 * time.Minute)
	w.settled(2 * time.Minute)
	took(t, "silent", back)
}

// The application holds all connections of the pool that it shares with the bridge: nothing is stuck for good.
func TestPostgres_pool_is_exhausted(t *testing.T) {
	t.Parallel()
	direct := testkit.Postgres(t)
	shared := pool(t, testkit.PostgresURL(direct), func(c *pgxpool.Config) { c.MaxConns = 4 })
	w := onPostgres(t, shared, direct, pace())
	// More producers than there are connections, and slower together than what the rest of four connections can handle.
	stop := w.produce(6, 60*time.Millisecond)
	var back []time.Duration
	for i := range times(1, 6) {
		pause(time.Second)
		var held []*pgxpool.Conn
		for range 4 {
			c, err := shared.Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			held = append(held, c)
		}
		release := sync.OnceFunc(func() {
			for _, c := range held {
				c.Release()
			}
		})
		t.Cleanup(release) // before the pool is closed
		if i == 0 {
			w.says(3*time.Minute, "health", "all connections to the database are in use")
		} else {
			pause(20 * time.Second)
		}
		release()
		back = append(back, w.recovers(time.Minute))
	}
	stop()
	w.well(3 * time.Minute)
	w.settled(3 * time.Minute)
	took(t, "pool exhausted", back)
}

// The database is made read-only, and writable again: what sessions have kept of it must not last.
func TestPostgres_is_read_only(t *testing.T) {
	t.Parallel()
	direct := testkit.Postgres(t)
	name := pgx.Identifier{direct.Config().ConnConfig.Database}.Sanitize()
	watch := pool(t, testkit.PostgresURL(direct), func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["default_transaction_read_only"] = "off" })
	shared := pool(t, testkit.PostgresURL(direct), func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["application_name"] = "shared" })
	w := onPostgres(t, shared, watch, pace())
	stop := w.produce(3, 20*time.Millisecond)
	var back []time.Duration
	for range times(1, 6) {
		pause(time.Second)
		for _, statement := range []string{
			`ALTER DATABASE ` + name + ` SET default_transaction_read_only = on`,
			`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'shared'`,
		} {
			if _, err := watch.Exec(t.Context(), statement); err != nil {
				t.Fatal(err)
			}
		}
		w.says(3*time.Minute, "health", "the database is read-only")
		w.says(3*time.Minute, "status", "default_transaction_read_only is on")
		if _, err := watch.Exec(t.Context(), `ALTER DATABASE `+name+` RESET default_transaction_read_only`); err != nil {
			t.Fatal(err)
		}
		back = append(back, w.recovers(time.Minute))
	}
	stop()
	w.well(3 * time.Minute)
	w.settled(3 * time.Minute)
	took(t, "read-only", back)
}
