package scaffold

import (
	"regexp"
	"strings"
)

// section is what a page says about one target.
type section struct {
	name      string
	actions   []string
	variables []string
}

var (
	heading  = regexp.MustCompile("(?m)^## +`?([^\\s`]+)`?[ \t]*$")
	tableRow = regexp.MustCompile("(?m)^\\| *`([^`]+)`[^|]*\\|")
	variable = regexp.MustCompile(`^[A-Z][A-Z0-9_]*$`)
)

// sections reads the sections of a page and, in their tables, the first column.
func sections(page string) []section {
	var list []section
	found := heading.FindAllStringSubmatchIndex(page, -1)
	for i, at := range found {
		end := len(page)
		if i+1 < len(found) {
			end = found[i+1][0]
		}
		s := section{name: page[at[2]:at[3]]}
		for _, row := range tableRow.FindAllStringSubmatch(page[at[1]:end], -1) {
			if variable.MatchString(row[1]) {
				s.variables = append(s.variables, row[1])
			} else {
				s.actions = append(s.actions, strings.TrimSpace(row[1]))
			}
		}
		list = append(list, s)
	}
	return list
}

func hasSection(page, name string) bool {
	for _, s := range sections(page) {
		if s.name == name {
			return true
		}
	}
	return false
}
