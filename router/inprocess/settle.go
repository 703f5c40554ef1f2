package inprocess

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/schema"
)

// settle carries out what the end of a run asks for.
func (c *core) settle(ctx context.Context, it *item, res result) {
	err := judge(ctx, res.err)
	retry, _ := it.lane.policy.Rules(it.lane.handler, it.env)
	d := handlers.Decide(retry, it.attempts+1, it.id(), err)
	reason := schema.Reason(err)
	c.mu.Lock()
	it.lane.running--
	it.runs++
	now := c.now()
	it.lane.judged(d, now)
	switch d.Verdict {
	case handlers.Ack:
		c.tally.Handled++
		c.cfg.Logger.Debug("handled", it.fields()...)
		c.settled(it, schema.InboxDone, "", "")
		c.takeCommitted(res.msgs, now)
		c.report(it, schema.Outcome{OK: true, Result: res.report})
		c.done(it)
	case handlers.Cancelled:
		c.tally.Cancelled++
		c.cfg.Logger.Info("no longer wanted", append(it.fields(), "error", reason)...)
		c.settled(it, schema.InboxDone, d.Cause, reason)
		c.report(it, schema.Outcome{Cause: d.Cause, Reason: reason})
		c.done(it)
	case handlers.Retry:
		it.attempts++
		c.tally.Retried++
		c.cfg.Logger.Info("attempt failed", append(it.fields(), "attempt", it.attempts, "delay", d.Wait, "error", reason)...)
		c.wait(&waiting{due: now.Add(d.Wait), item: it})
	case handlers.Snoozed:
		c.tally.Snoozed++
		c.cfg.Logger.Info("snoozed", append(it.fields(), "delay", d.Wait, "error", reason)...)
		c.wait(&waiting{due: now.Add(d.Wait), item: it})
	case handlers.Dead:
		it.attempts++
		c.settled(it, schema.InboxDead, d.Cause, reason)
		var stack string
		if panicked := (*handlers.PanicError)(nil); errors.As(err, &panicked) {
			stack = string(panicked.Stack)
		}
		c.bury(it, d.Cause, reason, stack)
	default: // we have stopped it: as if it had not begun
		it.lane.ready = slices.Insert(it.lane.ready, 0, it)
	}
	c.dispatch()
	c.unlock()
	if res.hooks != nil {
		res.hooks.Settled(d)
	}
	c.mu.Lock()
	c.running-- // not before: who drains may look at what hooks and OnDead have seen
	c.mu.Unlock()
	c.signal()
}

// bury gives an item up and keeps it as a dead letter.
func (c *core) bury(it *item, cause schema.Cause, reason, stack string) {
	d := schema.DeadLetter{
		Handler: it.lane.name, ID: it.id(), Key: schema.InboxKeyOf(it.lane.name, it.env).Hash(), Cause: cause, Reason: schema.OneLine(reason), Stack: stack,
		Attempts: it.attempts, Deliveries: it.runs, Time: c.now(),
		Stream: it.row.Stream, Subject: schema.Subjects{}.Full(it.row.Subject), Header: maps.Clone(it.header), Payload: it.row.Payload,
	}
	if it.env.Replay != nil {
		d.Replay = it.env.Replay.Number
	}
	c.tally.Dead++
	c.cfg.Logger.Warn("message given up", append(it.fields(), "cause", cause, "attempts", it.attempts, "error", d.Reason)...)
	c.letters = append(c.letters, d)
	c.notices = append(c.notices, d)
	c.report(it, schema.Outcome{Cause: cause, Reason: d.Reason})
	c.done(it)
	c.kept++ // as a letter
}

// report publishes the outcome of a job to whom it asks to have it.
func (c *core) report(it *item, o schema.Outcome) {
	env, asked := it.env.Report(o)
	if !asked {
		return
	}
	now := c.now()
	env.Time = now
	m, err := newMessage(env, now)
	if err != nil {
		c.cfg.Logger.Error("report not published", append(it.fields(), "error", schema.Reason(err))...)
		return
	}
	c.takeCommitted([]*message{m}, now)
}

// fields are what a log line says about an item.
func (it *item) fields() []any {
	return []any{"target", it.lane.name, "name", it.env.Name, "id", it.id(), "key", it.env.IdempotencyKey()}
}

// Parked is a message that is kept because nobody here handles it.
type Parked struct {
	Envelope schema.Envelope
	Reason   string
}

type parked struct {
	*message
	reason  string
	unknown bool // goes on its way when there is a handler for it
}

func (c *core) park(m *message, reason string, unknown bool) {
	c.cfg.Logger.Warn("message parked", "name", m.env.Name, "id", m.id(), "reason", reason)
	c.parked = append(c.parked, parked{m, reason, unknown})
}

// unpark gives messages for unknown handlers another chance.
func (c *core) unpark() {
	var still []parked
	for _, p := range c.parked {
		if !p.unknown {
			still = append(still, p)
			continue
		}
		c.intake = append(c.intake, p.message)
	}
	c.parked = still
}

func (c *core) parkedMessages() []Parked {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]Parked, len(c.parked))
	for i, p := range c.parked {
		env, _ := p.envelope() // it was read before
		out[i] = Parked{env, p.reason}
	}
	return out
}

func (c *core) deadLetters() []schema.DeadLetter {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.letters)
}

func (c *core) replay(ctx context.Context, handler, id string) error {
	c.mu.Lock()
	defer c.unlock()
	i := c.letter(handler, id)
	if i < 0 {
		return fmt.Errorf("replay dead letter %s of %q: %w", schema.OneLine(id), schema.OneLine(handler), schema.ErrNotFound)
	}
	d := c.letters[i]
	env, err := d.Envelope(schema.Subjects{})
	if err != nil {
		return fmt.Errorf("replay dead letter: %w", err)
	}
	env.ID, env.Replay = schema.NewID(), &schema.Replay{Handler: handler, Of: d.ID, Number: d.Replay + 1}
	now := c.now()
	m, err := newMessage(env, now)
	if err != nil {
		return fmt.Errorf("replay dead letter: %w", err)
	}
	c.letters = slices.Delete(c.letters, i, i+1)
	c.kept--
	c.take(m, now)
	c.dispatch()
	c.signal()
	c.cfg.Logger.InfoContext(ctx, "replayed", "target", handler, "id", id, "replay", env.Replay.Number)
	return nil
}

func (c *core) letter(handler, id string) int {
	return slices.IndexFunc(c.letters, func(d schema.DeadLetter) bool { return d.Handler == handler && d.ID == id })
}

func (c *core) drop(handler, id string) error {
	c.mu.Lock()
	defer c.unlock()
	if handler == "" {
		before := len(c.parked)
		c.parked = slices.DeleteFunc(c.parked, func(p parked) bool { return p.id() == id })
		if n := before - len(c.parked); n > 0 {
			c.kept -= n
			return nil
		}
		return fmt.Errorf("drop parked message %s: %w", schema.OneLine(id), schema.ErrNotFound)
	}
	i := c.letter(handler, id)
	if i < 0 {
		return fmt.Errorf("drop dead letter %s of %q: %w", schema.OneLine(id), schema.OneLine(handler), schema.ErrNotFound)
	}
	c.letters = slices.Delete(c.letters, i, i+1)
	c.kept--
	return nil
}
