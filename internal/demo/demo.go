package demo

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/millbridge/millbridge/internal/ops"
	"github.com/millbridge/millbridge/publishers"
	"github.com/millbridge/millbridge/router"
	"github.com/millbridge/millbridge/router/embedded"
	"github.com/millbridge/millbridge/schema"
)

// Config says how big the demo is.
type Config struct {
	Dir    string // data directory; must be empty or not exist
	Orders int
	Seed   uint64
	Tell   func(Line) // is told what happens as it happens, one line at a time
	Logger *slog.Logger
}

// Report is what is there at the end, all of it read back.
type Report struct {
	Tried      int       `json:"tried"` // orders
	RolledBack int       `json:"rolled_back"`
	Books      Books     `json:"books"`
	Parcels    int       `json:"parcels"` // booked at the shipping company
	Forged     int       `json:"forged"`  // requests it refused; there must be none
	Events     int64     `json:"events"`  // handled by the subscriber
	Replayed   string    `json:"replayed"`
	Tally      ops.Tally `json:"tally"`
}

// OK reports whether nothing was lost and nothing doubled, by the tally and by the shop's own books.
func (r Report) OK() bool {
	committed := int64(r.Tried - r.RolledBack)
	return r.Tally.Balanced && r.Books.Orders == committed && r.Books.Payments == committed && int64(r.Parcels) == committed && r.Forged == 0
}

// few is up to how many orders each step is told of.
const few = 30

// Run plays the demo through. It leaves the data directory as it is at the end.
func Run(ctx context.Context, cfg Config) (Report, error) {
	d := &demo{cfg: cfg, plan: makePlan(cfg.Orders, cfg.Seed), tell: newTeller(cfg.Tell, time.Now(), cfg.Orders <= few)}
	report, err := d.run(ctx)
	if err != nil {
		return report, fmt.Errorf("demo: %w", err)
	}
	return report, nil
}

type demo struct {
	cfg    Config
	plan   plan
	tell   teller
	said   time.Time // when the last progress was told
	shop   *Shop
	ops    *ops.Service
	bridge *router.Bridge
}

func (d *demo) run(ctx context.Context) (Report, error) {
	// SQLite and a NATS server in this process.
	in, err := embedded.Open(ctx, d.cfg.Dir, embedded.Options{Logger: d.cfg.Logger})
	if err != nil {
		return Report{}, err
	}
	defer in.Close() //nolint:errcheck // everything was committed long before
	if _, err := in.DB.ExecContext(ctx, shopTables); err != nil {
		return Report{}, fmt.Errorf("create the shop's tables: %w", err)
	}
	d.bridge, err = router.Open(ctx, router.Config{Store: in.Store, Conn: in.Conn, Logger: d.cfg.Logger})
	if err != nil {
		return Report{}, err
	}
	d.shop = &Shop{db: in.DB, outbox: publishers.NewOutbox[*sql.Tx](in.Store, publishers.Config{Nudge: d.bridge.Nudge})}
	js, err := natsjs.New(in.Conn)
	if err != nil {
		return Report{}, err
	}
	d.ops = ops.New(in.Store, js, ops.Config{Durable: true})

	company, err := openShippingCompany(ctx, d.tell)
	if err != nil {
		return Report{}, err
	}
	defer company.server.Close() //nolint:errcheck // it is gone with the process anyway
	store := &archive{tell: d.tell}
	var seen atomic.Int64
	if err := d.register(company, store, &seen); err != nil {
		return Report{}, err
	}

	running, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- d.bridge.Run(running) }()
	report, err := d.play(ctx, store, ended)
	stop()
	if runErr := <-ended; err == nil {
		err = runErr
	}
	if err != nil {
		return report, err
	}

	report.Parcels, report.Forged = company.booked()
	report.Events = seen.Load()
	if report.Books, err = d.shop.Books(ctx); err != nil {
		return report, err
	}
	report.Tally, err = d.ops.Tally(ctx)
	return report, err
}

