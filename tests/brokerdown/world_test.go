package brokerdown

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/internal/ops"
	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/internal/testkit/natsproc"
	"github.com/millbridge/millbridge/internal/testkit/netproxy"
	"github.com/millbridge/millbridge/internal/testkit/proof"
	"github.com/millbridge/millbridge/publishers/jetstream"
	"github.com/millbridge/millbridge/router"
	"github.com/millbridge/millbridge/schema/postgres"
)

var logs = flag.Bool("logs", false, "show what the bridges log")

func TestMain(m *testing.M) {
	natsproc.Main()
	flag.Parse()
	most := "3" // each test has two bridges, producers and a server; on a small machine more would only wait for each other
	if long {
		most = "2"
	}
	if err := flag.Set("test.parallel", most); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// patience is for what must happen; it says nothing about how long it should take.
const patience = 2 * time.Minute

// A world is a service with its database, and two bridges: one sends and one works, each behind a network of its own.
type world struct {
	pool         *pgxpool.Pool
	store        *postgres.Store
	book         *proof.Book
	js           natsjs.JetStream // past the bad network
	ops          *ops.Service     // what `millbridge status` shows, seen by a process with a good network
	repairer     *jetstream.Repairer
	sender       *node
	worker       *node
	traffic      *traffic
	faults       int
	recovered    []time.Duration
	hold         func()               // called by every handler, before its effect
	mayBeLost    func(id string) bool // what an operator has accepted
	recoveryMost time.Duration
}

// A node is a bridge behind a network of its own.
type node struct {
	net    *netproxy.Proxy
	conn   *nats.Conn
	bridge *router.Bridge
}

// A setting is what differs between tests.
type setting struct {
	servers  []string // addresses; the first is behind the proxies. With several there are no proxies
	replicas int
	maxBytes int64
	edit     func(*router.Config)
	pace     time.Duration // between the transactions of a producer
}

func open(t *testing.T, set setting) *world {
	t.Helper()
	pool := testkit.Postgres(t)
	w := &world{pool: pool, book: proof.OnPostgres(pool), hold: func() {}, mayBeLost: func(string) bool { return false }}
	w.store = postgres.New(pool, postgres.Options{Logger: w.logger(t)})
	t.Cleanup(w.store.Close)
	if err := w.book.Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	direct := w.connect(t, strings.Join(set.servers, ","))
	w.js = testkit.JetStream(t, direct)
	streams := jetstream.StreamsConfig{Replicas: set.replicas, MaxBytes: set.maxBytes}
	w.recoveryMost = patience
	var err error
	w.repairer, err = jetstream.NewRepairer(jetstream.RepairStoreOf(w.store), direct, jetstream.ForwarderConfig{}, streams)
	if err != nil {
		t.Fatal(err)
	}
	w.ops = ops.New(w.store, w.js, ops.Config{Leases: true, Repair: w.repairer})
	w.sender = w.node(t, set, func(c *router.Config) {})
	w.worker = w.node(t, set, func(c *router.Config) { c.NoForward = true })
	w.serve(t)
	w.sender.run(t)
	w.worker.run(t)
	w.healthy(t)
	w.served(t) // else what is published first is not new to a subscription
	w.traffic = w.publish(set.pace)
	t.Cleanup(func() { w.traffic.stop(t) })
	return w
}

func (w *world) logger(t *testing.T) *slog.Logger {
	if *logs {
		return testkit.Logger(t)
	}
	return slog.New(slog.DiscardHandler)
}

// connect makes a connection as the program does.
func (w *world) connect(t *testing.T, url string) *nats.Conn {
	t.Helper()
	opts := jetstream.ConnectOptions()
	if !long {
		opts = append(opts, nats.ReconnectWait(100*time.Millisecond), nats.PingInterval(500*time.Millisecond))
	}
	conn, err := nats.Connect(url, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return conn
}

func (w *world) node(t *testing.T, set setting, edit func(*router.Config)) *node {
	t.Helper()
	n := &node{}
	url := strings.Join(set.servers, ",")
	if len(set.servers) == 1 {
		n.net = netproxy.Start(t, url)
		url = n.net.NATS()
	}
	n.conn = w.connect(t, url)
	cfg := router.Config{
		Store: w.store, Conn: n.conn, Replicas: set.replicas, MaxBytes: set.maxBytes, CloseTimeout: 10 * time.Second,
		Logger: w.logger(t),
	}
	if !long {
		cfg.AckWait, cfg.Heartbeat = 3*time.Second, 500*time.Millisecond
		cfg.Forwarder = jetstream.ForwarderConfig{Lease: 5 * time.Second, AckTimeout: 3 * time.Second, RetryMax: 500 * time.Millisecond}
	}
	edit(&cfg)
	if set.edit != nil {
		set.edit(&cfg)
	}
	testkit.Eventually(t, patience, func() (err error) {
		n.bridge, err = router.Open(t.Context(), cfg)
		return err
	})
	return n
}

func (n *node) run(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- n.bridge.Run(ctx) }()
	t.Cleanup(func() {
		if n.net != nil {
			n.net.Heal()
		}
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("run: %v", err)
		}
	})
}

