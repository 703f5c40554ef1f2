package main

import (
	"fmt"
	"strconv"
	"strings"
)

// An aim is what one contender should reach: a figure, or a figure's ratio to another contender's in the same round. The
// median of the rounds counts.
type aim struct {
	what                string
	scenario, contender string
	to                  string // empty: the figure itself counts
	figure              func(r result) float64
	unit                string  // of the figure; empty for a ratio
	least, most         float64 // the floor, or the ceiling; both 0: it is only reported
	better              float64 // what is tried for beyond the floor
}

func rate(r result) float64      { return r.Rate }
func processor(r result) float64 { return perMessage(r).total() }

func p50(r result) float64 { return times(r).P50 }
func p99(r result) float64 { return times(r).P99 }

func times(r result) quantiles {
	if r.Latency == nil {
		return quantiles{}
	}
	return *r.Latency
}

func aims() []aim {
	const (
		stock, ours, raw = "stock forwarder", "millbridge", "raw: atomic batches, no database"
		undisturbed      = "millbridge, undisturbed"
		large            = "millbridge, a large backlog"
		bareBatch        = "no message, pgx.Batch"
		inPgx            = "millbridge, pgx"
		inCallers        = "millbridge, in the caller's pgx.Batch"
		stockEnqueue     = "stock publisher, database/sql"
		noInbox          = "millbridge, no inbox"
		tuned            = "river, tuned"
		idempotent       = "millbridge, idempotent"
	)
	return []aim{
		{what: "drain, times stock", scenario: "drain", contender: ours, to: stock, figure: rate, least: 10, better: 15},
		{what: "drain, times raw atomic batches", scenario: "drain", contender: ours, to: raw, figure: rate, better: 0.8},
		{what: "drain, processor time a message, times stock", scenario: "drain", contender: ours, to: stock, figure: processor, most: 0.125},
		{what: "drain, peak memory of the process", scenario: "drain", contender: ours, figure: megabytes, unit: "MB", most: 100},
		{what: "drain of a stock outbox, times stock", scenario: "drain", contender: "millbridge, from a stock outbox", to: stock, figure: rate, least: 3, better: 6},
		{
			what: "large backlog, times stock with as many", scenario: "backlog", contender: large,
			to: "stock forwarder, a large backlog, its beginning", figure: rate, least: 300,
		},
		{what: "large backlog, times the usual backlog", scenario: "backlog", contender: large, to: undisturbed, figure: rate, least: 0.9},
		{what: "large backlog, peak memory of the process", scenario: "backlog", contender: large, figure: megabytes, unit: "MB", most: 100},
		{
			what: "old snapshot and dead rows, times undisturbed", scenario: "backlog",
			contender: "millbridge, an old snapshot is open, dead rows", to: undisturbed, figure: rate, least: 0.9,
		},
		{what: "a writer stays open, times undisturbed", scenario: "backlog", contender: "millbridge, a writer stays open", to: undisturbed, figure: rate},
		{what: "R3, times R1", scenario: "replicas", contender: "millbridge, R3", to: "millbridge, R1", figure: rate, least: 0.6},
		{what: "R3, times stock on R3", scenario: "replicas", contender: "millbridge, R3", to: "stock forwarder, R3", figure: rate},
		{what: "R3, times raw atomic batches on R3", scenario: "replicas", contender: "millbridge, R3", to: raw + ", R3", figure: rate},

		{what: "latency at 200 a second, nudged, p50", scenario: "latency", contender: "millbridge, nudged, 200 a second", figure: p50, unit: "ms", most: 1.5},
		{what: "latency at 200 a second, nudged, p99", scenario: "latency", contender: "millbridge, nudged, 200 a second", figure: p99, unit: "ms", most: 6},
		{
			what: "latency at 200 a second, polling alone, p99", scenario: "latency",
			contender: "millbridge, polling alone, 200 a second", figure: p99, unit: "ms", most: 10,
		},
		{
			what: "writers at 2,000 a second, times without a forwarder", scenario: "latency",
			contender: "millbridge, nudged, 2000 a second", to: "no forwarder, 2000 a second", figure: rate, least: 0.9,
		},
		{what: "latency at 2,000 a second, p99", scenario: "latency", contender: "millbridge, nudged, 2000 a second", figure: p99, unit: "ms", most: 50},
		{what: "idle, process and database", scenario: "idle", contender: "millbridge", figure: rate, unit: "% of a core", most: 3},

		{what: "enqueue in the caller's pgx.Batch, times stock", scenario: "enqueue", contender: inCallers, to: stockEnqueue, figure: rate, least: 2},
		{what: "the same, times the batch without a message", scenario: "enqueue", contender: inCallers, to: bareBatch, figure: rate, least: 0.75},
		{what: "enqueue in a pgx transaction, times stock", scenario: "enqueue", contender: inPgx, to: stockEnqueue, figure: rate, least: 1.3},
		{
			what: "enqueue 100 in one call, times stock", scenario: "enqueue",
			contender: "millbridge, pgx, 100 messages", to: "stock publisher, 100 messages", figure: rate, least: 1.6,
		},
		{
			what: "enqueue 1,000 in one statement, times stock", scenario: "enqueue",
			contender: "millbridge, pgx, 1,000 messages", to: "stock publisher, 1,000 messages", figure: rate,
		},
		{what: "ordering key, times without", scenario: "enqueue", contender: "millbridge, pgx, ordering key", to: inPgx, figure: rate},
		{what: "idempotency key, times without", scenario: "enqueue", contender: "millbridge, pgx, idempotency key", to: inPgx, figure: rate},

		{
			what: "consume without inbox, times stock's default", scenario: "consume", contender: noInbox,
			to: "stock router, AckSync (default)", figure: rate, least: 8, better: 10,
		},
		{what: "consume without inbox, times raw Consume and Ack", scenario: "consume", contender: noInbox, to: "raw: Consume, Ack", figure: rate, least: 0.5, better: 0.6},
		{what: "consume with leases, times River tuned", scenario: "consume", contender: "millbridge, lease (default)", to: tuned, figure: rate, least: 2},
		{
			what: "consume in a transaction, times the same transactions alone", scenario: "consume",
			contender: "millbridge, transactional, inserts a row", to: "raw: Consume, transaction, Ack", figure: rate, least: 0.8,
		},
		{
			what: "a handler of 10 ms, 20 at once, of 2,000 at best", scenario: "consume", contender: "millbridge, no inbox, 10 ms, 20 at once",
			figure: rate, unit: "msg/s", better: 0.9 * atBest(20),
		},
		{
			what: "a handler of 10 ms, 100 at once, of 10,000 at best", scenario: "consume", contender: "millbridge, no inbox, 10 ms, 100 at once",
			figure: rate, unit: "msg/s", better: 0.9 * atBest(concurrency),
		},
		{
			what: "2,000 others in back-off, times without them", scenario: "consume", contender: "millbridge, no inbox, 2,000 others in back-off",
			to: noInbox, figure: rate, least: 0.9,
		},

		{what: "end to end, times River tuned", scenario: "endtoend", contender: idempotent, to: tuned, figure: rate, least: 2},
		{what: "end to end, p99, times River tuned", scenario: "endtoend", contender: idempotent, to: tuned, figure: p99, most: 1},
		{what: "end to end, 10 a transaction, times River tuned", scenario: "endtoend", contender: idempotent + tenEach, to: tuned + tenEach, figure: rate, least: 2},
		{what: "end to end, 10 a transaction, p99, times River tuned", scenario: "endtoend", contender: idempotent + tenEach, to: tuned + tenEach, figure: p99, most: 1},
		{
			what: "embedded, 100 a transaction, end to end", scenario: "embedded", contender: "end to end: 100 messages a transaction",
			figure: rate, unit: "msg/s", least: 5000,
		},
	}
}

