package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"

	"github.com/millbridge/millbridge/publishers/jetstream"
	"github.com/millbridge/millbridge/schema"
	"github.com/millbridge/millbridge/schema/postgres"
)

// forwardArg makes this program a process that forwards and does nothing else, so that its processor time and its memory
// are a forwarder's alone.
const forwardArg = "forward"

// An order is what such a process is told.
type order struct {
	Stock    bool          `json:"stock"` // the stock forwarder instead of Millbridge's
	Feed     bool          `json:"feed"`  // Millbridge's takes the stock forwarder's outbox
	Database string        `json:"database"`
	NATS     string        `json:"nats"`
	Messages int           `json:"messages"` // that wait
	Limit    time.Duration `json:"limit"`    // ends before all are sent, but not before the first batches are; 0: never
	Profile  string        `json:"profile"`
}

// An account is what it answers when it has sent them.
type account struct {
	Sent       int     `json:"sent"`
	Processor  float64 `json:"processor"` // seconds, from the word to go on
	PeakMemory int64   `json:"peak_memory"`
	Error      string  `json:"error"`
}

// forward obeys what comes in at standard input: an order, and "go" when it says that it is ready. If the other end
// closes, it gives up.
func forward() error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	var o order
	if err := in.Decode(&o); err != nil {
		return err
	}
	pool, err := pgxpool.New(ctx, o.Database)
	if err != nil {
		return err
	}
	defer pool.Close()
	nc, err := nats.Connect(o.NATS, jetstream.ConnectOptions()...)
	if err != nil {
		return err
	}
	defer nc.Close()
	if err := pool.Ping(ctx); err != nil {
		return err
	}
	var word string
	if err := errors.Join(out.Encode("ready"), in.Decode(&word)); err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // ends when the other side does
		cancel()
	}()
	profile := startProfile(o.Profile)
	before := own()
	var a account
	switch {
	case o.Stock:
		a.Sent, err = forwardStock(ctx, o)
	case o.Feed:
		a.Sent, err = forwardFed(ctx, pool, nc, o.Messages)
	default:
		a.Sent, err = forwardMillbridge(ctx, pool, nc)
	}
	a.Processor, a.PeakMemory = own()-before, peakMemory()
	stopProfile(profile)
	if err != nil {
		a.Error = err.Error()
	}
	if err := out.Encode(a); err != nil {
		return err
	}
	<-ctx.Done() // the stock forwarder notes what it has sent when the last message has long arrived
	return nil
}

func forwardMillbridge(ctx context.Context, pool *pgxpool.Pool, nc *nats.Conn) (int, error) {
	forwarder, err := jetstream.NewForwarder(jetstream.StoreOf(postgres.New(pool, postgres.Options{})), nc, jetstream.ForwarderConfig{})
	if err != nil {
		return 0, err
	}
	tally, err := forwarder.Drain(ctx)
	return tally.Sent, err
}

// forwardFed empties the stock outbox into ours and sends, until n messages are sent.
func forwardFed(ctx context.Context, pool *pgxpool.Pool, nc *nats.Conn, n int) (sent int, err error) {
	store := postgres.New(pool, postgres.Options{})
	feed, err := store.NewStock(postgres.StockTable{
		Topic: stockTopic, Group: stockGroup, Rules: schema.StockRules{Topics: map[string]string{stockStream: "jobs." + target + "." + action}},
	})
	if err != nil {
		return 0, err
	}
	forwarder, err := jetstream.NewForwarder(jetstream.StoreOf(store), nc, jetstream.ForwarderConfig{Feeds: []jetstream.Feed{feed}})
	if err != nil {
		return 0, err
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- forwarder.Run(running) }()
	for sent < n && err == nil {
		err = pause(ctx, 2*time.Millisecond)
		sent = 0
		for _, sh := range forwarder.Status() {
			sent += sh.Sent
		}
	}
	stop()
	return sent, errors.Join(err, <-ended)
}

// stockBatches is two batches of the stock forwarder. With a million rows it needs seconds for each.
const stockBatches = 200

// forwardStock leaves the forwarder running until the process ends: with a large backlog it takes long to stop.
func forwardStock(ctx context.Context, o order) (int, error) {
	st := &stage{url: o.Database, nats: &natsServers{url: o.NATS}}
	counting := &countingPublisher{want: o.Messages, done: make(chan struct{})}
	if _, err := st.startStockForwarder(ctx, 0, func(p message.Publisher) message.Publisher {
		counting.Publisher = p
		return counting
	}); err != nil {
		return 0, err
	}
	limit := make(<-chan time.Time)
	if o.Limit > 0 {
		limit = time.After(o.Limit)
	}
	select {
	case <-counting.done:
	case <-limit:
		for counting.n.Load() < stockBatches {
			if err := pause(ctx, 5*time.Millisecond); err != nil {
				return 0, err
			}
		}
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	return int(counting.n.Load()), nil
}

// forward measures a process that does what o says with the stage's servers. It ends after settled.
func (st *stage) forward(ctx context.Context, o order, settled func(ctx context.Context) error) (r result, err error) {
	o.Database, o.NATS, o.Profile = st.url, st.nats.url, st.profile
	cmd := exec.CommandContext(ctx, os.Args[0], forwardArg)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return result{}, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return result{}, err
	}
	if err := cmd.Start(); err != nil {
		return result{}, fmt.Errorf("start the forwarding process: %w", err)
	}
	defer func() {
		err = errors.Join(err, stdin.Close(), cmd.Wait())
	}()
	in, out := json.NewDecoder(stdout), json.NewEncoder(stdin)
	var word string
	if err := errors.Join(out.Encode(o), in.Decode(&word)); err != nil {
		return result{}, fmt.Errorf("the forwarding process does not start: %w", err)
	}
	m := st.meterOther()
	var a account
	if err := errors.Join(out.Encode("go"), in.Decode(&a)); err != nil {
		return result{}, fmt.Errorf("the forwarding process has ended: %w", err)
	}
	r = m.stopOther(a.Sent, a.Processor)
	r.PeakMemory = a.PeakMemory
	if a.Error != "" {
		err = errors.New(a.Error)
	}
	if err == nil && a.Sent != o.Messages && o.Limit == 0 {
		err = fmt.Errorf("the forwarder counts %d of %d messages", a.Sent, o.Messages)
	}
	return r, errors.Join(err, settled(ctx))
}
