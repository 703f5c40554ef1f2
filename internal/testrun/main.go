//go:build unix

package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	ctx, cancel := context.WithCancel(ctx)
	go followParent(ctx, cancel)

	opts, args := parse(os.Args[1:])
	summary, err := run(ctx, opts, args)
	cancel()
	if err != nil {
		fmt.Fprintf(os.Stderr, "testrun: FAILED: %v\n", err)
		os.Exit(1)
	}
	fmt.Printf("testrun: ok: %s\n", summary)
}

// followParent ends the run when the process that started it is gone: "go run", when killed, leaves its program behind.
func followParent(ctx context.Context, cancel context.CancelFunc) {
	parent := os.Getppid()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for os.Getppid() == parent {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
	cancel()
}

type options struct {
	requireRace bool // fail rather than run without the race detector
	noInstall   bool // leave the machine as it is
	pooled      bool // the tests reach PostgreSQL through PgBouncer
	benchmarks  bool // there are benchmarks to run
}

// parse takes out what is ours; all other arguments are for go test.
func parse(args []string) (options, []string) {
	var opts options
	rest := slices.DeleteFunc(slices.Clone(args), func(arg string) bool {
		switch arg {
		case "--require-race":
			opts.requireRace = true
		case "--no-install":
			opts.noInstall = true
		case "--pooled":
			opts.pooled = true
		default:
			return false
		}
		return true
	})
	opts.benchmarks = benchmarks(rest) && !opts.requireRace
	return opts, rest
}

func run(ctx context.Context, opts options, args []string) (summary string, err error) {
	race, err := provideRace(ctx, opts)
	if err != nil {
		return "", err
	}
	remove, err := provideScratch(memory, scratchSpace, args)
	if err != nil {
		return "", err
	}
	defer func() {
		if removeErr := remove(); err == nil {
			err = removeErr
		}
	}()
	pg, err := providePostgres(ctx, opts)
	if err != nil {
		return "", err
	}
	defer func() {
		if stopErr := pg.stop(); err == nil {
			err = stopErr
		}
	}()
	fmt.Printf("testrun: PostgreSQL: %s\n", pg.what)
	pooler, err := providePooler(ctx, opts, pg.url)
	if err != nil {
		return "", err
	}
	defer func() {
		if stopErr := pooler.stop(); err == nil {
			err = stopErr
		}
	}()
	if err := goTest(ctx, race.on, append(pg.env(), pooler.env()...), args); err != nil {
		return "", err
	}
	return fmt.Sprintf("all tests passed, %s, PostgreSQL: %s%s", race.what, pg.what, pooler.what), nil
}
