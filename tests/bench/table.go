package main

import (
	"fmt"
	"strconv"
	"strings"
)

// table is the scenario's summaries in Markdown.
func table(s scenario, all []summary) string {
	var b strings.Builder
	per := s.per
	if per == "" {
		per = "message"
	}
	row := func(cells ...string) { fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | ")) }
	head := []string{s.name, s.unit + ", median", "min–max", "ratio", "min–max"}
	if s.latency {
		head = append(head, "p50 ms", "min–max", "p99 ms", "min–max")
	}
	head = append(head, "CPU µs a "+per+": client / PostgreSQL / NATS", "WAL bytes a "+per, "peak MB")
	b.WriteString("\n")
	row(head...)
	b.WriteString("|---" + strings.Repeat("|---:", len(head)-1) + "|\n")
	for _, x := range all {
		if x.Scenario != s.name {
			continue
		}
		if x.Rounds == 0 {
			row(x.Contender, "FAILED")
			continue
		}
		cells := []string{x.Contender, spaced(x.Rate.Median), spaced(x.Rate.Min) + "–" + spaced(x.Rate.Max), "", ""}
		if x.Ratio.Median > 0 {
			cells[3], cells[4] = figures(x.Ratio), fmt.Sprintf("%.2f–%.2f", x.Ratio.Min, x.Ratio.Max)
		}
		for _, times := range []*spread{x.P50, x.P99} {
			if s.latency && times != nil {
				cells = append(cells, fmt.Sprintf("%.1f", times.Median), fmt.Sprintf("%.1f–%.1f", times.Min, times.Max))
			} else if s.latency {
				cells = append(cells, "", "")
			}
		}
		cells = append(cells, fmt.Sprintf("%.0f / %.0f / %.0f", x.CPU.Client, x.CPU.PostgreSQL, x.CPU.NATS), spaced(x.WAL.Median), "")
		if x.Memory != nil {
			cells[len(cells)-1] = fmt.Sprintf("%.0f", x.Memory.Max)
		}
		if x.Failed > 0 {
			cells[0] += fmt.Sprintf(" (%d FAILED)", x.Failed)
		}
		row(cells...)
	}
	return b.String()
}

// figures is a median.
func figures(s spread) string { return fmt.Sprintf("%.2f", s.Median) }

// costs is what a million messages cost beside the stock assembly: drained, and from commit to handler.
func costs(all []summary) string {
	var b strings.Builder
	for _, x := range all {
		if x.Scenario != "drain" && x.Scenario != "endtoend" || x.Rounds == 0 || strings.HasPrefix(x.Contender, "raw") {
			continue
		}
		if b.Len() == 0 {
			b.WriteString("\n| cost of a million messages | CPU s: client / PostgreSQL / NATS | together | times stock | WAL MB | times stock |\n" +
				"|---|---:|---:|---:|---:|---:|\n")
		}
		stock := stockOf(all, x)
		times := func(a, b float64) string {
			if b == 0 {
				return ""
			}
			return fmt.Sprintf("%.2f", a/b)
		}
		fmt.Fprintf(&b, "| %s: %s | %.0f / %.0f / %.0f | %.0f | %s | %.0f | %s |\n", x.Scenario, x.Contender, x.CPU.Client, x.CPU.PostgreSQL, x.CPU.NATS,
			x.CPU.total(), times(x.CPU.total(), stock.CPU.total()), x.WAL.Median, times(x.WAL.Median, stock.WAL.Median))
	}
	return b.String()
}

// stockOf is what the stock assembly needed for the same as x; nothing if it was not measured.
func stockOf(all []summary, x summary) summary {
	for _, s := range all {
		alike := strings.HasSuffix(s.Contender, tenEach) == strings.HasSuffix(x.Contender, tenEach)
		if s.Scenario == x.Scenario && strings.HasPrefix(s.Contender, "stock") && alike && s.Rounds > 0 {
			return s
		}
	}
	return summary{}
}

// spaced is a number with its thousands apart, and a small one with a decimal.
func spaced(v float64) string {
	if v != 0 && v < 10 {
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	s := strconv.FormatFloat(v, 'f', 0, 64)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + " " + s[i:]
	}
	return s
}
