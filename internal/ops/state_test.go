package ops_test

import (
	"strings"
	"testing"

	"github.com/millbridge/millbridge/internal/ops"
)

func TestParseState_takes_the_words_of_others(t *testing.T) {
	t.Parallel()
	for word, want := range map[string]ops.State{
		"pending": ops.StatePending, "scheduled": ops.StateScheduled, "done": ops.StateDone, "delivered": ops.StateDone,
		"dispatched": ops.StateDone, "dead": ops.StateDead, "parked": ops.StateDead, "dead_letter": ops.StateDead, "DEAD_LETTERED": ops.StateDead,
	} {
		if got, err := ops.ParseState(word); got != want || err != nil {
			t.Errorf("%s is %q, error %v", word, got, err)
		}
	}
	if _, err := ops.ParseState("lost"); err == nil || !strings.Contains(err.Error(), `"lost" is no status; there are pending, `) {
		t.Errorf("another word: %v", err)
	}
}
