package ops

import (
	"fmt"
	"strings"

	"github.com/millbridge/millbridge/schema"
)

// State is what has become of a message, as coarsely as people filter by it.
type State string

const (
	StatePending   State = "pending"   // not in its stream or not handled yet
	StateScheduled State = "scheduled" // waits for its time
	StateDone      State = "done"      // handled
	StateDead      State = "dead"      // given up
)

// stateWords are the words for a state: ours first, then those that people know from other outboxes.
var stateWords = []struct {
	state State
	words []string
}{
	{StatePending, []string{"pending"}},
	{StateScheduled, []string{"scheduled"}},
	{StateDone, []string{"done", "delivered", "dispatched"}},
	{StateDead, []string{"dead", "parked", "dead_letter", "dead_lettered"}},
}

// ParseState reads a state; the words that other outboxes use for it are understood too.
func ParseState(word string) (State, error) {
	var known []string
	for _, s := range stateWords {
		for _, w := range s.words {
			if strings.EqualFold(word, w) {
				return s.state, nil
			}
			known = append(known, w)
		}
	}
	return "", fmt.Errorf("%q is no status; there are %s", schema.OneLine(word), strings.Join(known, ", "))
}
