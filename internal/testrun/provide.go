//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"github.com/millbridge/millbridge/internal/testkit/pgserver"
)

type postgres struct {
	url  string
	what string // for the last line
	stop func() error
}

func (p *postgres) env() []string { return []string{pgserver.URLVar + "=" + p.url} }

// providePostgres gives the server that the environment names, else a throwaway one, installing PostgreSQL if it must.
func providePostgres(ctx context.Context, opts options) (*postgres, error) {
	if url := os.Getenv(pgserver.URLVar); url != "" {
		return &postgres{url: url, what: "the server that " + pgserver.URLVar + " names", stop: func() error { return nil }}, nil
	}
	server, err := pgserver.Start()
	if errors.Is(err, pgserver.ErrNoBinaries) {
		if instErr := install(ctx, opts, "postgresql"); instErr != nil {
			return nil, fmt.Errorf("%w; %w\ninstall PostgreSQL, or set %s to the URL of a server where the user may create databases",
				err, instErr, pgserver.URLVar)
		}
		server, err = pgserver.Start()
	}
	if err != nil {
		return nil, err
	}
	return &postgres{url: server.URL(), what: fmt.Sprintf("version %d, throwaway", server.Major()), stop: server.Stop}, nil
}

type pooler struct {
	url  string // empty if the tests do not all go through it
	what string // for the last line
	stop func() error
}

func (p *pooler) env() []string {
	if p.url == "" {
		return nil
	}
	return []string{pgserver.PoolerVar + "=" + p.url}
}

// pooledConns is more than the transactions that any test holds open in one database.
const pooledConns = 20

// providePooler makes sure that there is a PgBouncer, which some tests start themselves, and starts one for all tests if
// they are to go through it.
func providePooler(ctx context.Context, opts options, server string) (*pooler, error) {
	none := &pooler{stop: func() error { return nil }}
	if err := pgserver.FindPooler(); err != nil {
		instErr := install(ctx, opts, "pgbouncer")
		if instErr != nil && opts.pooled {
			return nil, fmt.Errorf("%w; %w\ninstall PgBouncer", err, instErr)
		}
		if instErr != nil {
			fmt.Printf("testrun: tests of poolers will fail: %v; %v\n", err, instErr)
		}
	}
	if !opts.pooled {
		return none, nil
	}
	p, err := pgserver.StartPooler(server, pgserver.PoolerConfig{Mode: "transaction", Conns: pooledConns})
	if err != nil {
		return nil, err
	}
	return &pooler{url: p.URL(), what: " behind PgBouncer in transaction mode", stop: p.Stop}, nil
}

type race struct {
	on   bool
	what string // for the last line
}

// provideRace finds out whether the race detector can be used, installing a C compiler if it must.
func provideRace(ctx context.Context, opts options) (race, error) {
	if opts.benchmarks {
		return race{what: "without the race detector, which costs most of the time"}, nil
	}
	with := race{on: true, what: "race detector on"}
	missing := missingCompiler(ctx)
	if missing == nil {
		return with, nil
	}
	instErr := install(ctx, opts, "gcc", "libc6-dev")
	if instErr == nil {
		if missing = missingCompiler(ctx); missing == nil {
			return with, nil
		}
	}
	reason := errors.Join(missing, instErr)
	if opts.requireRace {
		return race{}, fmt.Errorf("the race detector is required: %w", reason)
	}
	fmt.Printf("testrun: no race detector: %v\n", reason)
	return race{what: "WITHOUT the race detector (no C compiler)"}, nil
}

// missingCompiler returns nil if go can build with cgo, which the race detector needs everywhere but on macOS.
func missingCompiler(ctx context.Context) error {
	if runtime.GOOS == "darwin" {
		return nil
	}
	out, err := exec.CommandContext(ctx, "go", "env", "CC").Output()
	if err != nil {
		return fmt.Errorf("ask go for its C compiler: %w", err)
	}
	command := strings.Fields(string(out))
	if len(command) == 0 {
		return errors.New("go knows no C compiler")
	}
	if _, err := exec.LookPath(command[0]); err != nil {
		return fmt.Errorf("no C compiler: %w", err)
	}
	return nil
}

// install brings Debian packages, if this is Debian or Ubuntu and we are root.
func install(ctx context.Context, opts options, packages ...string) error {
	if opts.noInstall {
		return errors.New("not installed because of --no-install")
	}
	if os.Geteuid() != 0 {
		return errors.New("not installed because only root may")
	}
	if _, err := exec.LookPath("apt-get"); err != nil {
		return errors.New("not installed because there is no apt-get here")
	}
	fmt.Printf("testrun: installing %s with apt-get\n", strings.Join(packages, ", "))
	if err := apt(ctx, "update"); err != nil {
		// Old lists often do; the install says what is really missing.
		fmt.Printf("testrun: apt-get update: %v\n", err)
	}
	if err := apt(ctx, append([]string{"install", "-y", "--no-install-recommends"}, packages...)...); err != nil {
		return fmt.Errorf("install %s: %w", strings.Join(packages, ", "), err)
	}
	return nil
}

func apt(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, "apt-get", append([]string{"-q", "-o", "DPkg::Lock::Timeout=300"}, args...)...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd.Run()
}
