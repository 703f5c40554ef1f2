package ncip

import (
	"fmt"
	"slices"
	"strings"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/schema"
)

// A Problem is what a responder answers in place of data. Type is one of the standard's texts, or the responder's own.
type Problem struct {
	Type    string `json:"type"`
	Detail  string `json:"detail,omitempty"`
	Element string `json:"element,omitempty"`
	Value   string `json:"value,omitempty"`
}

// A ProblemError is an answer with problems. It is temporary if all of them are [TemporaryFailure], else permanent.
type ProblemError struct {
	Service  string // that was asked for, as CheckOutItem
	Problems []Problem
}

// TemporaryFailure is the one type of problem that asks to be tried again.
const TemporaryFailure = "Temporary Processing Failure"

// Error names the types and details, and no values: those are often a user's.
func (e *ProblemError) Error() string {
	list := make([]string, 0, len(e.Problems))
	for _, p := range e.Problems[:min(len(e.Problems), 5)] {
		words := p.Type
		if words == "" {
			words = "a problem without a type"
		}
		if p.Detail != "" && p.Detail != p.Type {
			words += " (" + p.Detail + ")"
		}
		list = append(list, cut(schema.OneLine(words)))
	}
	return fmt.Sprintf("%s: %s", e.Service, strings.Join(list, "; "))
}

func cut(s string) string {
	const most = 300
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "..."
	}
	return s
}

// Has reports whether one of the problems is of one of the types. Upper and lower case are the same: responders write
// the standard's words in both.
func (e *ProblemError) Has(types ...string) bool {
	return slices.ContainsFunc(e.Problems, func(p Problem) bool {
		return slices.ContainsFunc(types, func(t string) bool { return strings.EqualFold(p.Type, t) })
	})
}

// kind marks the error: temporary if nothing but time is missing.
func (e *ProblemError) kind() error {
	for _, p := range e.Problems {
		if !strings.EqualFold(p.Type, TemporaryFailure) {
			return handlers.Permanent(e)
		}
	}
	return schema.WithKind(schema.Temporary, e)
}

// problemsOf collects the problems of an answer, which stand in its service's element or beside it. What is masked are
// own secrets, which a responder may repeat.
func problemsOf(root *node, mask func(string) string) []Problem {
	var list []Problem
	add := func(n *node) {
		for _, p := range n.all("Problem") {
			list = append(list, Problem{
				mask(p.value("ProblemType")), mask(p.value("ProblemDetail")), mask(p.value("ProblemElement")), mask(p.value("ProblemValue")),
			})
		}
	}
	add(root)
	for _, c := range root.children {
		add(c)
	}
	return list
}
