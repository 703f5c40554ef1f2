package router

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/millbridge/millbridge/internal/killpoint"
	"github.com/millbridge/millbridge/schema"
)

// runs knows all runs of a bridge: it renews their leases and stops them.
type runs struct {
	inbox    Inbox
	lease    time.Duration
	now      func() time.Time
	log      *slog.Logger
	intake   context.Context // ends when no run should begin any more
	stopping <-chan struct{} // the same
	refuse   context.CancelFunc

	mu     sync.Mutex
	active map[*run]struct{}
	leases map[*run]time.Time // until when a run may rely on its lease
}

func newRuns(inbox Inbox, lease time.Duration, log *slog.Logger) *runs {
	intake, refuse := context.WithCancel(context.Background())
	return &runs{
		inbox: inbox, lease: lease, now: time.Now, log: log,
		intake: intake, stopping: intake.Done(), refuse: refuse,
		active: make(map[*run]struct{}), leases: make(map[*run]time.Time),
	}
}

// begin registers r; false if no run should begin any more.
func (s *runs) begin(r *run) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.stopping:
		return false
	default:
	}
	s.active[r] = struct{}{}
	return true
}

func (s *runs) end(r *run) {
	s.mu.Lock()
	delete(s.active, r)
	delete(s.leases, r)
	s.mu.Unlock()
}

// stop lets no run begin any more and makes those give up that have not come to their handler.
func (s *runs) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse()
}

// cutAll ends the contexts of all runs and returns how many there were.
func (s *runs) cutAll() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	for r := range s.active {
		r.cancel(errStopped)
	}
	return len(s.active)
}

// pause waits for d; false if r ends first.
func (s *runs) pause(r *run, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-r.ctx.Done():
		return false
	}
}

// pauseUnlessStopping waits for d; false if r or all runs end first.
func (s *runs) pauseUnlessStopping(r *run, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-r.ctx.Done():
		return false
	case <-s.stopping:
		return false
	}
}

// pauseLeaseless waits for d; false if runs are to end.
func (s *runs) pauseLeaseless(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-s.stopping:
		return false
	}
}

// keep has r's lease, which was asked for at that time, renewed until r ends. A run that is still busy writing down how
// it failed, after that has ended the lease, is stopped by this too: a late repetition could count for another run.
func (s *runs) keep(r *run, asked time.Time) {
	s.mu.Lock()
	s.leases[r] = asked.Add(s.lease)
	s.mu.Unlock()
}

// renewEvery renews all leases often enough until ctx ends.
func (s *runs) renewEvery(ctx context.Context) {
	ticker := time.NewTicker(s.lease / 3)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			s.renew(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// renew renews all leases by one statement and stops the runs that have lost theirs, or that cannot know any more
// whether they still have it: before the next renewal it may be somebody else's.
func (s *runs) renew(ctx context.Context) {
	s.mu.Lock()
	byOwner := make(map[string]*run, len(s.leases))
	held := make([]schema.Run, 0, len(s.leases))
	for r := range s.leases {
		byOwner[r.inbox.Owner] = r
		held = append(held, r.inbox)
	}
	s.mu.Unlock()
	if len(held) == 0 {
		return
	}
	asked := s.now()
	call, cancel := context.WithTimeout(ctx, s.lease/3)
	killpoint.At(killpoint.BeforeRunRenewal)
	owners, err := s.inbox.Extend(call, held, s.lease)
	cancel()
	killpoint.At(killpoint.AfterRunRenewal)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.log.Warn("leases not renewed", "leases", len(held), "error", schema.Reason(err))
		limit := s.now().Add(s.lease / 3)
		for r, until := range s.leases {
			if until.Before(limit) {
				r.cancel(errLeaseLost)
			}
		}
		return
	}
	for _, owner := range owners {
		if r := byOwner[owner]; r != nil {
			if _, ok := s.leases[r]; ok {
				s.leases[r] = asked.Add(s.lease)
			}
			delete(byOwner, owner)
		}
	}
	for _, r := range byOwner {
		if _, ok := s.leases[r]; ok { // else it has finished meanwhile
			r.cancel(errLeaseLost)
		}
	}
}
