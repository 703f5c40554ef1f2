package router

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/schema"
	"github.com/millbridge/millbridge/subscribers"
)

// run is one delivery on its way through the middlewares.
type run struct {
	delivery *subscribers.Delivery
	stream   schema.Stream
	env      schema.Envelope
	inbox    schema.Run
	record   schema.InboxRecord // what the inbox knew when it let the run start
	unit     schema.Unit        // in handlers.ModeTx, while the handler runs
	started  bool               // the handler was called
	claimed  bool               // it holds a lease
	onTrial  bool               // see [chain.trial]
	unmark   *schema.Failure    // takes the mark of its trial out of the inbox; nil if there is none of this run
	unasked  bool               // the inbox hears of the key only if the handler fails
	noted    bool               // its delivery does not count in the inbox, see [chain.unbegun]
	probe    bool               // it tries whether its target works again
	late     bool               // the handler has used up its time
	cuts     int                // how often the database has taken back what the handler did
	retry    schema.RetryPolicy // of the job's type or of the handler
	timeout  time.Duration      // the same
	hooks    *handlers.HookRun  // from when the handler is called
	callCtx  context.Context    // that the handler was given
	failure  error              // what the handler itself has returned

	decision  *handlers.Decision // what has become of the message; nil until that is carried out
	unsettled bool               // it could not be carried out
	ctx       context.Context    // ends when the run has to, with the cause; not with the attempt's time
	cancel    context.CancelCauseFunc
}

type runKey struct{}

func runOf(msg *message.Message) *run {
	r, _ := msg.Context().Value(runKey{}).(*run)
	return r
}

var errNotDelivered = errors.New("the message was not handed out by a subscriber of this module")

// newRun reads a delivery. The error is one of a message that is not for this handler or not a message at all.
func (c *chain) newRun(d *subscribers.Delivery) (*run, error) {
	r := &run{delivery: d, stream: c.streamOf(d)}
	relative, ok := c.subjects.Relative(d.Subject)
	if !ok {
		return r, fmt.Errorf("%w: subject %q has another prefix", schema.ErrUndecodable, schema.OneLine(d.Subject))
	}
	env, err := schema.Decode(relative, d.Header, d.Payload)
	if err != nil {
		return r, err
	}
	switch {
	case env.Replay != nil && env.Replay.Handler != c.name:
		err = fmt.Errorf("%w: a replay for handler %q", schema.ErrUndecodable, schema.OneLine(env.Replay.Handler))
	case env.Replay == nil && env.Kind == schema.KindJob && env.Target != c.name:
		err = fmt.Errorf("%w: a job for target %q", schema.ErrUndecodable, schema.OneLine(env.Target))
	}
	if err != nil {
		return r, err
	}
	r.env = env
	r.retry, r.timeout = c.policy.Rules(c.handler, env)
	r.inbox = schema.Run{Key: schema.InboxKeyOf(c.name, env), MessageID: env.ID, Lease: c.lease}
	if env.Replay != nil {
		r.inbox.MessageID, r.inbox.Replay = env.Replay.Of, env.Replay.Number
	}
	r.inbox.Sequence = c.accountable(r)
	if r.unasked = c.policy.Mode == handlers.ModeNone && d.Delivered == 1 && env.Replay == nil && env.ReplyTo == nil; !r.unasked {
		r.identify()
	}
	return r, nil
}

// identify fills in what only the inbox wants to know.
func (r *run) identify() { r.inbox.Owner, r.inbox.BodyHash = schema.NewID(), r.env.BodyHash() }

func (c *chain) streamOf(d *subscribers.Delivery) schema.Stream {
	if d.Stream == c.events {
		return schema.Events
	}
	return schema.Jobs
}

// accountable returns the message's sequence if it is in the stream of jobs and our own outbox has sent it, else 0.
func (c *chain) accountable(r *run) uint64 {
	source := r.delivery.Header[schema.HeaderSource]
	if r.stream == schema.Jobs && len(source) == 1 && c.source != "" && source[0] == c.source {
		return r.delivery.Sequence
	}
	return 0
}

// attempt is the number of the attempt that this run is or would be.
func (r *run) attempt() int { return r.record.Attempts + 1 }

// fruitless is how many deliveries before this one ended without anything being recorded.
func (r *run) fruitless() uint64 {
	before := r.delivery.Delivered - min(r.delivery.Delivered, 1)
	if r.record.Deliveries > r.delivery.Delivered { // the consumer was made anew and counts from 1
		return before
	}
	return before - min(before, r.record.Deliveries)
}

// without is what the inbox is to note so that r's delivery counts as none: neither as a result nor as a crash.
func (r *run) without() uint64 {
	if r.record.Deliveries == trialMark { // only its trial has an end
		return trialMark
	}
	return r.delivery.Delivered - r.fruitless()
}

// letter begins the dead letter of r.
func (r *run) letter(handler string) schema.DeadLetter {
	d := r.delivery
	return schema.DeadLetter{
		Handler: handler, ID: r.inbox.MessageID, Key: r.inbox.Key.Hash(), Replay: r.inbox.Replay, Deliveries: d.Delivered,
		Stream: r.stream, Subject: d.Subject, Sequence: d.Sequence, Header: d.Header, Payload: d.Payload,
	}
}

// fields are what a log line says about r.
func (r *run) fields() []any {
	return []any{"target", r.inbox.Key.Handler, "name", r.env.Name, "id", r.inbox.MessageID, "key", r.inbox.Key.Key}
}