// A verdict is how a measured aim turned out.
type verdict struct {
	What     string  `json:"what"`
	Unit     string  `json:"unit,omitempty"` // empty: a ratio
	Least    float64 `json:"least,omitempty"`
	Most     float64 `json:"most,omitempty"`
	Better   float64 `json:"tried_for,omitempty"`
	Measured spread  `json:"measured"`
	// Processor is a ratio of rates by processor time alone: what it would be if nobody waited for a disk or for others.
	Processor *spread `json:"by_processor_time,omitempty"`
	Rounds    int     `json:"rounds"`
	Met       *bool   `json:"met,omitempty"`     // none if there is neither floor nor ceiling
	Reached   *bool   `json:"reached,omitempty"` // what is tried for
}

// judge compares a scenario's results with its aims. Aims whose contenders had no turn are left out; one whose runs all
// failed is not met.
func judge(scenario string, results []result) []verdict {
	var all []verdict
	for _, a := range aims() {
		if a.scenario != scenario {
			continue
		}
		ours, theirs := byRound(results, a.contender), byRound(results, a.to)
		if len(ours) == 0 || a.to != "" && len(theirs) == 0 {
			continue
		}
		var values, costs []float64
		for round, r := range ours {
			v := a.figure(r)
			if a.to != "" {
				v /= max(a.figure(theirs[round]), 1e-9)
			}
			if r.Error == "" && (a.to == "" || theirs[round].Round == round && theirs[round].Error == "") {
				values = append(values, v)
				if own := processor(r); a.to != "" && a.most == 0 && own > 0 {
					costs = append(costs, processor(theirs[round])/own)
				}
			}
		}
		v := verdict{What: a.what, Unit: a.unit, Least: a.least, Most: a.most, Better: a.better, Measured: spreadOf(values), Rounds: len(values)}
		if len(costs) > 0 {
			s := spreadOf(costs)
			v.Processor = &s
		}
		enough := func(least float64) *bool {
			met := len(values) > 0 && v.Measured.Median >= least
			return &met
		}
		switch {
		case a.most > 0:
			met := len(values) > 0 && v.Measured.Median <= a.most
			v.Met = &met
		case a.least > 0:
			v.Met = enough(a.least)
		}
		if a.better > 0 {
			v.Reached = enough(a.better)
		}
		all = append(all, v)
	}
	return all
}

