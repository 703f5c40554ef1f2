package testkit

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	readyTimeout  = 20 * time.Second
	reconnectWait = 50 * time.Millisecond
)

// Server is a NATS server with JetStream in the test's process, reached over loopback TCP.
type Server struct {
	t    testing.TB
	opts *server.Options

	mu  sync.Mutex
	srv *server.Server
}

// NATS starts a server of the test's own. Each edit may change its options before the start.
func NATS(t testing.TB, edits ...func(*server.Options)) *Server {
	t.Helper()
	opts := serverOptions(t, "test")
	for _, edit := range edits {
		edit(opts)
	}
	s := &Server{t: t, opts: opts}
	if err := s.start(); err != nil {
		t.Fatalf("start the NATS server: %v", err)
	}
	t.Cleanup(s.Stop)
	return s
}

func serverOptions(t testing.TB, name string) *server.Options {
	return &server.Options{
		ServerName: name,
		Host:       "127.0.0.1",
		Port:       server.RANDOM_PORT,
		JetStream:  true,
		StoreDir:   t.TempDir(),
		NoSigs:     true,
	}
}

func (s *Server) start() error {
	// The server writes to its options; what is kept stays as it was.
	srv, err := server.NewServer(s.opts.Clone())
	if err != nil {
		return fmt.Errorf("make the server: %w", err)
	}
	log := &fatalLog{}
	srv.SetLoggerV2(log, false, false, false)
	srv.Start()
	if !srv.ReadyForConnections(readyTimeout) {
		srv.Shutdown()
		srv.WaitForShutdown()
		return fmt.Errorf("not ready for connections within %v: %w", readyTimeout, log.err())
	}
	// Random at the first start, the same ever after: others may be reading it when the server restarts.
	if addr, ok := srv.Addr().(*net.TCPAddr); ok && s.opts.Port == server.RANDOM_PORT {
		s.opts.Port = addr.Port
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.srv = srv
	return nil
}

// URL is where clients connect; it stays the same when the server restarts.
func (s *Server) URL() string { return fmt.Sprintf("nats://127.0.0.1:%d", s.opts.Port) }

// Server is the running server, or the one that was stopped.
func (s *Server) Server() *server.Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.srv
}

// StoreDir is where the server keeps its streams.
func (s *Server) StoreDir() string { return s.opts.StoreDir }

// Stop ends the server and keeps its streams. Stopping twice is allowed.
func (s *Server) Stop() {
	srv := s.Server()
	srv.Shutdown()
	srv.WaitForShutdown()
}

// Restart stops the server if it runs and starts it again with the same streams on the same port.
func (s *Server) Restart() {
	s.Stop()
	if err := s.start(); err != nil {
		s.t.Errorf("restart the NATS server: %v", err)
	}
}

// Reload changes options of the running server, as an operator does who edits its file. They stay changed when it restarts.
func (s *Server) Reload(edit func(*server.Options)) {
	s.t.Helper()
	edit(s.opts)
	if err := s.Server().ReloadOptions(s.opts.Clone()); err != nil {
		s.t.Fatalf("reload the NATS server's options: %v", err)
	}
}

// Conn opens a connection that reconnects for ever and never buffers what it could not send, and closes it when the
// test ends.
func (s *Server) Conn(t testing.TB, opts ...nats.Option) *nats.Conn {
	t.Helper()
	return connect(t, s.URL(), opts)
}

// JetStream is a JetStream context on a connection of its own.
func (s *Server) JetStream(t testing.TB) jetstream.JetStream {
	t.Helper()
	return JetStream(t, s.Conn(t))
}

// JetStream is the JetStream context of a connection.
func JetStream(t testing.TB, nc *nats.Conn) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatalf("make the JetStream context: %v", err)
	}
	return js
}

func connect(t testing.TB, url string, opts []nats.Option) *nats.Conn {
	t.Helper()
	all := append([]nats.Option{
		nats.MaxReconnects(-1),
		nats.ReconnectWait(reconnectWait),
		nats.ReconnectJitter(0, 0),
		nats.ReconnectBufSize(-1),
	}, opts...)
	nc, err := nats.Connect(url, all...)
	if err != nil {
		t.Fatalf("connect to NATS: %v", err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// fatalLog keeps what the server says before it gives up, which it does not return as an error, and drops the rest.
// The server's own logger would end the process.
type fatalLog struct {
	mu    sync.Mutex
	fatal error
}

func (l *fatalLog) Fatalf(format string, v ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fatal = errors.Join(l.fatal, fmt.Errorf(format, v...))
}

func (l *fatalLog) err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fatal == nil {
		return errors.New("the server gave no reason")
	}
	return l.fatal
}

func (*fatalLog) Noticef(string, ...any) {}
func (*fatalLog) Warnf(string, ...any)   {}
func (*fatalLog) Errorf(string, ...any)  {}
func (*fatalLog) Debugf(string, ...any)  {}
func (*fatalLog) Tracef(string, ...any)  {}
