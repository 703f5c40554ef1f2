package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// serveArg makes this program a NATS server, so that its processor time and memory are not the client's.
const serveArg = "nats-serve"

// serveNATS runs a server with JetStream and its default settings until standard input ends, as it does when the
// process at its other end dies.
func serveNATS(dir string) error {
	srv, err := server.NewServer(&server.Options{
		ServerName: "bench", Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: dir, NoSigs: true, NoLog: true,
	})
	if err != nil {
		return err
	}
	srv.Start()
	if !srv.ReadyForConnections(30 * time.Second) {
		return errors.New("not ready for connections")
	}
	fmt.Println(srv.ClientURL())
	_, err = io.Copy(io.Discard, os.Stdin)
	srv.Shutdown()
	srv.WaitForShutdown()
	return err
}

// natsServer is a server in a process of its own.
type natsServer struct {
	url   string
	dir   string
	leash io.Closer
	cmd   *exec.Cmd
}

func startNATS() (*natsServer, error) {
	dir, err := os.MkdirTemp("", "millbridge-bench-nats-")
	if err != nil {
		return nil, fmt.Errorf("start NATS: %w", err)
	}
	s := &natsServer{dir: dir, cmd: exec.Command(os.Args[0], serveArg, dir)}
	s.cmd.Stderr = os.Stderr
	stdin, err := s.cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start NATS: %w", err)
	}
	s.leash = stdin
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start NATS: %w", err)
	}
	if err := s.cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start NATS: %w", err), os.RemoveAll(dir))
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start NATS: %w", err), s.stop())
	}
	s.url = strings.TrimSpace(line)
	return s, nil
}

func (s *natsServer) stop() error {
	return errors.Join(s.leash.Close(), s.cmd.Wait(), os.RemoveAll(s.dir))
}
