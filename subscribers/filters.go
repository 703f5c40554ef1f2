package subscribers

import "strings"

// isFilter reports whether s is a subject that a consumer can filter by: tokens without blanks, "*" for any one token
// and ">" for the rest.
func isFilter(s string) bool {
	tokens := strings.Split(s, ".")
	for i, t := range tokens {
		if t == "" || strings.ContainsAny(t, " \t\r\n\x00") || t == ">" && i < len(tokens)-1 {
			return false
		}
	}
	return true
}

// overlap reports whether there is a subject that both filters match.
func overlap(a, b string) bool {
	as, bs := strings.Split(a, "."), strings.Split(b, ".")
	for i := 0; ; i++ {
		switch {
		case i == len(as) || i == len(bs):
			return len(as) == len(bs)
		case as[i] == ">" || bs[i] == ">":
			return true
		case as[i] != bs[i] && as[i] != "*" && bs[i] != "*":
			return false
		}
	}
}

// anyOverlap returns the first pair of filters, one of each list, that overlap.
func anyOverlap(as, bs []string) (a, b string, found bool) {
	for _, a := range as {
		for _, b := range bs {
			if overlap(a, b) {
				return a, b, true
			}
		}
	}
	return "", "", false
}