func (d *demo) register(company *shippingCompany, store *archive, seen *atomic.Int64) error {
	post, err := shipping(company.url)
	return errors.Join(err,
		d.bridge.Target(billing(d.tell)),
		d.bridge.Target(mail(d.tell, func(order int) int { return d.plan.failures[order] })),
		d.bridge.Target(post),
		d.bridge.Target(store.target()),
		d.bridge.Subscribe(reports(seen)),
	)
}

// play is the story: orders, then a repair and a replay.
func (d *demo) play(ctx context.Context, store *archive, ended chan error) (Report, error) {
	report := Report{Tried: len(d.plan.orders)}
	if report.Tried > few {
		d.tell(Say, "", 0, fmt.Sprintf("%d orders: too many to tell of each, here is how far they are.", report.Tried))
	}
	d.said = time.Now()
	var err error
	if report.RolledBack, err = d.sell(ctx); err != nil {
		return report, err
	}
	if err := d.settle(ctx, ended); err != nil {
		return report, err
	}
	letters, _, err := d.ops.Poison(ctx, ops.PoisonQuery{Target: "archive", Limit: 1})
	if err != nil || len(letters) == 0 {
		return report, err
	}
	d.tell(Say, "", 0, "Somebody frees the archive's disk and replays the first message from its poison queue.")
	store.repaired.Store(true)
	report.Replayed = letters[0].ID
	out, err := d.ops.Act(ctx, ops.Order{Action: ops.Replay, IDs: []string{letters[0].ID}}, func(ops.PoisonItem, error) {})
	if err == nil && out.Done != 1 {
		err = fmt.Errorf("replay of %s: %w", report.Replayed, schema.ErrAlreadyReplayed)
	}
	if err != nil {
		return report, err
	}
	d.bridge.Nudge()
	return report, d.settle(ctx, ended)
}

// sell places all orders, a few in a row so that one can watch, many as fast as they go.
func (d *demo) sell(ctx context.Context) (rolledBack int, err error) {
	pace := time.NewTicker(max(min(70*time.Millisecond, time.Second/time.Duration(max(len(d.plan.orders), 1))), time.Microsecond))
	defer pace.Stop()
	for i, o := range d.plan.orders {
		d.progress("%d of %d orders", i, len(d.plan.orders))
		err := d.shop.Place(ctx, o)
		switch {
		case errors.Is(err, errRefused):
			rolledBack++
			d.tell(Undo, "shop", o.Number, fmt.Sprintf("%-8s %7s EUR  %v: order and %d messages rolled back", o.Customer, euros(o.Cents), err, len(messagesOf(o))))
		case err != nil:
			return rolledBack, fmt.Errorf("order %d: %w", o.Number, err)
		default:
			d.shop.outbox.Nudge()
			d.tell(Sold, "shop", o.Number, fmt.Sprintf("%-8s %7s EUR  order and %d messages committed together", o.Customer, euros(o.Cents), len(messagesOf(o))))
		}
		select {
		case <-pace.C:
		case <-ctx.Done():
			return rolledBack, ctx.Err()
		}
	}
	return rolledBack, nil
}

// progress tells once a second how far a long story is.
func (d *demo) progress(format string, args ...any) {
	if len(d.plan.orders) > few && time.Since(d.said) > time.Second {
		d.said = time.Now()
		d.tell(Say, "", 0, "... "+fmt.Sprintf(format, args...))
	}
}

// settle waits until nothing is in motion.
func (d *demo) settle(ctx context.Context, ended chan error) error {
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	for {
		t, err := d.ops.Tally(ctx)
		if err != nil || t.Settled {
			return err
		}
		d.progress("%d in the outbox, %d jobs and %d events under way", t.Waiting.Outbox, t.Waiting.Jobs, t.Waiting.Handing)
		select {
		case <-look.C:
		case err := <-ended:
			ended <- err
			return errors.Join(errors.New("the bridge has ended"), err)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
