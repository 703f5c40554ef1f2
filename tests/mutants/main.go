//go:build unix

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"syscall"
	"time"

	"github.com/millbridge/millbridge/internal/testkit/pgserver"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	pattern := flag.String("run", "", "only mutants whose name matches this regular expression")
	list := flag.Bool("list", false, "list the mutants and stop")
	verbose := flag.Bool("v", false, "show the output of the failing tests")
	flag.Parse()
	re, err := regexp.Compile(*pattern)
	if err != nil {
		return fmt.Errorf("-run: %w", err)
	}
	root, err := moduleRoot()
	if err != nil {
		return err
	}
	all, err := load(os.DirFS(filepath.Join(root, "tests", "mutants", "registry")))
	if err != nil {
		return err
	}
	var chosen []mutant
	for _, m := range all {
		if re.MatchString(m.Name) {
			chosen = append(chosen, m)
		}
	}
	if *list {
		for _, m := range chosen {
			fmt.Printf("%-48s %s\n", m.Name, m.Guard)
		}
		return nil
	}
	return killAll(ctx, root, chosen, *verbose)
}

func killAll(ctx context.Context, root string, mutants []mutant, verbose bool) error {
	dir, err := os.MkdirTemp("", "millbridge-mutants-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	url, stop, err := postgres()
	if err != nil {
		return err
	}
	defer stop()

	w := &worker{root: root, dir: dir, postgres: url, baseline: map[string]error{}}
	counts := map[outcome]int{}
	for _, m := range mutants {
		begun := time.Now()
		got, detail := w.try(ctx, m)
		if ctx.Err() != nil {
			return errors.New("interrupted")
		}
		counts[got]++
		fmt.Printf("%-8s %-48s %6.1fs  %s %s%s\n", got, m.Name, time.Since(begun).Seconds(), m.Package, m.Run, failedAfter(detail))
		if verbose || got != killed {
			fmt.Println(detail)
		}
	}
	fmt.Printf("mutants: %d killed, %d survived, %d broken\n", counts[killed], counts[survived], counts[broken])
	if counts[killed] != len(mutants) {
		return errors.New("not every guard is tested")
	}
	return nil
}

// postgres gives all tests one server, which the runs would otherwise start one by one.
func postgres() (url string, stop func(), err error) {
	if url := os.Getenv(pgserver.URLVar); url != "" {
		return url, func() {}, nil
	}
	server, err := pgserver.Start()
	if err != nil {
		return "", nil, err
	}
	return server.URL(), func() {
		if err := server.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "mutants:", err)
		}
	}, nil
}

// moduleRoot is where go.mod is, at or above the working directory.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("no go.mod here or above")
		}
		dir = parent
	}
}
