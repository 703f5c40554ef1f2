package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// A report is what is written as JSON.
type report struct {
	Version   int       `json:"version"`
	Machine   machine   `json:"machine"`
	Options   settings  `json:"settings"`
	Seconds   float64   `json:"seconds"`
	Summaries []summary `json:"summaries"`
	Aims      []verdict `json:"aims"`
	Results   []result  `json:"results"`
}

type machine struct {
	Time       time.Time `json:"time"`
	CPU        string    `json:"cpu"`
	Cores      int       `json:"cores"`
	System     string    `json:"system"`
	Go         string    `json:"go"`
	PostgreSQL int       `json:"postgresql"`
	NATS       string    `json:"nats_server"`
	Load       string    `json:"load_before,omitempty"` // of the machine when the run began
}

func (m machine) String() string {
	return fmt.Sprintf("%s; %s, %d cores, %s, %s; PostgreSQL %d, nats-server %s; load before: %s",
		m.Time.Format(time.RFC3339), m.CPU, m.Cores, m.System, m.Go, m.PostgreSQL, m.NATS, m.Load)
}

type settings struct {
	Rounds       int     `json:"rounds"`
	Messages     int     `json:"messages"`
	Backlog      int     `json:"backlog"`
	Stock        int     `json:"stock_messages"`
	Window       float64 `json:"seconds"`
	PayloadBytes int     `json:"payload_bytes"`
	Metadata     int     `json:"metadata_entries"`
}

// A spread is the median of some rounds, and its neighbours.
type spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

func spreadOf(values []float64) spread {
	if len(values) == 0 {
		return spread{}
	}
	v := slices.Sorted(slices.Values(values))
	n := len(v)
	return spread{Median: (v[(n-1)/2] + v[n/2]) / 2, Min: v[0], Max: v[n-1]}
}

// A summary is all rounds of one contender.
type summary struct {
	Scenario  string  `json:"scenario"`
	Contender string  `json:"contender"`
	Unit      string  `json:"unit"`
	Base      string  `json:"ratio_to"`
	Rounds    int     `json:"rounds"`
	Failed    int     `json:"failed"`
	Rate      spread  `json:"rate"`
	Ratio     spread  `json:"ratio"`
	P50       *spread `json:"p50_ms,omitempty"`
	P99       *spread `json:"p99_ms,omitempty"`
	// CPU is microseconds for each message, in the round in the middle of all by its sum. It is also seconds a million.
	CPU processorTime `json:"cpu_us_per_message"`
	// WAL is bytes of PostgreSQL's log for each message, or megabytes a million.
	WAL    spread  `json:"wal_bytes_per_message"`
	Memory *spread `json:"peak_memory_mb,omitempty"`
}

func newReport(ctx context.Context, s *servers, opts options) (*report, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m := machine{
		Time: time.Now().UTC().Truncate(time.Second), CPU: cpuModel(), Cores: runtime.NumCPU(),
		System: runtime.GOOS + "/" + runtime.GOARCH, Go: runtime.Version(), PostgreSQL: s.pg.Major(), NATS: server.VERSION, Load: loadAverage(),
	}
	return &report{Version: 1, Machine: m, Options: settings{
		Rounds: opts.rounds, Messages: opts.messages, Backlog: opts.backlog, Stock: opts.stock, Window: opts.window.Seconds(),
		PayloadBytes: usual.payload, Metadata: usual.metadata,
	}}, nil
}

func cpuModel() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "unknown processor"
	}
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown processor"
}

func loadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	first, _, _ := strings.Cut(string(text), " ")
	return first
}

func summarise(s scenario, results []result) []summary {
	var all []summary
	for _, c := range s.contenders {
		sum := summary{Scenario: s.name, Contender: c.name, Unit: s.unit, Base: s.baseOf(c.name)}
		var rates, ratios, p50, p99, wal, memory []float64
		var passed []result
		for _, r := range results {
			switch {
			case r.Contender != c.name:
				continue
			case r.Error != "":
				sum.Failed++
				continue
			}
			passed = append(passed, r)
			rates = append(rates, r.Rate)
			if r.Ratio > 0 {
				ratios = append(ratios, r.Ratio)
			}
			if r.Latency != nil {
				p50, p99 = append(p50, r.Latency.P50), append(p99, r.Latency.P99)
			}
			wal = append(wal, float64(r.WAL)/float64(max(r.Messages, 1)))
			if r.PeakMemory > 0 {
				memory = append(memory, megabytes(r))
			}
		}
		if sum.Rounds = len(passed); sum.Rounds+sum.Failed == 0 {
			continue
		}
		sum.Rate, sum.Ratio, sum.WAL = spreadOf(rates), spreadOf(ratios), spreadOf(wal)
		if len(memory) > 0 {
			m := spreadOf(memory)
			sum.Memory = &m
		}
		if len(p50) > 0 {
			a, b := spreadOf(p50), spreadOf(p99)
			sum.P50, sum.P99 = &a, &b
		}
		if len(passed) > 0 {
			slices.SortFunc(passed, func(a, b result) int { return int(1e9 * (perMessage(a).total() - perMessage(b).total())) })
			sum.CPU = perMessage(passed[len(passed)/2])
		}
		all = append(all, sum)
	}
	return all
}

func perMessage(r result) processorTime {
	f := 1e6 / float64(max(r.Messages, 1))
	return processorTime{Client: r.CPU.Client * f, PostgreSQL: r.CPU.PostgreSQL * f, NATS: r.CPU.NATS * f}
}

// megabytes is a run's peak memory.
func megabytes(r result) float64 { return float64(r.PeakMemory) / 1e6 }

func (r *report) write(opts options) error {
	var err error
	if opts.json != "" {
		text, jsonErr := json.MarshalIndent(r, "", "  ")
		if jsonErr == nil {
			jsonErr = os.WriteFile(opts.json, append(text, '\n'), 0o644)
		}
		err = errors.Join(err, jsonErr)
	}
	if opts.chart != "" {
		err = errors.Join(err, os.WriteFile(opts.chart, []byte(chart(r)), 0o644))
	}
	return err
}
