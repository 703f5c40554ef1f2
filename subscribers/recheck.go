package subscribers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millbridge/millbridge/schema"
)

// recheck looks every two heartbeats whether somebody has changed the consumer, until ctx ends. What cannot be put right
// ends the consuming with the reason.
func (s *subscription) recheck(ctx context.Context, stop context.CancelCauseFunc) {
	tick := time.NewTicker(2 * s.cfg.Heartbeat)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if err := s.lookAgain(ctx); schema.KindOf(err) == schema.Permanent {
			stop(err)
			return
		}
	}
}

// lookAgain puts right what no version of a program would set. What depends on the configuration is left to the start:
// while versions take turns, each would undo what the other does, and events that a filter leaves out meanwhile would be
// lost. An error that is not permanent is for the one who pulls, who finds out what it means.
func (s *subscription) lookAgain(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*s.cfg.Heartbeat)
	defer cancel()
	stream, err := s.js.Stream(ctx, s.cfg.Stream)
	if err != nil {
		return err
	}
	cons, err := stream.Consumer(ctx, s.spec.Durable)
	if err != nil {
		return err
	}
	info, have := stream.CachedInfo(), cons.CachedInfo()
	wanted := s.wanted(info)
	if s.cfg.Order == nil {
		wanted.MaxAckPending = have.Config.MaxAckPending
	}
	if info.Config.Retention != jetstream.WorkQueuePolicy {
		wanted.FilterSubjects = filtersOf(have.Config)
	}
	to, changed := s.steady(have.Config, info.Config)
	wanted.AckWait = to.AckWait
	now, err := s.putRight(ctx, stream, have.Config, to, wanted, changed)
	if err != nil {
		return err
	}
	if changed {
		s.log.WarnContext(ctx, "somebody had changed the consumer, it was put right")
	}
	drift := refusal(now, s.wanted(info))
	if drift != nil {
		drift = fmt.Errorf("somebody has changed it, perhaps another version of this program: %w", drift)
	}
	var held error
	if s.line != nil {
		held = s.line.check(have)
	}
	s.hamper(errors.Join(pauseOf(have), drift, held))
	return s.rescue(ctx, stream, have)
}

// pauseOf says until when an operator has paused the consumer.
func pauseOf(have *jetstream.ConsumerInfo) error {
	switch {
	case !have.Paused:
		return nil
	case have.Config.PauseUntil == nil:
		return errors.New("the consumer is paused")
	}
	return fmt.Errorf("the consumer is paused until %s", have.Config.PauseUntil.UTC().Format(time.RFC3339))
}

// hamper records what keeps the subscription from consuming as it should although it does, and logs each change.
func (s *subscription) hamper(err error) {
	s.errMu.Lock()
	before := s.hampered
	s.hampered = err
	s.errMu.Unlock()
	switch {
	case err != nil && (before == nil || before.Error() != err.Error()):
		s.log.Warn("not consuming as it should", "error", schema.OneLine(err.Error()))
	case err == nil && before != nil:
		s.log.Info("consuming as it should again")
	}
}
