package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/millbridge/millbridge/internal/config"
	"github.com/millbridge/millbridge/internal/embedded"
	"github.com/millbridge/millbridge/internal/killpoint"
	"github.com/millbridge/millbridge/internal/ops"
	"github.com/millbridge/millbridge/publishers/jetstream"
	"github.com/millbridge/millbridge/router"
	"github.com/millbridge/millbridge/schema"
	"github.com/millbridge/millbridge/schema/postgres"
)

// store is what commands need of a database beyond what internal/ops does.
type store interface {
	router.Store
	ops.Store
	MigrateUp(ctx context.Context) (from, to int, err error)
	MigrateDown(ctx context.Context, force bool) error
	SetMaxPayload(ctx context.Context, bytes int) error
}

// opened is what a command works on.
type opened struct {
	config   *config.Config
	log      *slog.Logger
	store    store
	conn     *nats.Conn            // nil if only the database was asked for
	repairs  jetstream.RepairStore // the store once more, for repairs
	repairer *jetstream.Repairer   // nil if only the database was asked for
	ops      *ops.Service
	stocks   []*postgres.Stock  // outboxes that are emptied into ours
	instance *embedded.Instance // of the embedded default, else nil
	closers  []func()
}

func (o *opened) subjects() schema.Subjects { return schema.Subjects{Prefix: o.config.Prefix} }

func (o *opened) forwarderConfig() jetstream.ForwarderConfig {
	c := jetstream.ForwarderConfig{Subjects: o.subjects(), EventTTL: time.Duration(o.config.EventsTTL), Logger: o.log, Lease: killpoint.Lease}
	for _, s := range o.stocks {
		c.Feeds = append(c.Feeds, s)
	}
	return c
}

// close undoes what open did, last things first.
func (o *opened) close() {
	for i := len(o.closers) - 1; i >= 0; i-- {
		o.closers[i]()
	}
}

// need says what a command cannot do without.
type need struct {
	nats   bool // the streams; the embedded default always has them
	create bool // an embedded data directory is made if there is none
	stay   bool // the command lasts: it runs an embedded data directory when the process that did has ended
}

// withBridge runs f on database and streams.
func (a *app) withBridge(cmd *cobra.Command, f func(ctx context.Context, o *opened) error) error {
	return a.with(cmd, need{nats: true}, f)
}

// withDatabase runs f on the database alone.
func (a *app) withDatabase(cmd *cobra.Command, f func(ctx context.Context, o *opened) error) error {
	return a.with(cmd, need{}, f)
}

func (a *app) with(cmd *cobra.Command, n need, f func(ctx context.Context, o *opened) error) error {
	c, err := a.loadConfigFor(cmd, n)
	if err != nil {
		return err
	}
	o := &opened{config: c, log: a.logger(c)}
	defer o.close()
	open := a.openServers
	if c.Embedded() {
		open = a.openEmbedded
	}
	if err := open(cmd.Context(), o, n); err != nil {
		return err
	}
	return f(cmd.Context(), o)
}

// openEmbedded attaches to the process that runs the data directory, or runs it itself for as long as the command lasts.
func (a *app) openEmbedded(ctx context.Context, o *opened, n need) error {
	dir := o.config.DataDir
	_, err := os.Stat(dir)
	isNew := errors.Is(err, os.ErrNotExist)
	if isNew && !n.create {
		return withHint(fmt.Errorf("there is no data directory %s", dir),
			"`millbridge dev` makes one and stays up; --data-dir names another; --database-url and --nats-url name servers")
	}
	open := embedded.OpenOrAttach
	if _, runs, err := embedded.Find(ctx, dir); err == nil && runs && !n.create {
		open = embedded.Attach // at once, without waiting for the other process to end
	}
	in, err := open(ctx, dir, embedded.Options{Logger: o.log, Succeed: n.stay})
	if err != nil {
		return err
	}
	o.closers = append(o.closers, func() {
		if err := in.Close(); err != nil {
			o.log.Warn("close data directory", "error", err)
		}
	})
	if isNew && !n.stay {
		o.log.Warn("made a new data directory, for no configuration names a database", "data_dir", dir)
	}
	o.instance, o.store, o.repairs, o.conn = in, in.Store, jetstream.RepairStoreOf(in.Store), in.Conn()
	return a.openOps(ctx, o)
}

