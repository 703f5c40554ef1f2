package testkit

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	clusterTimeout  = 30 * time.Second
	stepDownTimeout = 2 * time.Second
)

// NATSCluster is a cluster of NATS servers in the test's process, for replicated streams.
type NATSCluster struct {
	t       testing.TB
	servers []*Server
}

// Cluster starts n servers that know each other and returns when they have a leader and are current.
func Cluster(t testing.TB, n int, edits ...func(*server.Options)) *NATSCluster {
	t.Helper()
	ports, err := freePorts(n)
	if err != nil {
		t.Fatalf("find ports for the NATS cluster: %v", err)
	}
	var routes []*url.URL
	for _, port := range ports {
		routes = append(routes, &url.URL{Scheme: "nats", Host: fmt.Sprintf("127.0.0.1:%d", port)})
	}
	c := &NATSCluster{t: t}
	faults := make(chan error, n)
	for i, port := range ports {
		opts := serverOptions(t, fmt.Sprintf("test-%d", i))
		opts.Cluster = server.ClusterOpts{Name: "test", Host: "127.0.0.1", Port: port}
		opts.Routes = routes
		for _, edit := range edits {
			edit(opts)
		}
		c.servers = append(c.servers, &Server{t: t, opts: opts})
	}
	for _, s := range c.servers {
		go func() { faults <- s.start() }()
	}
	var joined error
	for range n {
		joined = errors.Join(joined, <-faults)
	}
	t.Cleanup(c.stop)
	if joined != nil {
		t.Fatalf("start the NATS cluster: %v", joined)
	}
	c.AwaitReady()
	return c
}

func (c *NATSCluster) stop() {
	for _, s := range c.servers {
		if s.Server() != nil {
			s.Stop()
		}
	}
}

// AwaitReady waits until every server that runs is current and one of them leads all of them.
func (c *NATSCluster) AwaitReady() {
	c.t.Helper()
	Eventually(c.t, clusterTimeout, func() error {
		leaders := 0
		for i, s := range c.servers {
			srv := s.Server()
			switch {
			case !srv.Running():
				continue
			case srv.NumRoutes() == 0:
				return fmt.Errorf("server %d has no routes", i)
			case !srv.JetStreamIsCurrent():
				return fmt.Errorf("server %d is not current", i)
			case srv.JetStreamIsLeader() && len(srv.JetStreamClusterPeers()) == len(c.servers):
				leaders++
			}
		}
		if leaders != 1 {
			return fmt.Errorf("%d leaders know all %d servers", leaders, len(c.servers))
		}
		return nil
	})
}

// IsPeerOffline reports that a cluster cannot place a stream now because it takes a server for offline, as it does when the
// machine is too slow for its heartbeats.
func IsPeerOffline(err error) bool {
	const notEnoughPeers = 10005
	var api *jetstream.APIError
	return errors.As(err, &api) && api.ErrorCode == notEnoughPeers
}

// URL lists all servers, for a client.
func (c *NATSCluster) URL() string {
	var urls []string
	for _, s := range c.servers {
		urls = append(urls, s.URL())
	}
	return strings.Join(urls, ",")
}

// Conn opens a connection to any of the servers, with the options of Server.Conn.
func (c *NATSCluster) Conn(t testing.TB, opts ...nats.Option) *nats.Conn {
	t.Helper()
	return connect(t, c.URL(), opts)
}

// JetStream is a JetStream context on a connection of its own.
func (c *NATSCluster) JetStream(t testing.TB) jetstream.JetStream {
	t.Helper()
	return JetStream(t, c.Conn(t))
}

// Server is the i-th server.
func (c *NATSCluster) Server(i int) *Server { return c.servers[i] }

// Kill stops the i-th server. Its peers and clients see their connections cut.
func (c *NATSCluster) Kill(i int) { c.servers[i].Stop() }

// Restart starts the i-th server again, with its streams and on its ports.
func (c *NATSCluster) Restart(i int) { c.servers[i].Restart() }

// Leader is the number of the server that leads the stream, or -1 if none does.
func (c *NATSCluster) Leader(stream string) int {
	for i, s := range c.servers {
		if srv := s.Server(); srv.Running() && srv.JetStreamIsStreamLeader(server.DEFAULT_GLOBAL_ACCOUNT, stream) {
			return i
		}
	}
	return -1
}

// StepDown makes the stream's leader hand over. The stream may have no leader for a moment afterwards.
func (c *NATSCluster) StepDown(stream string) error {
	nc, err := nats.Connect(c.URL(), nats.Name("step down"))
	if err != nil {
		return fmt.Errorf("connect to step the leader down: %w", err)
	}
	defer nc.Close()
	if _, err := nc.Request(fmt.Sprintf(server.JSApiStreamLeaderStepDownT, stream), nil, stepDownTimeout); err != nil {
		return fmt.Errorf("step the leader of %s down: %w", stream, err)
	}
	return nil
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
