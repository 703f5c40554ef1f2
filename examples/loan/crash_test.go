package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/schema"
)

// Variables of the test binary that make it the program instead of a test.
const (
	dirVar  = "LOAN_DIR"
	townVar = "LOAN_TOWN"
	killVar = "LOAN_KILL" // "begin", "end" or both
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(dirVar); dir != "" {
		if err := program(dir, os.Getenv(townVar), os.Getenv(killVar)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// traps kill the process once at each point, and remember in a file where they did.
type traps struct {
	file  string
	sides string
	mu    sync.Mutex
}

// pass is called at the beginning and the end of each handler.
func (k *traps) pass(env schema.Envelope, side string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	point := fmt.Sprintf("%s.%s of %s at its %s\n", env.Target, env.Name, env.ID, side)
	past, err := os.ReadFile(k.file)
	if !strings.Contains(k.sides, side) || strings.Contains(string(past), point) || err != nil && !errors.Is(err, os.ErrNotExist) {
		return
	}
	if os.WriteFile(k.file, append(past, point...), 0o600) == nil {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // it does not go on before it has taken effect
	}
}

// program goes on with a loan until it has ended, and prints it.
func program(dir, townURL, sides string) error {
	k := &traps{file: dir + ".killed", sides: sides}
	s := hasty
	s.ackWait, s.crashes = 300*time.Millisecond, 1000
	s.wrap = func(t handlers.Target) handlers.Target {
		inner := t.Handler
		t.Handler = handlers.HandlerFunc(func(ctx context.Context, env schema.Envelope) error {
			k.pass(env, "begin")
			err := inner.Handle(ctx, env)
			k.pass(env, "end")
			return err
		})
		return t
	}
	ctx := context.Background()
	a, err := open(ctx, dir, townURL, s)
	if err != nil {
		return err
	}
	e, err := run(ctx, a)
	if err != nil {
		return errors.Join(err, a.close())
	}
	return errors.Join(json.NewEncoder(os.Stdout).Encode(e), a.close())
}

// crashing runs the program again and again on one directory until it ends by itself, and returns how the loan has
// ended, and where the program was killed.
func crashing(t *testing.T, town *town, sides string) (e end, killed []string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	for run := 0; ; run++ {
		var out, stderr bytes.Buffer
		cmd := exec.CommandContext(ctx, self)
		cmd.Env = append(os.Environ(), dirVar+"="+dir, townVar+"="+town.URL, killVar+"="+sides)
		cmd.Stdout, cmd.Stderr = &out, &stderr
		err := cmd.Run()
		var exit *exec.ExitError
		switch {
		case err == nil:
			if err := json.Unmarshal(out.Bytes(), &e); err != nil {
				t.Fatalf("%v: %s", err, out.Bytes())
			}
			points, err := os.ReadFile(dir + ".killed")
			if err != nil {
				t.Fatal(err)
			}
			return e, strings.Split(strings.TrimSpace(string(points)), "\n")
		case errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL && ctx.Err() == nil:
		default:
			t.Fatalf("run %d: %v: %s", run, err, stderr.Bytes())
		}
	}
}

// complete checks what must hold of a ledger whatever happened.
func (e end) complete(t *testing.T) {
	t.Helper()
	var last time.Time
	seen := map[string]bool{}
	for i, ev := range e.Events {
		if ev.N != i+1 || ev.At.Before(last) {
			t.Errorf("event %d is number %d, at %v", i+1, ev.N, ev.At)
		}
		last = ev.At
		if once := ev.Step + " " + ev.Kind + " " + ev.Rationale; seen[once] {
			t.Errorf("%q is in the ledger twice", once)
		} else {
			seen[once] = true
		}
	}
	if len(e.Events) != e.Loan.Version {
		t.Errorf("%d events, the last one is number %d", len(e.Events), e.Loan.Version)
	}
}

// happened checks that each thing has happened once to the one request of a loan that went well.
func (t *town) happened(tb testing.TB) {
	tb.Helper()
	once := []string{
		"REQ_IDLE -> REQ_VALIDATED", "REQ_VALIDATED -> REQ_SUPPLIER_IDENTIFIED", "REQ_SUPPLIER_IDENTIFIED -> REQ_REQUEST_SENT_TO_SUPPLIER",
		"REQ_REQUEST_SENT_TO_SUPPLIER -> REQ_EXPECTS_TO_SUPPLY", "REQ_EXPECTS_TO_SUPPLY -> REQ_SHIPPED", "REQ_SHIPPED -> REQ_CHECKED_IN",
		"REQ_CHECKED_IN -> REQ_AWAITING_RETURN_SHIPPING", "REQ_AWAITING_RETURN_SHIPPING -> REQ_SHIPPED_TO_SUPPLIER",
		"REQ_SHIPPED_TO_SUPPLIER -> REQ_REQUEST_COMPLETE",
	}
	for _, r := range t.reshare.Requests("east") {
		if !slices.Equal(r.History, once) {
			tb.Errorf("happened has %q", r.History)
		}
	}
	if s := t.ils.State(); len(s.Items)+len(s.Loans)+len(s.Requests) > 0 {
		tb.Errorf("the library has %+v", s)
	}
}

// A process that dies when a handler has done its work and nobody knows, once for each step and each call, leaves a loan
// that goes on and does everything once.
func TestCrash_at_each_handler_leaves_a_loan_that_goes_on(t *testing.T) {
	t.Parallel()
	town := openTown(t)
	e, killed := crashing(t, town, "end")
	e.complete(t)
	e.wentWell(t, town, "west")
	town.happened(t)
	if len(killed) != 24 { // eleven jobs, the start, two signals and ten reports: nobody is told of the letter
		t.Errorf("it was killed %d times, at %q", len(killed), killed)
	}
}
