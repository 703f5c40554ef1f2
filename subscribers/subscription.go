package subscribers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"

	"github.com/millbridge/millbridge/internal/natswords"
	"github.com/millbridge/millbridge/schema"
)

// firstPause is the shortest wait between two tries to consume; it doubles up to a heartbeat.
const firstPause = 50 * time.Millisecond

// subscription is one call of Subscribe.
type subscription struct {
	*Subscriber
	topic string
	spec  ConsumerSpec
	log   *slog.Logger

	ctx    context.Context // ends the subscription
	cancel context.CancelFunc
	base   context.Context // of messages: same values, no end

	out     chan *message.Message
	ready   chan *handling // what waits to be handed out
	workers int            // how many goroutines hand out
	senders sync.WaitGroup // messages that are not handed out yet
	open    sync.WaitGroup // messages that are not settled
	inHand  hands
	acks    *acks
	slots   *slots
	line    *line // of an ordered one
	at      place
	created time.Time // of the consumer

	errMu    sync.Mutex
	err      error // why it is not consuming
	hampered error // why it is not consuming as it should
}

func newSubscription(ctx context.Context, s *Subscriber, topic string, spec ConsumerSpec) *subscription {
	sub := &subscription{
		Subscriber: s, topic: topic, spec: spec,
		log:  s.cfg.Logger.With("topic", topic, "consumer", spec.Durable),
		base: context.WithoutCancel(ctx),
		out:  make(chan *message.Message), ready: make(chan *handling, s.cfg.MaxInFlight+maxAhead),
		inHand: hands{held: make(map[*handling]struct{})}, acks: newAcks(s.life, s.js.Conn(), s.cfg.DoubleAck), slots: newSlots(s.cfg.MaxInFlight),
	}
	sub.ctx, sub.cancel = context.WithCancel(ctx)
	if s.cfg.Order != nil {
		sub.line = newLine(sub)
	}
	return sub
}

// run consumes until the subscription ends.
func (s *subscription) run() {
	consume := s.consume
	defer s.drop(s)
	beating, rest := context.WithCancel(s.life)
	s.wg.Go(func() { s.beat(beating) })
	answered := context.AfterFunc(s.life, s.acks.giveUp)
	defer s.wg.Go(func() { // what is in hand may be settled later than the subscription ends
		s.open.Wait()
		rest()
		answered()
		s.acks.close()
	})
	if s.line != nil {
		consume = s.line.consume
		defer s.line.finish()
	}
	defer func() {
		close(s.ready)
		for h := range s.ready { // all hands may be busy
			h.refuse()
		}
		s.senders.Wait()
		close(s.out)
	}()
	pause := firstPause
	for s.ctx.Err() == nil {
		started := time.Now()
		err := consume(s.ctx)
		if s.ctx.Err() != nil {
			return
		}
		s.report(err)
		if time.Since(started) > 2*s.cfg.Heartbeat {
			pause = firstPause
		}
		s.pause(pause)
		pause = min(2*pause, s.cfg.Heartbeat)
	}
}

// consume makes sure of the consumer and pulls from it until something is wrong or ctx ends.
func (s *subscription) consume(ctx context.Context) error {
	if err := s.ensure(ctx); err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	return s.pullAll(ctx, stop, s.cfg.MaxInFlight+maxAhead, s)
}

// pullAll asks for messages for r, which has room for so many, until something is wrong or ctx ends.
func (s *subscription) pullAll(ctx context.Context, stop context.CancelCauseFunc, most int, r room) error {
	var checks sync.WaitGroup
	defer checks.Wait()
	defer stop(nil)
	checks.Go(func() { s.recheck(ctx, stop) })
	if s.cfg.DoubleAck {
		if err := s.acks.listen(); err != nil {
			return err
		}
	}
	p, err := newPuller(s.js, s.cfg.Stream, s.spec.Durable, s.cfg.Heartbeat, 2*most+64)
	if err != nil {
		return err
	}
	s.report(nil)
	if err = p.run(ctx, r); ctx.Err() != nil {
		err = context.Cause(ctx)
	} else {
		s.report(err) // before close, which waits for a server that may be silent
	}
	p.close(r.receive)
	return err
}

// maxPull is how many bytes one request asks for, unless one message may have more.
const maxPull = 8 << 20

func (s *subscription) want(asked int) (n, bytes int, wait time.Duration) {
	n, wait = s.slots.want(asked)
	return n, max(maxPull, int(s.js.Conn().MaxPayload())+schema.MaxHeaderBytes), wait
}

func (s *subscription) more() <-chan struct{} { return s.slots.more }

// receive takes a message in hand and has it handed out when there is a free hand.
func (s *subscription) receive(m *nats.Msg) {
	d, err := newDelivery(m)
	if err != nil {
		s.log.Error("a message without delivery data was ignored", "error", schema.OneLine(err.Error()))
		return
	}
	h := &handling{subscription: s, m: m, d: d, alive: time.Now()}
	s.slots.take()
	s.senders.Add(1)
	s.open.Add(1)
	s.inHand.add(h)
	s.ready <- h
	if len(s.ready) > 0 && s.workers < s.cfg.MaxInFlight { // all others are busy
		s.workers++
		go s.work()
	}
}

// pause waits for d or until the connection is back.
func (s *subscription) pause(d time.Duration) {
	nc := s.js.Conn()
	back := nc.StatusChanged(nats.CONNECTED)
	defer nc.RemoveStatusListener(back)
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-back:
	case <-s.ctx.Done():
	}
}

// report records why the subscription does not consume, nil when it does, and logs each change.
func (s *subscription) report(err error) {
	if lease := (*leaseError)(nil); !errors.As(err, &lease) {
		err = natswords.Explain(err)
	}
	s.errMu.Lock()
	before := s.err
	s.err = err
	s.errMu.Unlock()
	switch {
	case err != nil && (before == nil || before.Error() != err.Error()):
		s.log.Warn("not consuming", "error", schema.OneLine(err.Error()))
	case err == nil && before != nil:
		s.log.Info("consuming again")
	}
}

func (s *subscription) health() error {
	if status := s.js.Conn().Status(); status != nats.CONNECTED && status != nats.DRAINING_SUBS && status != nats.DRAINING_PUBS {
		return fmt.Errorf("%s: the connection is %v", natswords.Unreachable, status)
	}
	s.errMu.Lock()
	defer s.errMu.Unlock()
	if s.err == nil {
		return s.hampered
	}
	return s.err
}

var (
	errSilent       = errors.New("the server is silent")
	errDisconnected = errors.New("the connection is lost")
)
