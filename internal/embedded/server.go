package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// ServerOptions bound the embedded NATS server. The zero value works.
type ServerOptions struct {
	// Logger gets the server's own messages. Default: nothing is logged.
	Logger *slog.Logger
	// MaxStore is how many bytes all streams together may take on disk; a full stream refuses messages and rows wait in
	// the outbox. Default: 8 GiB.
	MaxStore int64
	// MaxMemory bounds streams that are kept in memory; Millbridge has none. Default: 64 MiB.
	MaxMemory int64
}

func (o ServerOptions) withDefaults() ServerOptions {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.MaxStore <= 0 {
		o.MaxStore = 8 << 30
	}
	if o.MaxMemory <= 0 {
		o.MaxMemory = 64 << 20
	}
	return o
}

const (
	readyTimeout = 30 * time.Second
	readyPoll    = 50 * time.Millisecond
)

// A Server is a NATS server with JetStream in this process.
type Server struct {
	server *server.Server
	addr   string
	token  string
}

// StartServer starts a server that keeps its streams in dir and listens on a free port of the loopback interface for
// clients that know token. It has no lock of its own: two servers in one directory destroy it.
func StartServer(ctx context.Context, dir, token string, opts ServerOptions) (*Server, error) {
	opts = opts.withDefaults()
	srv, err := server.NewServer(&server.Options{
		ServerName:         "millbridge",
		Host:               "127.0.0.1",
		Port:               server.RANDOM_PORT,
		Authorization:      token,
		JetStream:          true,
		StoreDir:           dir,
		SyncAlways:         true, // without it an ack is not a promise
		JetStreamMaxStore:  opts.MaxStore,
		JetStreamMaxMemory: opts.MaxMemory,
		NoSigs:             true, // signals belong to the program
	})
	if err != nil {
		return nil, fmt.Errorf("configure NATS server: %w", err)
	}
	log := &serverLog{to: opts.Logger}
	srv.SetLoggerV2(log, false, false, false)
	srv.Start()
	s := &Server{server: srv, token: token}
	if err := s.waitReady(ctx, log); err != nil {
		s.Stop()
		return nil, fmt.Errorf("start NATS server: %w", err)
	}
	s.addr = srv.Addr().String()
	return s, nil
}

// waitReady trusts nothing but ReadyForConnections: a server whose start has failed still says that it runs, and the
// reason stands in its log only.
func (s *Server) waitReady(ctx context.Context, log *serverLog) error {
	deadline := time.Now().Add(readyTimeout)
	for !s.server.ReadyForConnections(readyPoll) {
		if err := log.fatal(); err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("not ready within %v", readyTimeout)
		}
	}
	return log.fatal()
}

// Addr is the address it listens on.
func (s *Server) Addr() string { return s.addr }

// URL is where clients connect. It contains the token.
func (s *Server) URL() string { return clientURL(s.addr, s.token) }

func clientURL(addr, token string) string {
	return (&url.URL{Scheme: "nats", User: url.User(token), Host: addr}).String()
}

// Stop stops the server and waits until its files are closed.
func (s *Server) Stop() {
	s.server.Shutdown()
	s.server.WaitForShutdown()
}

// serverLog passes the server's log on and keeps what was fatal, which the stock logger ends the process for.
type serverLog struct {
	to *slog.Logger

	mu   sync.Mutex
	dead error
}

func (l *serverLog) fatal() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dead
}

func (l *serverLog) Fatalf(format string, v ...any) {
	text := fmt.Sprintf(format, v...)
	l.mu.Lock()
	l.dead = errors.Join(l.dead, errors.New(text))
	l.mu.Unlock()
	l.to.Error("nats server", "text", text)
}

func (l *serverLog) Errorf(format string, v ...any) {
	l.to.Error("nats server", "text", fmt.Sprintf(format, v...))
}

func (l *serverLog) Warnf(format string, v ...any) {
	l.to.Warn("nats server", "text", fmt.Sprintf(format, v...))
}

func (l *serverLog) Noticef(format string, v ...any) {
	l.to.Debug("nats server", "text", fmt.Sprintf(format, v...))
}
func (l *serverLog) Debugf(string, ...any) {}
func (l *serverLog) Tracef(string, ...any) {}