func byRound(results []result, contender string) map[int]result {
	rounds := make(map[int]result)
	for _, r := range results {
		if r.Contender == contender {
			rounds[r.Round] = r
		}
	}
	return rounds
}

// aimsTable is all verdicts in Markdown.
func aimsTable(all []verdict) string {
	if len(all) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("\n| aims | floor | tried for | measured | min–max | by processor time | met |\n|---|---:|---:|---:|---:|---:|---|\n")
	for _, v := range all {
		show := func(x float64) string {
			if v.Unit == "" {
				return fmt.Sprintf("%.2f", x)
			}
			return spaced(x) + " " + v.Unit
		}
		exact := func(x float64) string { return strings.TrimSpace(strconv.FormatFloat(x, 'f', -1, 64) + " " + v.Unit) }
		floor, tried, cost, met := "", "", "", "reported"
		if v.Processor != nil {
			cost = show(v.Processor.Median)
		}
		switch {
		case v.Least > 0:
			floor = "at least " + exact(v.Least)
		case v.Most > 0:
			floor = "at most " + exact(v.Most)
		}
		if v.Better > 0 {
			tried = exact(v.Better)
		}
		switch {
		case v.Rounds == 0:
			met = "FAILED"
		case v.Met != nil && !*v.Met:
			met = "**no**"
		case v.Reached != nil && *v.Reached:
			met = "yes, and more"
			if v.Met == nil {
				met = "yes"
			}
		case v.Met != nil:
			met = "yes"
		case v.Reached != nil:
			met = "not yet"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s–%s | %s | %s |\n", v.What, floor, tried,
			show(v.Measured.Median), show(v.Measured.Min), show(v.Measured.Max), cost, met)
	}
	return b.String()
}
