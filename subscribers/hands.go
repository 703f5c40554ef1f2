package subscribers

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

// hands are the messages that a subscription has and that are not settled.
type hands struct {
	mu   sync.Mutex
	held map[*handling]struct{}
}

func (s *hands) add(h *handling) {
	s.mu.Lock()
	s.held[h] = struct{}{}
	s.mu.Unlock()
}

func (s *hands) remove(h *handling) {
	s.mu.Lock()
	delete(s.held, h)
	s.mu.Unlock()
}

func (s *hands) all() []*handling {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.held))
}

// beat tells the server, three times in each ack wait, that what is in hand is being worked on, until ctx ends.
func (s *subscription) beat(ctx context.Context) {
	tick := time.NewTicker(s.cfg.AckWait / 3)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		for _, h := range s.inHand.all() {
			h.inProgress()
		}
		s.acks.expire()
	}
}
