package router

import (
	"context"
	"fmt"
	"time"

	"github.com/millbridge/millbridge/internal/killpoint"
	"github.com/millbridge/millbridge/schema"
)

func (c *chain) buryForeign(ctx context.Context, r *run, err error) outcome {
	letter := r.letter(c.name)
	letter.ID, letter.Replay = fmt.Sprintf("seq-%d", r.delivery.Sequence), 0
	letter.Cause, letter.Reason = schema.CauseUndecodable, schema.Reason(err)
	run := schema.Run{Key: schema.InboxKey{Handler: c.name}, MessageID: letter.ID, Sequence: c.accountable(r)}
	if id, _ := schema.WatermillHeader(r.delivery.Header); id != "" {
		run.MessageID = schema.UsableID(id)
	}
	return c.buryUnkeyed(ctx, letter, run)
}

// buryUnkeyed buries a message that no inbox row stands for.
func (c *chain) buryUnkeyed(ctx context.Context, letter schema.DeadLetter, run schema.Run) outcome {
	letter.Key = [32]byte{}
	if !c.noteSettled(ctx, run) {
		return later(maxPause)
	}
	return c.bury(ctx, letter)
}

// noteSettled leaves a trace of a message of our outbox that is about to be acked and that no inbox row stands for.
func (c *chain) noteSettled(ctx context.Context, run schema.Run) bool {
	if run.Sequence == 0 {
		return true
	}
	ctx, cancel := storeContext(ctx)
	defer cancel()
	err := c.inbox.Settled(ctx, run)
	if err != nil {
		c.stats.fault(fmt.Errorf("note message as settled: %w", err))
	}
	return err == nil
}

// bury keeps the message as a dead letter and then lets go of the original. If the letter cannot be written the
// original stays.
func (c *chain) bury(ctx context.Context, letter schema.DeadLetter) outcome {
	letter.Time = time.Now()
	letter.Reason = schema.OneLine(letter.Reason)
	ctx, cancel := storeContext(ctx)
	defer cancel()
	killpoint.At(killpoint.BeforeLetter)
	if err := c.letters.Write(ctx, letter); err != nil {
		c.stats.fault(fmt.Errorf("write dead letter %s: %w", letter.ID, err))
		c.log.Error("dead letter not written, the message stays", "target", c.name, "id", letter.ID, "error", schema.Reason(err))
		return later(growing(letter.Deliveries, time.Minute))
	}
	killpoint.At(killpoint.AfterLetter)
	c.stats.died()
	c.log.Warn("message given up", "target", c.name, "id", letter.ID, "replay", letter.Replay, "cause", letter.Cause,
		"attempts", letter.Attempts, "error", letter.Reason)
	return acked
}
