package router

import (
	"sync"
	"time"

	"github.com/millbridge/millbridge/schema"
)

// Counts of what one target or subscription did since the bridge was opened.
type Counts struct {
	Handled   int64 `json:"handled"`
	Retried   int64 `json:"retried"`
	Snoozed   int64 `json:"snoozed"`   // put off by the handler, see [handlers.Snooze]
	Cancelled int64 `json:"cancelled"` // no longer wanted, see [handlers.Cancel]
	Dead      int64 `json:"dead"`
}

func (c Counts) plus(d Counts) Counts {
	return Counts{c.Handled + d.Handled, c.Retried + d.Retried, c.Snoozed + d.Snoozed, c.Cancelled + d.Cancelled, c.Dead + d.Dead}
}

func (c Counts) minus(d Counts) Counts {
	return Counts{c.Handled - d.Handled, c.Retried - d.Retried, c.Snoozed - d.Snoozed, c.Cancelled - d.Cancelled, c.Dead - d.Dead}
}

// stats is what one chain tells about itself.
type stats struct {
	mu       sync.Mutex
	counts   Counts
	entered  int64 // deliveries that arrived
	running  int
	faultErr string
	faultAt  time.Time
}

func (s *stats) began() {
	s.mu.Lock()
	s.entered++
	s.running++
	s.mu.Unlock()
}

func (s *stats) ended() {
	s.mu.Lock()
	s.running--
	s.mu.Unlock()
}

func (s *stats) handled()   { s.settled(&s.counts.Handled) }
func (s *stats) retried()   { s.settled(&s.counts.Retried) }
func (s *stats) snoozed()   { s.settled(&s.counts.Snoozed) }
func (s *stats) cancelled() { s.settled(&s.counts.Cancelled) }
func (s *stats) died()      { s.settled(&s.counts.Dead) }

// settled counts and ends a fault: the way through works again.
func (s *stats) settled(count *int64) {
	s.mu.Lock()
	*count++
	s.faultErr = ""
	s.mu.Unlock()
}

// fault notes what kept a message from being settled.
func (s *stats) fault(err error) {
	s.mu.Lock()
	s.faultErr, s.faultAt = schema.Reason(err), time.Now()
	s.mu.Unlock()
}

func (s *stats) read() (counts Counts, entered int64, running int, fault string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts, s.entered, s.running, s.faultErr
}