// serve adds the handlers, one for each way to handle.
func (w *world) serve(t *testing.T) {
	t.Helper()
	for _, target := range []handlers.Target{
		{Name: "books", Handler: handlers.HandlerFunc(w.inTx), Policy: handlers.Policy{Mode: handlers.ModeTx}},
		{Name: "crm", Handler: handlers.HandlerFunc(w.outside), Policy: handlers.Policy{Mode: handlers.ModeLease}},
		{Name: "till", Handler: handlers.HandlerFunc(w.inTx), Policy: handlers.Policy{Mode: handlers.ModeTx, Ordered: true}},
	} {
		if err := w.worker.bridge.Target(target); err != nil {
			t.Fatal(err)
		}
	}
	err := w.worker.bridge.Subscribe(handlers.Subscription{
		Name: "audit", Events: []string{"order.>"}, Handler: handlers.HandlerFunc(w.inTx), Policy: handlers.Policy{Mode: handlers.ModeTx},
	})
	if err != nil {
		t.Fatal(err)
	}
}

// consumers are those of the handlers, by stream.
var consumers = []struct{ stream, name string }{
	{"MB_JOBS", "books"}, {"MB_JOBS", "crm"}, {"MB_JOBS", "till"}, {"MB_EVENTS", "audit"}, {"MB_JOBS", "audit"},
}

// served waits until all consumers are there.
func (w *world) served(t *testing.T) {
	t.Helper()
	testkit.Eventually(t, w.recoveryMost, func() error {
		for _, c := range consumers {
			if _, err := w.js.Consumer(t.Context(), c.stream, c.name); err != nil {
				return fmt.Errorf("consumer %s of stream %s: %w", c.name, c.stream, err)
			}
		}
		return nil
	})
}

// problems is what both bridges say about themselves.
func (w *world) problems(t *testing.T) []string {
	return append(w.sender.bridge.Health(t.Context()).Problems, w.worker.bridge.Health(t.Context()).Problems...)
}

// healthy waits until nothing is wrong, in the eyes of the bridges and of `millbridge status`.
func (w *world) healthy(t *testing.T) {
	t.Helper()
	testkit.Eventually(t, w.recoveryMost, func() error {
		if p := w.problems(t); len(p) > 0 {
			return fmt.Errorf("the bridges say %q", p)
		}
		if s := w.ops.Status(t.Context()); !s.OK {
			return fmt.Errorf("status says %q", s.Reasons)
		}
		return nil
	})
}

// says waits until a bridge says what is wrong.
func (n *node) says(t *testing.T, want string) {
	t.Helper()
	testkit.Eventually(t, patience, func() error {
		if p := n.bridge.Health(t.Context()).Problems; !strings.Contains(strings.Join(p, "\n"), want) {
			return fmt.Errorf("it says %q, want %q", p, want)
		}
		return nil
	})
}

// statusSays waits until `millbridge status` says what is wrong.
func (w *world) statusSays(t *testing.T, want string) {
	t.Helper()
	testkit.Eventually(t, patience, func() error {
		if r := w.ops.Status(t.Context()).Reasons; !strings.Contains(strings.Join(r, "\n"), want) {
			return fmt.Errorf("status says %q, want %q", r, want)
		}
		return nil
	})
}
