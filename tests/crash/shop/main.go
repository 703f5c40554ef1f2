package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/millbridge/millbridge/router"
)

// options are the same for both.
type options struct {
	database, nats, dir string // servers, or the directory of the embedded default
	journal             string // file of what happened, one line each
	receiver            string // URL of the system that a handler calls
	lease, ackWait      time.Duration
	closeTimeout        time.Duration
	seed                uint64
	rate                int // messages a second
	most                int // messages in one transaction
	jobs                int // of a hundred messages
}

func main() {
	var o options
	f := flag.NewFlagSet("shop", flag.ExitOnError)
	f.StringVar(&o.database, "database-url", "", "PostgreSQL")
	f.StringVar(&o.nats, "nats-url", "", "NATS")
	f.StringVar(&o.dir, "data-dir", "", "embedded default")
	f.StringVar(&o.journal, "journal", "", "file of what happened")
	f.StringVar(&o.receiver, "receiver", "", "URL")
	f.DurationVar(&o.lease, "lease", 0, "of a handler")
	f.DurationVar(&o.ackWait, "ack-wait", 0, "of a handler")
	f.DurationVar(&o.closeTimeout, "close-timeout", 0, "for handlers at a stop")
	f.Uint64Var(&o.seed, "seed", 1, "of all chance")
	f.IntVar(&o.rate, "rate", 1000, "messages a second")
	f.IntVar(&o.most, "most", 400, "messages in one transaction")
	f.IntVar(&o.jobs, "jobs", 12, "of a hundred messages")
	if err := f.Parse(os.Args[2:]); err != nil {
		fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, nil)))
	do := map[string]func(context.Context, options) error{"produce": produce, "work": work}[os.Args[1]]
	if err := do(ctx, o); err != nil && (ctx.Err() == nil || errors.Is(err, router.ErrUnfinished)) {
		fatal(err)
	}
}

func fatal(err error) {
	fmt.Fprintln(os.Stderr, "shop:", err)
	os.Exit(1)
}

// journal is written to by all processes at once. A line is in the file when note returns, whatever happens to the
// process then.
type journal struct{ f *os.File }

func openJournal(name string) (*journal, error) {
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	return &journal{f}, err
}

func (j *journal) note(format string, args ...any) {
	if _, err := fmt.Fprintf(j.f, format+"\n", args...); err != nil {
		fatal(err)
	}
}
