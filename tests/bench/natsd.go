package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// serveArg makes this program a NATS server, so that its processor time and memory are not the client's.
const serveArg = "nats-serve"

// natsConfig is what such a server is told.
type natsConfig struct {
	Name   string   `json:"name"`
	Dir    string   `json:"dir"`
	Port   int      `json:"port"`   // for the other servers of its cluster; 0 if it is alone
	Routes []string `json:"routes"` // to all servers of the cluster
}

// serveNATS runs a server with JetStream and its default settings until standard input ends, as it does when the
// process at its other end dies. Then it removes its files.
func serveNATS(text string) (err error) {
	var cfg natsConfig
	if err := json.Unmarshal([]byte(text), &cfg); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(cfg.Dir)) }()
	opts := &server.Options{
		ServerName: cfg.Name, Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: cfg.Dir, NoSigs: true, NoLog: true,
	}
	if cfg.Port != 0 {
		opts.Cluster = server.ClusterOpts{Name: "bench", Host: "127.0.0.1", Port: cfg.Port}
		for _, route := range cfg.Routes {
			u, err := url.Parse(route)
			if err != nil {
				return err
			}
			opts.Routes = append(opts.Routes, u)
		}
	}
	srv, err := server.NewServer(opts)
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

// natsServers are one server, or a cluster, each in a process of its own.
type natsServers struct {
	url   string // of all
	procs []*natsProcess
}

type natsProcess struct {
	url   string
	leash io.Closer
	cmd   *exec.Cmd
}

func startNATS() (*natsServers, error) {
	s := &natsServers{}
	return s, s.add(natsConfig{Name: "bench"})
}

// startCluster starts servers that replicate their streams, and returns when they do.
func startCluster(ctx context.Context, size int) (s *natsServers, err error) {
	ports, err := freePorts(size)
	if err != nil {
		return nil, fmt.Errorf("start a cluster: %w", err)
	}
	var routes []string
	for _, port := range ports {
		routes = append(routes, fmt.Sprintf("nats://127.0.0.1:%d", port))
	}
	s = &natsServers{}
	for i, port := range ports {
		if err := s.add(natsConfig{Name: fmt.Sprintf("bench-%d", i), Port: port, Routes: routes}); err != nil {
			return nil, errors.Join(err, s.stop())
		}
	}
	if err := s.awaitReplicas(ctx, size); err != nil {
		return nil, errors.Join(err, s.stop())
	}
	return s, nil
}

// awaitReplicas waits until the cluster makes a stream on all its servers.
func (s *natsServers) awaitReplicas(ctx context.Context, size int) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	nc, err := nats.Connect(s.url)
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := natsjs.New(nc)
	if err != nil {
		return err
	}
	for {
		try, done := context.WithTimeout(ctx, 2*time.Second)
		_, err := js.CreateStream(try, natsjs.StreamConfig{Name: "READY", Replicas: size})
		done()
		if err == nil {
			return js.DeleteStream(ctx, "READY")
		}
		if pause(ctx, 50*time.Millisecond) != nil {
			return fmt.Errorf("wait for the cluster: %w", err)
		}
	}
}

// add starts one server more.
func (s *natsServers) add(cfg natsConfig) error {
	fault := func(err error) error { return fmt.Errorf("start NATS: %w", err) }
	var err error
	if cfg.Dir, err = os.MkdirTemp("", "millbridge-bench-nats-"); err != nil {
		return fault(err)
	}
	text, err := json.Marshal(cfg)
	if err != nil {
		return fault(err)
	}
	p := &natsProcess{cmd: exec.Command(os.Args[0], serveArg, string(text))}
	p.cmd.Stderr = os.Stderr
	stdin, err := p.cmd.StdinPipe()
	if err != nil {
		return fault(err)
	}
	p.leash = stdin
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return fault(err)
	}
	if err := p.cmd.Start(); err != nil {
		return errors.Join(fault(err), os.RemoveAll(cfg.Dir))
	}
	s.procs = append(s.procs, p)
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return fault(err)
	}
	p.url = strings.TrimSpace(line)
	var all []string
	for _, p := range s.procs {
		all = append(all, p.url)
	}
	s.url = strings.Join(all, ",")
	return nil
}

func (s *natsServers) stop() error {
	var err error
	for _, p := range s.procs {
		err = errors.Join(err, p.leash.Close())
	}
	for _, p := range s.procs {
		err = errors.Join(err, p.cmd.Wait())
	}
	return err
}

// used is the processor time of all.
func (s *natsServers) used() float64 {
	sum := 0.0
	for _, p := range s.procs {
		if st, ok := readStat(p.cmd.Process.Pid); ok {
			sum += st.own
		}
	}
	return sum
}

// freePorts holds all ports until it has enough, so that they differ.
func freePorts(n int) ([]int, error) {
	var ports []int
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}
