package testkit

import (
	"errors"
	"net/url"
	"os"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millbridge/millbridge/internal/testkit/pgserver"
)

// poolerMode is how queries have to be run behind a pooler that hands out a connection for a transaction: nothing of
// them stays in the session.
const poolerMode = "cache_describe"

// PgBouncer starts one in front of the tests' server, with so many connections to each database, and returns the URL of
// the database behind pool through it. mode is its pool_mode, exec the default_query_exec_mode in the URL.
func PgBouncer(t testing.TB, pool *pgxpool.Pool, mode string, conns int, exec string) string {
	t.Helper()
	server, err := postgresBackend()
	if err != nil {
		t.Fatalf("no PostgreSQL to test on: %v", err)
	}
	p, err := pgserver.StartPooler(server.admin, pgserver.PoolerConfig{Mode: mode, Conns: conns})
	if errors.Is(err, pgserver.ErrNoPooler) {
		t.Fatalf("%v\ninstall it (Debian: apt-get install pgbouncer), or run the tests with: go run ./internal/testrun", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	})
	url, err := through(p.URL(), pool.Config().ConnConfig.Database, exec)
	if err != nil {
		t.Fatal(err)
	}
	return url
}

// openTestPool opens a database as tests are to reach it: through the pooler if the run has one.
func openTestPool(admin, database string) (*pgxpool.Pool, error) {
	pooler := os.Getenv(pgserver.PoolerVar)
	if pooler == "" {
		return openPool(admin, database)
	}
	url, err := through(pooler, database, poolerMode)
	if err != nil {
		return nil, err
	}
	return openURL(url)
}

// DirectPostgresURL is the URL of the database behind pool past any pooler, for tests of what sessions are like.
func DirectPostgresURL(t testing.TB, pool *pgxpool.Pool) string {
	t.Helper()
	server, err := postgresBackend()
	if err != nil {
		t.Fatalf("no PostgreSQL to test on: %v", err)
	}
	u, err := url.Parse(server.admin)
	if err != nil {
		t.Fatal("the server's URL cannot be read")
	}
	u.Path = "/" + pool.Config().ConnConfig.Database
	return u.String()
}

func through(pooler, database, exec string) (string, error) {
	u, err := url.Parse(pooler)
	if err != nil {
		return "", errors.New("the pooler's URL cannot be read")
	}
	u.Path = "/" + database
	q := u.Query()
	q.Set("default_query_exec_mode", exec)
	u.RawQuery = q.Encode()
	return u.String(), nil
}
