package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// options of a run.
type options struct {
	scenarios []string // empty means all
	only      string   // part of the contenders' names
	rounds    int
	messages  int
	backlog   int           // messages of a large backlog
	stock     int           // messages for those whose rate falls with the backlog, or that are slow
	window    time.Duration // of measurements that go on for a time
	quick     bool
	json      string
	chart     string
	profile   string
}

func main() {
	var err error
	switch {
	case len(os.Args) == 3 && os.Args[1] == serveArg:
		err = serveNATS(os.Args[2])
	case len(os.Args) == 2 && os.Args[1] == forwardArg:
		err = forward()
	default:
		os.Exit(run(os.Args[1:]))
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", os.Args[1], err)
		os.Exit(1)
	}
}

func run(args []string) (exit int) {
	opts, err := parse(args)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err = bench(ctx, opts)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench: FAILED:", err)
		return 1
	}
	return 0
}

// transactions is how many messages there are for River with its defaults: a thousand a second.
func (o options) transactions() int { return max(o.stock/4, 1) }

func parse(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	chosen := flags.String("scenario", "", "only these, separated by commas: "+strings.Join(scenarioNames(), ", "))
	flags.StringVar(&o.only, "only", "", "only contenders whose name contains this")
	flags.IntVar(&o.rounds, "rounds", 3, "how often each contender has its turn")
	flags.IntVar(&o.messages, "messages", 100_000, "messages of a drain, and of fast consumers")
	flags.IntVar(&o.stock, "stock-messages", 20_000, "messages for the contenders that are slow, or slower the more wait")
	flags.IntVar(&o.backlog, "backlog", 1_000_000, "messages of a large backlog")
	seconds := flags.Float64("seconds", 2, "how long measurements take that go on for a time; latency takes twice as long")
	flags.BoolVar(&o.quick, "quick", false, "a fraction of a second for each contender, one round: to see that all of it works")
	flags.StringVar(&o.json, "json", "", "write all results to this file")
	flags.StringVar(&o.chart, "chart", "", "draw the ratios to this SVG file")
	flags.StringVar(&o.profile, "profile", "", "write where each run's client spends its processor time to files in this directory")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if o.quick {
		o.rounds, o.messages, o.backlog, o.stock, *seconds = 1, 1000, 2000, 200, 0.05
	}
	o.window = time.Duration(*seconds * float64(time.Second))
	if *chosen != "" {
		o.scenarios = strings.Split(*chosen, ",")
	}
	for _, name := range o.scenarios {
		if !known(name) {
			return o, fmt.Errorf("no scenario %q, want some of %v", name, scenarioNames())
		}
	}
	if flags.NArg() > 0 || o.rounds < 1 || o.messages < 1 || o.backlog < 1 || o.stock < 1 || o.window <= 0 {
		return o, errors.New("rounds, messages and seconds must be positive, and there are no other arguments")
	}
	return o, nil
}
