package peer

import (
	"strings"

	"github.com/millbridge/millbridge/schema"
)

// CheckAllow reports whether an entry of a list of what a sender may send makes sense: jobs.<target>.<action> or
// events.<visibility>.<name>, in which "*" stands for a token and a final ">" for the rest.
func CheckAllow(entry string) bool {
	tokens := strings.Split(entry, ".")
	if len(tokens) < 2 || tokens[0] != "jobs" && tokens[0] != "events" {
		return false
	}
	for i, token := range tokens[1:] {
		if token != "*" && (token != ">" || i != len(tokens)-2) && schema.CheckName(token) != nil {
			return false
		}
	}
	return true
}

// allows reports whether an entry matches a message.
func allows(entry string, e schema.Envelope) bool {
	want, have := strings.Split(entry, "."), strings.Split(e.Subject(), ".")
	for i, token := range want {
		switch {
		case i >= len(have):
			return false
		case token == ">":
			return true
		case token != "*" && token != have[i]:
			return false
		}
	}
	return len(want) == len(have)
}
