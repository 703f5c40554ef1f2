package router

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/millbridge/millbridge/internal/natswords"
	"github.com/millbridge/millbridge/publishers/jetstream"
	"github.com/millbridge/millbridge/schema"
)

// Health is what a bridge knows about itself.
type Health struct {
	Handlers []HandlerHealth
	Shards   []jetstream.ShardStatus
	// Unserved counts the jobs that wait in the stream for targets without a consumer, here or elsewhere.
	Unserved map[string]uint64
	// Problems is everything that needs attention, one line each.
	Problems []string
}

// OK reports whether nothing needs attention.
func (h Health) OK() bool { return len(h.Problems) == 0 }

// HandlerHealth is the state of one target or subscription.
type HandlerHealth struct {
	Name      string
	Consuming bool
	Reason    string         // why it is not consuming
	Fault     string         // what kept the last message from being settled
	Running   int            // handlers
	Oldest    time.Duration  // age of the oldest message that is not handled; 0 if there is none
	Circuit   schema.Circuit // of the handler's breaker, as it was last seen
	Counts
}

const healthTimeout = 2 * time.Second // of each question

// Health looks at targets, subscriptions and forwarder. It asks the server, but an answer that does not come is a
// problem in the report and not an error.
func (b *Bridge) Health(ctx context.Context) Health {
	var h Health
	b.mu.Lock()
	chains, active := slices.Clone(b.chains), b.active
	b.mu.Unlock()
	problem := func(format string, args ...any) { h.Problems = append(h.Problems, fmt.Sprintf(format, args...)) }
	up := b.cfg.Conn.IsConnected()
	if !up {
		problem("%s: rows wait in the outbox, and nothing is handled", natswords.Unreachable)
	}
	ages, faults := make([]time.Duration, len(chains)), make([]error, len(chains))
	var asked sync.WaitGroup
	for i, c := range chains {
		if up { // else every answer would be the same
			asked.Go(func() { ages[i], faults[i] = b.oldest(ctx, c) })
		}
	}
	asked.Wait()
	for i, c := range chains {
		hh := c.health(active)
		hh.Oldest = ages[i]
		if faults[i] != nil {
			problem("%s: oldest message: %v", c.name, natswords.Explain(faults[i]))
		}
		if !hh.Consuming {
			problem("%s: not consuming: %s", c.name, hh.Reason)
		}
		if hh.Circuit.Open {
			problem("%s: %s", c.name, hh.Circuit.Why())
		}
		if hh.Fault != "" {
			problem("%s: %s", c.name, hh.Fault)
		}
		h.Handlers = append(h.Handlers, hh)
	}
	for _, err := range b.settings(ctx, up) {
		problem("%s", schema.OneLine(err.Error()))
	}
	if b.forwarder != nil {
		if fault := b.forwarder.Fault(); fault != "" {
			problem("forwarder: %s", fault)
		}
		for _, feed := range b.forwarder.Feeds() {
			if feed.Error != "" {
				problem("forwarder: %s: %s", feed.Name, feed.Error)
			}
		}
		h.Shards = b.forwarder.Status()
		for _, s := range h.Shards {
			if s.State == jetstream.ShardStopped || s.State == jetstream.ShardWaiting {
				problem("forwarder: %s shard %d is %s: %s", s.Stream, s.Shard, s.State, s.Error)
			}
		}
	}
	if !up {
		return h
	}
	var err error
	if h.Unserved, err = b.unserved(ctx); err != nil {
		problem("unserved jobs: %v", natswords.Explain(err))
	}
	for _, target := range slices.Sorted(maps.Keys(h.Unserved)) {
		problem("%d jobs wait for target %q, which nobody serves", h.Unserved[target], target)
	}
	return h
}

func (c *chain) health(active *session) HandlerHealth {
	hh := HandlerHealth{Name: c.name}
	hh.Counts, _, hh.Running, hh.Fault = c.stats.read()
	hh.Circuit, _ = c.breaker.state()
	if active == nil {
		hh.Reason = "the bridge does not run"
		return hh
	}
	var errs []error
	for _, f := range active.all() {
		if f.chain == c {
			errs = append(errs, f.sub.Health())
		}
	}
	if err := errors.Join(errs...); err != nil {
		hh.Reason = schema.OneLine(err.Error())
		return hh
	}
	hh.Consuming = true
	return hh
}

// settings looks again at what was checked at the start, for somebody may have changed it.
func (b *Bridge) settings(ctx context.Context, up bool) (faults []error) {
	ask := func(what string, question func(ctx context.Context) error) {
		ctx, cancel := context.WithTimeout(ctx, healthTimeout)
		defer cancel()
		if err := question(ctx); err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", what, err))
		}
	}
	ask("database", b.cfg.Store.Check)
	if up {
		ask("streams", func(ctx context.Context) error {
			return natswords.Explain(jetstream.CheckStreams(ctx, b.js, b.cfg.Subjects))
		})
	}
	return faults
}

// oldest returns the age of the first message after those that are all handled.
func (b *Bridge) oldest(ctx context.Context, c *chain) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	var age time.Duration
	for _, src := range c.sources {
		stream, err := b.js.Stream(ctx, b.cfg.Subjects.StreamName(src.stream))
		if err != nil {
			return age, err
		}
		consumer, err := stream.Consumer(ctx, src.durable)
		if errors.Is(err, natsjs.ErrConsumerNotFound) {
			continue
		}
		if err != nil {
			return age, err
		}
		for _, filter := range src.filters {
			msg, err := stream.GetMsg(ctx, consumer.CachedInfo().AckFloor.Stream+1, natsjs.WithGetMsgSubject(filter))
			if errors.Is(err, natsjs.ErrMsgNotFound) {
				continue
			}
			if err != nil {
				return age, err
			}
			age = max(age, time.Since(msg.Time))
		}
	}
	return age, nil
}

// unserved counts jobs by target where no consumer takes them.
func (b *Bridge) unserved(ctx context.Context) (map[string]uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	stream, err := b.js.Stream(ctx, b.cfg.Subjects.StreamName(schema.Jobs))
	if err != nil {
		return nil, err
	}
	served := b.jobFilters()
	consumers := stream.ListConsumers(ctx)
	for info := range consumers.Info() {
		if one := info.Config.FilterSubject; one != "" {
			served = append(served, one)
		}
		served = append(served, info.Config.FilterSubjects...)
	}
	if err := consumers.Err(); err != nil {
		return nil, err
	}
	info, err := stream.Info(ctx, natsjs.WithSubjectFilter(b.cfg.Subjects.Full("jobs.>")))
	if err != nil {
		return nil, err
	}
	waiting := make(map[string]uint64)
	for subject, n := range info.State.Subjects {
		relative, _ := b.cfg.Subjects.Relative(subject)
		if parts := strings.SplitN(relative, ".", 3); len(parts) == 3 && !jetstream.Covers(served, b.cfg.Subjects.Target(parts[1])) {
			waiting[parts[1]] += n
		}
	}
	return waiting, nil
}
