package main

import (
	"fmt"
	"html"
	"math"
	"strings"
)

// A bar is one contender in the chart.
type bar struct {
	name, class, text string
	value, from, to   float64
}

// chart draws each scenario: the median ratios as bars, with lines from the least to the most; and times as bars up to
// p50, with lines to p99.
func chart(r *report) string {
	var c canvas
	rounds := fmt.Sprintf("bar: median, line: min to max of %d rounds", r.Options.Rounds)
	for _, s := range scenarios() {
		var ratios, times, rates []bar
		for _, x := range r.Summaries {
			if x.Scenario != s.name || x.Rounds == 0 {
				continue
			}
			b := bar{name: x.Contender, class: classOf(s.name, x.Contender)}
			switch {
			case x.Ratio.Median > 0:
				b.value, b.from, b.to = x.Ratio.Median, x.Ratio.Min, x.Ratio.Max
				unit, _, _ := strings.Cut(s.unit, "/s")
				b.text = fmt.Sprintf("%.2f x (%s %s/s)", x.Ratio.Median, spaced(x.Rate.Median), unit)
				if x.Base != s.base && x.Base != x.Contender {
					b.text += " of " + x.Base
				}
				ratios = append(ratios, b)
			case !s.latency:
				b.value, b.from, b.to = x.Rate.Median, x.Rate.Min, x.Rate.Max
				b.text = spaced(x.Rate.Median) + " " + s.unit
				rates = append(rates, b)
			}
			if x.P50 != nil && s.latency {
				b.value, b.from, b.to = x.P50.Median, x.P50.Median, x.P99.Median
				b.text = fmt.Sprintf("%.1f / %.1f ms", x.P50.Median, x.P99.Median)
				times = append(times, b)
			}
		}
		title := s.name + ": " + s.title
		to := "what is named behind"
		if s.base != "" {
			to = fmt.Sprintf("%q or what is named behind", s.base)
		}
		c.section(title, "times "+to+"; "+rounds, ratios, false)
		c.section(title, s.unit+"; "+rounds, rates, false)
		c.section(title, "milliseconds, on a scale of powers of ten; bar: p50, line: to p99, medians", times, true)
	}
	return c.String()
}

// classOf is the colour: ours, limits, and others.
func classOf(scenario, contender string) string {
	switch {
	case strings.Contains(contender, "raw") || strings.HasPrefix(contender, "no ") || strings.Contains(contender, ": no message"):
		return "r"
	case strings.HasPrefix(contender, "millbridge") || scenario == "embedded" || scenario == "growth":
		return "m"
	}
	return "o"
}

const (
	chartWidth, chartLeft, chartRight = 1200, 450, 350
	chartRow, chartHead               = 22, 46
)

type canvas struct {
	strings.Builder
	y int
}

// section draws bars below each other on a scale of their own, if there are any.
func (c *canvas) section(title, legend string, bars []bar, powers bool) {
	if len(bars) == 0 {
		return
	}
	const least = 0.1 // where powers of ten begin
	scale := func(v float64) float64 {
		if powers {
			return math.Log10(max(v, least) / least)
		}
		return v
	}
	most := 0.0
	for _, b := range bars {
		most = max(most, scale(b.to))
	}
	at := func(v float64) float64 { return chartLeft + scale(v)/max(most, 1e-9)*(chartWidth-chartLeft-chartRight) }
	c.y += 30
	fmt.Fprintf(c, `<text x="10" y="%d" class="t">%s</text>`+"\n", c.y, html.EscapeString(title))
	fmt.Fprintf(c, `<text x="10" y="%d" class="s">%s</text>`+"\n", c.y+16, html.EscapeString(legend))
	c.y += chartHead - 16
	for _, b := range bars {
		fmt.Fprintf(c, `<text x="%d" y="%d" class="n">%s</text>`, chartLeft-8, c.y+14, html.EscapeString(b.name))
		fmt.Fprintf(c, `<rect x="%d" y="%d" width="%.1f" height="%d" class="%s"/>`, chartLeft, c.y+2, at(b.value)-chartLeft, chartRow-7, b.class)
		fmt.Fprintf(c, `<line x1="%.1f" x2="%.1f" y1="%d" y2="%d"/>`, at(b.from), at(b.to), c.y+9, c.y+9)
		fmt.Fprintf(c, `<text x="%.1f" y="%d">%s</text>`+"\n", at(b.to)+6, c.y+14, html.EscapeString(b.text))
		c.y += chartRow
	}
}

func (c *canvas) String() string {
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">
<style>text{fill:#222}.t{font-size:14px;font-weight:bold}.s{fill:#666}.n{text-anchor:end}.m{fill:#2a7f62}.o{fill:#b9770e}.r{fill:#8a95a5}line{stroke:#222;stroke-width:1.5}</style>
<rect width="100%%" height="100%%" fill="#fff"/>
%s</svg>
`, chartWidth, c.y+20, c.Builder.String())
}
