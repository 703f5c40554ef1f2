package testkit

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millbridge/millbridge/internal/testkit/pgserver"
)

const (
	// databasePrefix starts the name of every database made here; after it comes the time, so that what a killed run
	// has left on a shared server can be told from what is in use.
	databasePrefix = "millbridge_test_"
	staleAfter     = 6 * time.Hour
	adminTimeout   = time.Minute
	// objectInUse is PostgreSQL's code for a template that somebody is still connected to. It waits five seconds itself.
	objectInUse = "55006"
	// closeTimeout is how long a pool waits for a connection that a test has not given back.
	closeTimeout = 5 * time.Second
	// poolSize is more than the default of four: tests hold transactions open on purpose.
	poolSize = 24
)

// EmptyPostgres returns a pool on a new, empty database of the test's own.
func EmptyPostgres(t testing.TB) *pgxpool.Pool {
	t.Helper()
	return newDatabase(t, "")
}

// PostgresURL returns the connection string of the database behind the pool, password included.
func PostgresURL(pool *pgxpool.Pool) string { return pool.Config().ConnString() }

func newDatabase(t testing.TB, template string) *pgxpool.Pool {
	t.Helper()
	server, err := postgresBackend()
	if err != nil {
		t.Fatalf("no PostgreSQL to test on: %v", err)
	}
	name := databaseName()
	if err := server.create(name, template); err != nil {
		t.Fatalf("create the test's database: %v", err)
	}
	pool, err := openTestPool(server.admin, name)
	if err != nil {
		t.Fatalf("open the test's database: %v", err)
	}
	t.Cleanup(func() {
		closed := make(chan struct{})
		go func() {
			pool.Close()
			close(closed)
		}()
		select {
		case <-closed:
		case <-time.After(closeTimeout):
			t.Errorf("a connection was not given back: close rows and end transactions before the test ends")
		}
		if err := server.exec("DROP DATABASE " + name + " WITH (FORCE)"); err != nil {
			t.Errorf("drop the test's database: %v", err)
		}
		<-closed // FORCE has cut what was still open
	})
	return pool
}

func databaseName() string {
	return fmt.Sprintf("%s%d_%s", databasePrefix, time.Now().Unix(), strings.ToLower(rand.Text()[:10]))
}

func (b *backend) create(name, template string) error {
	statement := "CREATE DATABASE " + name
	if template != "" {
		statement += " TEMPLATE " + template
	}
	// The session that migrated the template may still be on its way out.
	for attempt := 0; ; attempt++ {
		err := b.exec(statement)
		if err == nil || !inUse(err) || attempt == 3 {
			return err
		}
	}
}

func openPool(admin, database string) (*pgxpool.Pool, error) {
	u, err := url.Parse(admin)
	if err != nil {
		return nil, fmt.Errorf("read the server's URL: %w", err)
	}
	u.Path = "/" + database
	return openURL(u.String())
}

func openURL(url string) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("read the database's URL: %w", err)
	}
	cfg.MaxConns = poolSize
	return pgxpool.NewWithConfig(context.Background(), cfg)
}

// exec runs a statement on the backend's own connection, which it opens if there is none.
func (b *backend) exec(statement string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), adminTimeout)
	defer cancel()
	if b.conn == nil || b.conn.IsClosed() {
		conn, err := pgx.Connect(ctx, b.admin)
		if err != nil {
			return fmt.Errorf("connect: %w", err)
		}
		b.conn = conn
	}
	_, err := b.conn.Exec(ctx, statement)
	return err
}

// backend is the server that this process tests on.
type backend struct {
	admin string
	// throwaway is nil if the server was given. It ends with the process, there being no moment at which a test binary
	// could stop it; but if it were garbage, the file that keeps it alive would be closed at some collection.
	throwaway *pgserver.Server

	mu sync.Mutex
	// conn makes and drops databases. It stays open, because to connect costs more than that, and ends with the process. A
	// pool would have goroutines, which leak checks see.
	conn *pgx.Conn
}

var postgresBackend = sync.OnceValues(func() (*backend, error) {
	if given := os.Getenv(pgserver.URLVar); given != "" {
		if !strings.HasPrefix(given, "postgres://") && !strings.HasPrefix(given, "postgresql://") {
			return nil, fmt.Errorf("%s must be a postgres:// URL", pgserver.URLVar)
		}
		return &backend{admin: given}, dropStale(given)
	}
	server, err := pgserver.Start()
	if errors.Is(err, pgserver.ErrNoBinaries) {
		return nil, fmt.Errorf("%w\ninstall PostgreSQL (Debian: apt-get install postgresql), set %s to the URL of a server, "+
			"or run the tests with: go run ./internal/testrun", err, pgserver.URLVar)
	}
	if err != nil {
		return nil, fmt.Errorf("%w\nor set %s to the URL of a server", err, pgserver.URLVar)
	}
	return &backend{admin: server.URL(), throwaway: server}, nil
})

// dropStale removes what killed runs have left on a server that outlives them.
func dropStale(admin string) error {
	ctx, cancel := context.WithTimeout(context.Background(), adminTimeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, admin)
	if err != nil {
		return fmt.Errorf("connect to the server that %s names: %w", pgserver.URLVar, err)
	}
	defer conn.Close(ctx)
	rows, err := conn.Query(ctx, "SELECT datname FROM pg_database WHERE starts_with(datname, $1)", databasePrefix)
	if err != nil {
		return fmt.Errorf("list databases: %w", err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("list databases: %w", err)
	}
	for _, name := range names {
		stamp, _, _ := strings.Cut(strings.TrimPrefix(name, databasePrefix), "_")
		made, err := strconv.ParseInt(stamp, 10, 64)
		if err != nil || time.Since(time.Unix(made, 0)) < staleAfter {
			continue
		}
		if _, err := conn.Exec(ctx, "DROP DATABASE IF EXISTS "+pgx.Identifier{name}.Sanitize()+" WITH (FORCE)"); err != nil {
			return fmt.Errorf("drop %s, which a killed run left: %w", name, err)
		}
	}
	return nil
}

func inUse(err error) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && pgErr.Code == objectInUse
}
