package demo

import (
	"encoding/json"
	"fmt"
	"sync"
	"time"
)

// Mood says what kind of line it is.
type Mood string

// Moods of lines.
const (
	Say   Mood = "say"   // the narrator
	Sold  Mood = "sold"  // an order was committed
	Undo  Mood = "undo"  // an order was rolled back
	Done  Mood = "done"  // a target did its work
	Again Mood = "again" // it failed and will be tried again
	Dead  Mood = "dead"  // it was given up
)

// Line is one thing that happened.
type Line struct {
	At    time.Duration `json:"at_ns"`
	Mood  Mood          `json:"mood"`
	Who   string        `json:"who"`
	Order int           `json:"order,omitempty"`
	Text  string        `json:"text"`
}

// teller tells what happened; it may be called from anywhere.
type teller func(mood Mood, who string, order int, text string)

// newTeller numbers lines by the time since the start and passes them on one at a time. Routine lines are left out when
// there would be too many of them.
func newTeller(tell func(Line), start time.Time, routine bool) teller {
	var mu sync.Mutex
	return func(mood Mood, who string, order int, text string) {
		if !routine && mood != Say {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		tell(Line{time.Since(start), mood, who, order, text})
	}
}

func euros(cents int) string { return fmt.Sprintf("%d.%02d", cents/100, cents%100) }

// orderIn reads the number of the order a message is about.
func orderIn(payload []byte) int {
	var o Order
	if json.Unmarshal(payload, &o) != nil {
		return 0
	}
	return o.Number
}
