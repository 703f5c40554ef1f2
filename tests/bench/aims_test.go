package main

import (
	"html"
	"slices"
	"strings"
	"testing"
)

// An aim that names nobody would never be measured, and a ratio to nobody never shown.
func TestNames_are_those_of_contenders(t *testing.T) {
	t.Parallel()
	known := make(map[string][]string)
	for _, s := range scenarios() {
		for _, c := range s.contenders {
			if slices.Contains(known[s.name], c.name) {
				t.Errorf("%s has %q twice", s.name, c.name)
			}
			known[s.name] = append(known[s.name], c.name)
		}
		for name, base := range s.bases {
			if !slices.Contains(known[s.name], name) || !slices.Contains(known[s.name], base) {
				t.Errorf("%s: no contenders %q and %q", s.name, name, base)
			}
		}
		if s.base != "" && !slices.Contains(known[s.name], s.base) {
			t.Errorf("%s: no contender %q", s.name, s.base)
		}
	}
	for _, a := range aims() {
		for _, name := range []string{a.contender, a.to} {
			if name != "" && !slices.Contains(known[a.scenario], name) {
				t.Errorf("%s: %s has no contender %q", a.what, a.scenario, name)
			}
		}
	}
}

func TestJudge(t *testing.T) {
	t.Parallel()
	run := func(contender string, round int, rate float64) result {
		return result{
			Scenario: "drain", Contender: contender, Round: round, Rate: rate, Messages: 1, PeakMemory: 50e6,
			CPU: processorTime{Client: 1 / rate, NATS: 1 / rate},
		}
	}
	failed := run("stock forwarder", 3, 1)
	failed.Error = "lost"
	results := []result{
		run("stock forwarder", 1, 100), run("millbridge", 1, 1100),
		run("stock forwarder", 2, 100), run("millbridge", 2, 900),
		failed, run("millbridge", 3, 5000),
	}
	all := judge("drain", results)
	byName := make(map[string]verdict)
	for _, v := range all {
		byName[v.What] = v
	}
	v := byName["drain, times stock"]
	if v.Rounds != 2 || v.Measured != (spread{10, 9, 11}) || v.Met == nil || !*v.Met || v.Reached == nil || *v.Reached {
		t.Errorf("times stock: %+v", v)
	}
	v = byName["drain, peak memory of the process"]
	if v.Rounds != 3 || v.Measured != (spread{50, 50, 50}) || v.Met == nil || !*v.Met || v.Reached != nil {
		t.Errorf("memory: %+v", v)
	}
	if v, ok := byName["drain, times raw atomic batches"]; ok {
		t.Errorf("there is a verdict on what was not measured: %+v", v)
	}
	text := aimsTable(all)
	for _, want := range []string{
		"| drain, times stock | at least 10 | 15 | 10.00 | 9.00–11.00 | 10.00 | yes |",
		"| drain, peak memory of the process | at most 100 MB |  | 50 MB | 50 MB–50 MB |  | yes |",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in %s", want, text)
		}
	}
	results[1].Rate, results[3].Rate = 1, 1
	if text := aimsTable(judge("drain", results)); !strings.Contains(text, "| **no** |") {
		t.Errorf("a tenth of a percent is enough: %s", text)
	}
	for i := range results {
		results[i].Error = "lost"
	}
	if text := aimsTable(judge("drain", results)); !strings.Contains(text, "| FAILED |") {
		t.Errorf("nothing has failed: %s", text)
	}
}

func TestChart_and_tables_show_all_scenarios(t *testing.T) {
	t.Parallel()
	r := &report{}
	var results []result
	for _, s := range scenarios() {
		results = results[:0]
		for _, c := range s.contenders {
			results = append(results, result{
				Scenario: s.name, Contender: c.name, Round: 1, Rate: 7, Ratio: 1, Messages: 1, WAL: 3, Latency: &quantiles{P50: 1, P99: 20},
			})
		}
		r.Summaries = append(r.Summaries, summarise(s, results)...)
		text := table(s, r.Summaries)
		for _, c := range s.contenders {
			if !strings.Contains(text, "\n| "+c.name+" | 7.0 |") {
				t.Errorf("%s: no %q in %s", s.name, c.name, text)
			}
		}
		if lines := strings.Split(strings.TrimSpace(text), "\n"); strings.Count(lines[0], "|") != strings.Count(lines[2], "|") {
			t.Errorf("%s: head and rows differ: %s", s.name, text)
		}
	}
	picture := chart(r)
	for _, s := range scenarios() {
		for _, c := range s.contenders {
			if !strings.Contains(picture, ">"+html.EscapeString(c.name)+"<") {
				t.Errorf("%s: %q is not in the chart", s.name, c.name)
			}
		}
	}
	if text := costs(r.Summaries); !strings.Contains(text, "| drain: millbridge | 0 / 0 / 0 | 0 |  | 3 | 1.00 |") {
		t.Errorf("the costs are %s", text)
	}
}
