package jetstream

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/millbridge/millbridge/schema"
)

// A Feed puts messages that wait in another table of the database into the outbox. Each call moves some of them, in one
// transaction of its own: a message is in the table or in the outbox, never in both and never in none. Calls are made one
// after the other; other processes may have a feed for the same table.
type Feed interface {
	Name() string
	Feed(ctx context.Context) (schema.FeedResult, error)
}

// FeedStatus is what this process knows about a feed.
type FeedStatus struct {
	Name    string
	Moved   int    // messages put into the outbox
	Left    int    // rows that hold no message that can be sent
	Waits   string // who works on it instead; empty if nobody
	Error   string // last error; empty when it works
	ErrorAt time.Time
}

// feeding is a feed and what has come of it.
type feeding struct {
	Feed
	limit time.Duration // of one call

	mu     sync.Mutex
	status FeedStatus
}

// feedPatience is how long one step of a feed may take, at least.
const feedPatience = 30 * time.Second

func newFeedings(cfg ForwarderConfig) []*feeding {
	all := make([]*feeding, len(cfg.Feeds))
	for i, feed := range cfg.Feeds {
		all[i] = &feeding{Feed: feed, limit: max(cfg.Lease, feedPatience), status: FeedStatus{Name: feed.Name()}}
	}
	return all
}

// step makes one call and notes what has come of it.
func (fd *feeding) step(ctx context.Context, f *Forwarder) (schema.FeedResult, error) {
	bounded, cancel := context.WithTimeout(ctx, fd.limit)
	defer cancel()
	res, err := fd.Feed.Feed(bounded)
	if err != nil && ctx.Err() != nil {
		return res, context.Cause(ctx) // a stop
	}
	fd.mu.Lock()
	before := fd.status
	fd.status.Moved += res.Moved
	fd.status.Left += res.Left
	fd.status.Waits = res.Waits
	fd.status.Error, fd.status.ErrorAt = "", time.Time{}
	if err != nil {
		fd.status.Error, fd.status.ErrorAt = schema.OneLine(err.Error()), time.Now()
	}
	after := fd.status
	fd.mu.Unlock()
	switch {
	case err != nil && after.Error != before.Error:
		f.log.WarnContext(ctx, "feed waits", "feed", fd.Name(), "error", err)
	case err == nil && before.Error != "":
		f.log.InfoContext(ctx, "feed works again", "feed", fd.Name())
	case after.Waits != before.Waits && after.Waits != "":
		f.log.InfoContext(ctx, "feed gives way", "feed", fd.Name(), "to", after.Waits)
	}
	if err != nil {
		return res, fmt.Errorf("%s: %w", fd.Name(), err)
	}
	return res, nil
}

// Feeds tells how each feed is doing. It does no I/O.
func (f *Forwarder) Feeds() []FeedStatus {
	all := make([]FeedStatus, len(f.feeds))
	for i, fd := range f.feeds {
		fd.mu.Lock()
		all[i] = fd.status
		fd.mu.Unlock()
	}
	return all
}

// feedLoop feeds the outbox until ctx ends: at once while there is more, then at growing distances up to PollMax.
func (f *Forwarder) feedLoop(ctx context.Context, fd *feeding) {
	failures, wait := 0, f.cfg.PollMin
	for ctx.Err() == nil {
		res, err := fd.step(ctx, f)
		pause := wait
		switch {
		case err != nil:
			failures++
			pause = f.backoff(failures, fd.Name())
		case res.Waits != "":
			failures, pause, wait = 0, f.cfg.PollMax, f.cfg.PollMax
		case res.Moved > 0:
			f.Nudge()
			failures, wait, pause = 0, f.cfg.PollMin, f.cfg.PollMin
		default:
			failures, wait = 0, min(2*wait, f.cfg.PollMax)
		}
		if res.More {
			continue
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// feed makes each feed put what it has into the outbox, at most one step of it if once is true.
func (f *Forwarder) feed(ctx context.Context, once bool) (moved int, err error) {
	var errs []error
	for _, fd := range f.feeds {
		for {
			res, err := fd.step(ctx, f)
			moved += res.Moved
			if err != nil {
				errs = append(errs, err)
			}
			if err != nil || !res.More || once {
				break
			}
		}
	}
	return moved, errors.Join(errs...)
}
