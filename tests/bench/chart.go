package main

import (
	"fmt"
	"html"
	"strings"
)

// chart draws the median ratios of each scenario as bars, with lines from the least to the most.
func chart(r *report) string {
	const (
		width, left, right = 960, 380, 150
		row, head          = 22, 46
		room               = width - left - right
	)
	var b strings.Builder
	y := 30
	for _, s := range scenarios() {
		var shown []summary
		most := 1.0
		for _, x := range r.Summaries {
			if x.Scenario == s.name && x.Ratio.Median > 0 && s.name != "latency" {
				shown = append(shown, x)
				most = max(most, x.Ratio.Max)
			}
		}
		if len(shown) == 0 {
			continue
		}
		title := s.name + ": " + s.title
		fmt.Fprintf(&b, `<text x="10" y="%d" class="t">%s</text>`+"\n", y, html.EscapeString(title))
		fmt.Fprintf(&b, `<text x="10" y="%d" class="s">times "%s" or what is named behind, %s; bar: median, line: min to max of %d rounds</text>`+"\n",
			y+16, html.EscapeString(s.base), html.EscapeString(s.unit), r.Options.Rounds)
		y += head - 16
		for _, x := range shown {
			at := func(v float64) float64 { return left + v/most*room }
			class, other := "o", ""
			if x.Base != s.base && x.Base != x.Contender {
				other = " of " + html.EscapeString(x.Base)
			}
			switch {
			case strings.HasPrefix(x.Contender, "millbridge") || s.name == "embedded":
				class = "m"
			case strings.HasPrefix(x.Contender, "raw") || strings.HasPrefix(x.Contender, "no message"):
				class = "r"
			}
			fmt.Fprintf(&b, `<text x="%d" y="%d" class="n">%s</text>`, left-8, y+14, html.EscapeString(x.Contender))
			fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%.1f" height="%d" class="%s"/>`, left, y+2, at(x.Ratio.Median)-left, row-7, class)
			fmt.Fprintf(&b, `<line x1="%.1f" x2="%.1f" y1="%d" y2="%d"/>`, at(x.Ratio.Min), at(x.Ratio.Max), y+9, y+9)
			fmt.Fprintf(&b, `<text x="%.1f" y="%d">%.2f x (%s/s)%s</text>`+"\n", at(x.Ratio.Max)+6, y+14, x.Ratio.Median, spaced(x.Rate.Median), other)
			y += row
		}
		y += head - 16
	}
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">
<style>text{fill:#222}.t{font-size:14px;font-weight:bold}.s{fill:#666}.n{text-anchor:end}.m{fill:#2a7f62}.o{fill:#b9770e}.r{fill:#8a95a5}line{stroke:#222;stroke-width:1.5}</style>
<rect width="100%%" height="100%%" fill="#fff"/>
%s</svg>
`, width, y, b.String())
}