// openServers connects to PostgreSQL and NATS. Neither needs to be up: what a command then asks fails, or says so.
func (a *app) openServers(ctx context.Context, o *opened, n need) error {
	c := o.config
	poolConfig, err := pgxpool.ParseConfig(c.Database.URL.Reveal())
	if err != nil {
		return withHint(fmt.Errorf("database.url: %w", err), "correct it where it comes from: %s", c.Origin("database.url"))
	}
	if c.Database.MaxConnections > 0 {
		poolConfig.MaxConns = int32(c.Database.MaxConnections)
	}
	boundWaits(poolConfig)
	pool, err := pgxpool.NewWithConfig(ctx, poolConfig)
	if err != nil {
		return fmt.Errorf("open database: %w", err)
	}
	st := postgres.New(pool, postgres.Options{Logger: o.log})
	o.closers = append(o.closers, pool.Close, st.Close)
	o.store, o.repairs = st, jetstream.RepairStoreOf(st)
	if o.stocks, err = openStocks(st, c); err != nil {
		return err
	}
	if !n.nats {
		o.ops = ops.New(o.store, nil, ops.Config{Subjects: o.subjects(), Leases: true})
		return nil
	}
	if o.conn, err = connectNATS(c, o.log); err != nil {
		return withHint(fmt.Errorf("connect to NATS: %w", err), "check the settings under nats; `millbridge config print` shows them")
	}
	o.closers = append(o.closers, o.conn.Close)
	waitConnected(ctx, o.conn)
	return a.openOps(ctx, o)
}

// answerWait is how long a server may take to let us in, and an idle connection to show that it still leads somewhere.
const answerWait = 5 * time.Second

// boundWaits sees to it that a server whose packets are dropped is given up in time: the next of several addresses is
// tried, and connections that lead nowhere are replaced. What the URL says is left as it is.
func boundWaits(c *pgxpool.Config) {
	if c.ConnConfig.ConnectTimeout == 0 {
		c.ConnConfig.ConnectTimeout = answerWait
	}
	keepAlive := net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3}
	c.ConnConfig.DialFunc = (&net.Dialer{Timeout: c.ConnConfig.ConnectTimeout, KeepAliveConfig: keepAlive}).DialContext
	if c.PingTimeout == 0 {
		c.PingTimeout = answerWait
	}
}

func (a *app) openOps(ctx context.Context, o *opened) error {
	js, err := natsjs.New(o.conn)
	if err != nil {
		return fmt.Errorf("open JetStream: %w", err)
	}
	streams := jetstream.StreamsConfig{Subjects: o.subjects(), Replicas: o.config.Replicas(), Logger: o.log}
	if o.instance != nil && !o.instance.Attached() {
		if err := jetstream.EnsureStreams(ctx, js, streams); err != nil {
			return err
		}
	}
	o.repairer, err = jetstream.NewRepairer(o.repairs, o.conn, o.forwarderConfig(), streams)
	if err != nil {
		return err
	}
	o.ops = ops.New(o.store, js, ops.Config{
		Subjects: o.subjects(), Leases: o.instance == nil, Durable: o.instance != nil, Repair: o.repairer,
		EventTTL: time.Duration(o.config.EventsTTL), Stocks: o.stockOutboxes(),
	})
	return nil
}

// openStocks returns what moves messages out of the stock outboxes of the configuration.
func openStocks(st *postgres.Store, c *config.Config) ([]*postgres.Stock, error) {
	var list []*postgres.Stock
	for _, topic := range c.Stock.Tables {
		s, err := st.NewStock(postgres.StockTable{Topic: topic, Group: c.Stock.ConsumerGroup, Rules: c.Stock.Rules()})
		if err != nil {
			return nil, withHint(fmt.Errorf("stock.tables: %w", err), "correct it where it comes from: %s", c.Origin("stock.tables"))
		}
		list = append(list, s)
	}
	return list, nil
}

func (o *opened) stockOutboxes() []ops.StockOutbox {
	var list []ops.StockOutbox
	for _, s := range o.stocks {
		list = append(list, s)
	}
	return list
}

const (
	// connectWait is how long a command waits for NATS before it goes on without.
	connectWait = 2 * time.Second
	// reconnectWait leaves room for a second try: the client tells why it could not sign in from that on.
	reconnectWait = 500 * time.Millisecond
)

func waitConnected(ctx context.Context, nc *nats.Conn) {
	ctx, cancel := context.WithTimeout(ctx, connectWait)
	defer cancel()
	changed := nc.StatusChanged(nats.CONNECTED)
	if nc.IsConnected() {
		return
	}
	select {
	case <-changed:
	case <-ctx.Done():
	}
}

func connectNATS(c *config.Config, log *slog.Logger) (*nats.Conn, error) {
	opts := append(jetstream.ConnectOptions(),
		nats.Name("millbridge"),
		nats.Timeout(connectWait),
		nats.ReconnectWait(reconnectWait),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				log.Warn("NATS is away", "error", err)
			}
		}),
		nats.ReconnectHandler(func(*nats.Conn) { log.Info("NATS is back") }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { log.Warn("NATS client", "error", err) }),
	)
	signIn, err := c.NATS.SignIn().Options()
	if err != nil {
		return nil, fmt.Errorf("nats.%w", err)
	}
	urls := ""
	for i, u := range c.NATS.URLs {
		if i > 0 {
			urls += ","
		}
		urls += u.Reveal()
	}
	return nats.Connect(urls, append(opts, signIn...)...)
}
