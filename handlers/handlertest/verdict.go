package handlertest

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A Verdict is what [Examine] has found out.
type Verdict struct {
	Idempotent bool
	Unjudged   string    // why nothing can be said; then Idempotent is false and there are no findings
	Tried      []string  // names of the scenarios
	Findings   []Finding // what broke it
	Notes      []string  // worth knowing, but no fault
}

// A Finding is a scenario that the handler did not stand.
type Finding struct {
	Scenario string // its name, as in Tried
	What     string // what happens in it
	Problem  string // what came of it
	Hint     string // what helps
}

// Broke reports whether the scenario of this name broke the handler.
func (v Verdict) Broke(scenario string) bool {
	return slices.ContainsFunc(v.Findings, func(f Finding) bool { return f.Scenario == scenario })
}

// remember tells a handler that keeps its memory to itself from one that has none.
func (v *Verdict) remember() {
	if v.Broke("crash between effect and ack") && !v.Broke("delivered twice") {
		v.Notes = append(v.Notes, "It knows a repeat as long as its process lives, so it seems to keep what it has done in memory. A crash takes "+
			"that away: keep it where the effect is, or where it commits with it.")
	}
}

// String tells the verdict in plain words.
func (v Verdict) String() string {
	var b strings.Builder
	switch {
	case v.Unjudged != "":
		fmt.Fprintf(&b, "Nothing can be said about the handler: %s", v.Unjudged)
	case v.Idempotent:
		fmt.Fprintf(&b, "The handler is idempotent: whatever happened (%s), it left what one run of each message leaves.", strings.Join(v.Tried, "; "))
	default:
		fmt.Fprintf(&b, "The handler is NOT idempotent. Of %d scenarios it did not stand %d.\n", len(v.Tried), len(v.Findings))
	}
	for _, f := range v.Findings {
		fmt.Fprintf(&b, "\n* %s:\n  %s%s\n", f.Scenario, f.What, strings.ReplaceAll(strings.TrimRight(f.Problem, "\n"), "\n", "\n  "))
		fmt.Fprintf(&b, "  What helps: %s\n", f.Hint)
	}
	for _, n := range v.Notes {
		fmt.Fprintf(&b, "\nNote: %s", n)
	}
	return b.String()
}

// stateLines returns v as text: an element of a list, and a field of an object, is a line.
func stateLines(v any) []string {
	if calls, ok := v.([]Call); ok {
		return lines(calls)
	}
	text := canonical(v)
	var list []json.RawMessage
	if json.Unmarshal([]byte(text), &list) == nil {
		out := make([]string, len(list))
		for i, e := range list {
			out[i] = string(e)
		}
		return out
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal([]byte(text), &fields) != nil {
		return []string{text}
	}
	var out []string
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if err := json.Unmarshal(fields[name], &list); err != nil || len(list) == 0 {
			out = append(out, name+": "+string(fields[name]))
			continue
		}
		for _, e := range list {
			out = append(out, name+": "+string(e))
		}
	}
	return out
}

// sameLines reports whether both states have the same parts, in whatever order.
func sameLines(a, b string) bool {
	as, bs := strings.Split(a, "\n"), strings.Split(b, "\n")
	slices.Sort(as)
	slices.Sort(bs)
	return slices.Equal(as, bs)
}

func diffText(a, b string) string {
	return diffLines(strings.Split(a, "\n"), strings.Split(b, "\n"))
}
