package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode"
)

// A scenario is work that contenders do in turn.
type scenario struct {
	name, title string
	unit        string
	base        string            // the contender that the ratios are to; empty if there are none
	bases       map[string]string // the same for contenders that are compared with another one
	per         string            // what processor time is given for; empty: a message
	latency     bool              // there are times besides the rates
	contenders  []contender
}

func (s scenario) baseOf(contender string) string {
	if other := s.bases[contender]; other != "" {
		return other
	}
	return s.base
}

// A contender does the work in one way, on a stage of its own, and checks what it did.
type contender struct {
	name string
	run  func(ctx context.Context, st *stage) (result, error)
}

// A result is one run of one contender.
type result struct {
	Scenario   string        `json:"scenario"`
	Contender  string        `json:"contender"`
	Round      int           `json:"round"`
	Messages   int           `json:"messages"`
	Seconds    float64       `json:"seconds"`
	Rate       float64       `json:"rate"`
	Ratio      float64       `json:"ratio,omitempty"` // to the base in the same round
	CPU        processorTime `json:"cpu_seconds"`
	OtherCores float64       `json:"other_cores"` // what the rest of the machine used meanwhile
	WAL        int64         `json:"wal_bytes"`
	PeakMemory int64         `json:"peak_memory_bytes,omitempty"` // of a forwarding process
	Latency    *quantiles    `json:"latency_ms,omitempty"`
	Error      string        `json:"error,omitempty"`
}

func scenarios() []scenario {
	return []scenario{
		drainScenario(), backlogScenario(), replicasScenario(), growthScenario(),
		enqueueScenario(), consumeScenario(), endToEndScenario(), latencyScenario(), idleScenario(), embeddedScenario(),
	}
}

func scenarioNames() []string {
	var names []string
	for _, s := range scenarios() {
		names = append(names, s.name)
	}
	return names
}

func known(name string) bool { return slices.Contains(scenarioNames(), name) }

func bench(ctx context.Context, opts options) (err error) {
	if opts.profile != "" {
		if err := os.MkdirAll(opts.profile, 0o755); err != nil {
			return err
		}
	}
	if opts.quick {
		if err := inMemory(); err != nil {
			return err
		}
	}
	begin := time.Now()
	srv, err := startServers(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, srv.stop()) }()
	rep, err := newReport(ctx, srv, opts)
	if err != nil {
		return err
	}
	fmt.Println(rep.Machine.String())
	var failed []error
	for _, s := range scenarios() {
		if len(opts.scenarios) > 0 && !slices.Contains(opts.scenarios, s.name) {
			continue
		}
		results, err := srv.rounds(ctx, s, opts)
		if err != nil {
			return err
		}
		rep.Results = append(rep.Results, results...)
		for _, r := range results {
			if r.Error != "" {
				failed = append(failed, fmt.Errorf("%s, %s, round %d: %s", r.Scenario, r.Contender, r.Round, r.Error))
			}
		}
		rep.Summaries = append(rep.Summaries, summarise(s, results)...)
		rep.Aims = append(rep.Aims, judge(s.name, results)...)
		if !opts.quick { // whose figures mean nothing
			fmt.Print(table(s, rep.Summaries))
		}
		rep.Seconds = time.Since(begin).Seconds()
		if err := rep.write(opts); err != nil {
			return err
		}
	}
	if !opts.quick {
		fmt.Print(costs(rep.Summaries), aimsTable(rep.Aims))
	}
	fmt.Printf("\n%d runs in %.0f s, %d failed\n", len(rep.Results), rep.Seconds, len(failed))
	return errors.Join(failed...)
}

// rounds gives each contender its turn, and then again. A run that fails is a result with an error.
func (s *servers) rounds(ctx context.Context, sc scenario, opts options) ([]result, error) {
	fmt.Printf("\n%s: %s\n", sc.name, sc.title)
	var all []result
	for round := 1; round <= opts.rounds; round++ {
		rates := make(map[string]float64)
		first := len(all)
		for _, c := range inTurn(sc.contenders, round) {
			if !strings.Contains(c.name, opts.only) {
				continue
			}
			r, err := s.turn(ctx, c, opts, fmt.Sprintf("%s %s %d", sc.name, c.name, round))
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			r.Scenario, r.Contender, r.Round = sc.name, c.name, round
			if err != nil {
				r.Error = err.Error()
				fmt.Fprintf(os.Stderr, "  FAILED: %s: %v\n", c.name, err)
			}
			if err == nil {
				rates[c.name] = r.Rate
			}
			all = append(all, r)
			fmt.Printf("  %d  %-52s %10s %s in %.2f s%s; others used %.1f cores\n",
				round, c.name, spaced(r.Rate), sc.unit, r.Seconds, r.Latency, r.OtherCores)
		}
		for i := range all[first:] {
			r := &all[first+i]
			if base := rates[sc.baseOf(r.Contender)]; base > 0 && r.Error == "" {
				r.Ratio = r.Rate / base
			}
		}
	}
	return all, s.stopCluster()
}

// inTurn is the order of a round: every other one is backwards, so that nobody always comes after the same one.
func inTurn(contenders []contender, round int) []contender {
	order := slices.Clone(contenders)
	if round%2 == 0 {
		slices.Reverse(order)
	}
	return order
}

// turn is one run of one contender. A run that hangs is given up: it has failed.
func (s *servers) turn(ctx context.Context, c contender, opts options, name string) (r result, err error) {
	limit := 15 * time.Minute
	if opts.quick {
		limit = 2 * time.Minute
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not done after %v", limit))
	defer cancel()
	st, err := s.newStage(ctx, opts)
	if err != nil {
		return result{}, err
	}
	if opts.profile != "" {
		st.profile = filepath.Join(opts.profile, fileName(name)+".pprof")
	}
	defer func() { err = errors.Join(err, st.clear()) }()
	return c.run(ctx, st)
}

// fileName keeps letters and digits of a name.
func fileName(name string) string {
	return strings.Join(strings.FieldsFunc(name, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }), "-")
}

// quantiles of times, in milliseconds.
type quantiles struct {
	P50 float64 `json:"p50"`
	P95 float64 `json:"p95"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

func (q *quantiles) String() string {
	if q == nil {
		return ""
	}
	return fmt.Sprintf(", p50 %.1f ms, p95 %.1f ms, p99 %.1f ms, max %.1f ms", q.P50, q.P95, q.P99, q.Max)
}

func quantilesOf(times []time.Duration) *quantiles {
	if len(times) == 0 {
		return nil
	}
	times = slices.Sorted(slices.Values(times))
	at := func(share float64) float64 {
		return float64(times[min(int(share*float64(len(times))), len(times)-1)].Microseconds()) / 1000
	}
	return &quantiles{P50: at(0.5), P95: at(0.95), P99: at(0.99), Max: at(1)}
}
