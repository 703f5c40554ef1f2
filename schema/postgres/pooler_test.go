package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/schema/postgres"
	"github.com/millbridge/millbridge/schema/schematest"
)

// A pooler lends few connections of a server to many clients, for the length of a transaction each, as PgBouncer does
// in transaction mode.
type pooler struct {
	t       testing.TB
	connect func() (*pgconn.HijackedConn, error)
	idle    chan *pgconn.HijackedConn // nil: a connection that is to be made

	mu    sync.Mutex
	conns []net.Conn
	wg    sync.WaitGroup
}

// behindPooler makes a pool connect through a pooler with two connections of its own.
func behindPooler(t *testing.T, c *pgxpool.Config, mode pgx.QueryExecMode) {
	t.Helper()
	server := c.ConnConfig.Config.Copy()
	p := &pooler{t: t, idle: make(chan *pgconn.HijackedConn, 2)}
	p.connect = func() (*pgconn.HijackedConn, error) {
		conn, err := pgconn.ConnectConfig(context.Background(), server)
		if err != nil {
			return nil, err
		}
		return conn.Hijack()
	}
	for range cap(p.idle) {
		p.idle <- nil
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p.wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			p.keep(conn)
			p.wg.Go(func() { p.serve(conn) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		p.mu.Lock()
		for _, conn := range p.conns {
			conn.Close()
		}
		p.mu.Unlock()
		p.wg.Wait()
	})
	c.ConnConfig.Host, c.ConnConfig.Port = "127.0.0.1", uint16(l.Addr().(*net.TCPAddr).Port)
	c.ConnConfig.DefaultQueryExecMode = mode
}

func (p *pooler) keep(conn net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns = append(p.conns, conn)
}

// serve is one client's life.
func (p *pooler) serve(conn net.Conn) {
	defer conn.Close()
	client := pgproto3.NewBackend(conn, conn)
	if err := welcome(conn, client); err != nil {
		return
	}
	for {
		first, err := client.Receive()
		if err != nil {
			return
		}
		if _, over := first.(*pgproto3.Terminate); over {
			return
		}
		server := <-p.idle
		if server == nil {
			if server, err = p.connect(); err != nil {
				p.idle <- nil
				return
			}
			p.keep(server.Conn)
		}
		if err := transaction(client, server.Frontend, first); err != nil {
			server.Conn.Close() // whatever was going on in it ends
			p.idle <- nil
			return
		}
		p.idle <- server
	}
}

// welcome answers a client's first message.
func welcome(conn net.Conn, client *pgproto3.Backend) error {
	for {
		msg, err := client.ReceiveStartupMessage()
		if err != nil {
			return err
		}
		switch msg.(type) {
		case *pgproto3.SSLRequest, *pgproto3.GSSEncRequest:
			if _, err := conn.Write([]byte("N")); err != nil {
				return err
			}
		case *pgproto3.StartupMessage:
			client.Send(&pgproto3.AuthenticationOk{})
			for _, s := range [][2]string{{"client_encoding", "UTF8"}, {"standard_conforming_strings", "on"}, {"server_version", "14.0"}, {"TimeZone", "UTC"}} {
				client.Send(&pgproto3.ParameterStatus{Name: s[0], Value: s[1]})
			}
			client.Send(&pgproto3.BackendKeyData{SecretKey: make([]byte, 4)})
			client.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
			return client.Flush()
		default:
			return errors.New("not a client of ours") // such as the request to cancel
		}
	}
}

// transaction passes messages on until the server is in no transaction.
func transaction(client *pgproto3.Backend, server *pgproto3.Frontend, msg pgproto3.FrontendMessage) error {
	for {
		server.Send(msg)
		switch msg.(type) {
		case *pgproto3.Query, *pgproto3.Sync:
			status, err := answerOf(client, server)
			if err != nil || status == 'I' {
				return err
			}
		case *pgproto3.Terminate:
			return errors.New("the client has gone")
		}
		var err error
		if msg, err = client.Receive(); err != nil {
			return err
		}
	}
}

func answerOf(client *pgproto3.Backend, server *pgproto3.Frontend) (status byte, err error) {
	if err := server.Flush(); err != nil {
		return 0, err
	}
	for {
		msg, err := server.Receive()
		if err != nil {
			return 0, err
		}
		client.Send(msg)
		if ready, ok := msg.(*pgproto3.ReadyForQuery); ok {
			return ready.TxStatus, client.Flush()
		}
	}
}

func TestC27_behind_a_transaction_pooler(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]pgx.QueryExecMode{"exec": pgx.QueryExecModeExec, "simple protocol": pgx.QueryExecModeSimpleProtocol} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			schematest.Run(t, opener(t, func(c *pgxpool.Config) {
				// Nor does anything depend on what sessions are like.
				c.ConnConfig.RuntimeParams["default_transaction_isolation"] = "serializable"
				c.ConnConfig.RuntimeParams["search_path"] = "nowhere"
				c.ConnConfig.RuntimeParams["synchronous_commit"] = "off"
				behindPooler(t, c, mode)
			}))
		})
	}
}

// The default of the driver does not work there, which is why the setting is documented.
func TestC27_prepared_statements_break_behind_a_pooler(t *testing.T) {
	t.Parallel()
	pool := repool(t, testkit.Postgres(t), func(c *pgxpool.Config) { behindPooler(t, c, pgx.QueryExecModeCacheStatement) })
	s := postgres.New(pool, postgres.Options{})
	codes := make(map[string]int)
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 20 {
				_, err := s.Tend(t.Context(), 1)
				var answer *pgconn.PgError
				if errors.As(err, &answer) {
					mu.Lock()
					codes[answer.Code]++
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	if codes["42P05"]+codes["26000"] == 0 {
		t.Errorf("codes %v: this pooler does not do what poolers do", fmt.Sprint(codes))
	}
}
