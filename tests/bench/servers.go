package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/millbridge/millbridge/internal/testkit/pgserver"
	"github.com/millbridge/millbridge/publishers/jetstream"
)

// pgSettings are those of a small production server. Durability is PostgreSQL's default: all commits are flushed.
const pgSettings = `
shared_buffers = 512MB
max_wal_size = 4GB
`

// servers are what all contenders work on.
type servers struct {
	pg         *pgserver.Server
	single     *natsServers // one server
	cluster    *natsServers // three; nil unless somebody needs them
	watch      *pgx.Conn    // to see how much PostgreSQL writes
	postmaster int          // process id; 0 where there is no /proc
	databases  int
}

func startServers(ctx context.Context) (*servers, error) {
	pg, err := pgserver.StartWith(pgserver.Options{Settings: pgSettings})
	if err != nil {
		return nil, fmt.Errorf("%w\ninstall PostgreSQL (Debian: apt-get install postgresql)", err)
	}
	nc, err := startNATS()
	if err != nil {
		return nil, errors.Join(err, pg.Stop())
	}
	s := &servers{pg: pg, single: nc}
	if s.watch, err = pgx.Connect(ctx, pg.URL()); err != nil {
		return nil, errors.Join(fmt.Errorf("look at PostgreSQL: %w", err), s.stop())
	}
	if st, ok := readStat(int(s.watch.PgConn().PID())); ok {
		s.postmaster = st.parent
	}
	return s, nil
}

func (s *servers) stop() error {
	var err error
	if s.watch != nil {
		err = s.watch.Close(context.Background())
	}
	return errors.Join(err, s.stopCluster(), s.single.stop(), s.pg.Stop())
}

func (s *servers) stopCluster() error {
	if s.cluster == nil {
		return nil
	}
	defer func() { s.cluster = nil }()
	return s.cluster.stop()
}

func (s *servers) admin(ctx context.Context, do func(conn *pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, s.pg.URL())
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	return do(conn)
}

// A stage is what one contender has for one run: an empty database and a server without streams.
type stage struct {
	*servers
	opts     options
	name     string // of the database
	url      string
	pool     *pgxpool.Pool
	nats     *natsServers
	replicas int // of the streams
	conn     *nats.Conn
	js       natsjs.JetStream
	work     work
	profile  string // where the client's profile goes; empty if to nowhere
}

const (
	// conns is how many connections to the database writers have.
	conns = 16
	// poolConns is how many the forwarder, the bridge or River have for themselves.
	poolConns = 20
)

const sqlBusinessTable = `CREATE TABLE business (
	id bigserial PRIMARY KEY, customer text NOT NULL, amount bigint NOT NULL, created_at timestamptz NOT NULL DEFAULT now())`

func (s *servers) newStage(ctx context.Context, opts options) (st *stage, err error) {
	s.databases++
	st = &stage{servers: s, opts: opts, name: fmt.Sprintf("bench_%d", s.databases), replicas: 1, work: usual}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("set the stage: %w", err), st.clear())
		}
	}()
	create := func(conn *pgx.Conn) error {
		// What the run before has left to write to disk is not this one's cost.
		if !opts.quick {
			if _, err := conn.Exec(ctx, "CHECKPOINT"); err != nil {
				return err
			}
		}
		_, err := conn.Exec(ctx, "CREATE DATABASE "+st.name)
		return err
	}
	if err := s.admin(ctx, create); err != nil {
		return st, err
	}
	u, err := url.Parse(s.pg.URL())
	if err != nil {
		return st, errors.New("the server's URL cannot be read")
	}
	u.Path = "/" + st.name
	st.url = u.String()
	if st.pool, err = st.newPool(ctx); err != nil {
		return st, err
	}
	if _, err := st.pool.Exec(ctx, sqlBusinessTable); err != nil {
		return st, err
	}
	return st, st.connect(ctx, s.single)
}

// connect makes these the servers of the stage.
func (st *stage) connect(ctx context.Context, to *natsServers) (err error) {
	if st.conn != nil {
		st.conn.Close()
	}
	st.nats = to
	if st.conn, err = nats.Connect(to.url, jetstream.ConnectOptions()...); err != nil {
		return err
	}
	if st.js, err = natsjs.New(st.conn, natsjs.WithPublishAsyncMaxPending(4096)); err != nil {
		return err
	}
	return st.deleteStreams(ctx)
}

// replicated gives the stage three servers that each keep all of its streams.
func (st *stage) replicated(ctx context.Context) (err error) {
	st.replicas = 3
	if st.cluster == nil {
		if st.cluster, err = startCluster(ctx, st.replicas); err != nil {
			return err
		}
	}
	return st.connect(ctx, st.cluster)
}

func (st *stage) newPool(ctx context.Context) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(st.url)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = poolConns
	if !st.opts.quick {
		cfg.MinConns = poolConns
	}
	return pgxpool.NewWithConfig(ctx, cfg)
}

// stdDB is the database for database/sql, which the stock assembly wants.
func (st *stage) stdDB(size int) (*sql.DB, error) {
	cfg, err := pgx.ParseConfig(st.url)
	if err != nil {
		return nil, err
	}
	db := stdlib.OpenDB(*cfg)
	db.SetMaxOpenConns(size)
	db.SetMaxIdleConns(size)
	return db, nil
}

func (st *stage) deleteStreams(ctx context.Context) error {
	names := st.js.StreamNames(ctx)
	var all []string
	for name := range names.Name() {
		all = append(all, name)
	}
	err := names.Err()
	for _, name := range all {
		err = errors.Join(err, st.js.DeleteStream(ctx, name))
	}
	return err
}

// clear removes everything; it may be called on a stage that is half set.
func (st *stage) clear() error {
	ctx := context.Background()
	var err error
	if st.js != nil {
		err = st.deleteStreams(ctx)
	}
	if st.conn != nil {
		st.conn.Close()
	}
	if st.pool != nil {
		st.pool.Close()
	}
	if st.opts.quick { // the servers' end is soon, and with it everything's
		return err
	}
	err = errors.Join(err, st.stopCluster()) // idle servers take processor time from others
	return errors.Join(err, st.admin(ctx, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "DROP DATABASE IF EXISTS "+st.name+" WITH (FORCE)")
		return err
	}))
}

func (st *stage) count(ctx context.Context, query string, args ...any) (int, error) {
	var n int
	err := st.pool.QueryRow(ctx, query, args...).Scan(&n)
	return n, err
}
