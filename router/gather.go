package router

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/millbridge/millbridge/schema"
)

const (
	// maxGroup bounds the locks that a group takes in the database.
	maxGroup = 64
	// maxGroups is how many groups may be on their way at once, so that the database works on one while the runs of the
	// other are at work here.
	maxGroups = 2
	// enough are worth a group beside one that is on its way: more, smaller ones cost the database more.
	enough = maxGroup / 2
)

// A grouper is an inbox that deals with several runs in one transaction. Those that it leaves out, with nil or false, are
// to be asked for alone.
type grouper interface {
	Group(ctx context.Context, claims, done []schema.Run) (claimed []*schema.InboxRecord, noted []bool, err error)
}

// gathered is an inbox whose claims and ends share their commits: those that come while one is on its way form a group
// for the next, which begins at once if there are enough of them. Who is alone is served as without it.
type gathered struct {
	Inbox
	grouper grouper

	mu    sync.Mutex
	named bool     // one of the askers is to deal with the next group
	under int      // how many groups are on their way
	queue []*asker // in the order in which they came
}

// gather returns in, gathered if it can deal with groups.
func gather(in Inbox) Inbox {
	if g, ok := in.(grouper); ok {
		return &gathered{Inbox: in, grouper: g}
	}
	return in
}

// Claim is the inbox's Claim.
func (g *gathered) Claim(ctx context.Context, run schema.Run) (res schema.ClaimResult, err error) {
	alone := func() { res, err = g.Inbox.Claim(ctx, run) }
	got, askErr := g.ask(ctx, &asker{run: run, alone: alone})
	switch {
	case askErr != nil:
		return res, askErr
	case got.record != nil:
		return schema.ClaimResult{Claim: schema.ClaimRun, Record: *got.record}, nil
	case !got.served:
		alone()
	}
	return res, err
}

// Done is the inbox's Done.
func (g *gathered) Done(ctx context.Context, run schema.Run) (err error) {
	alone := func() { err = g.Inbox.Done(ctx, run) }
	got, askErr := g.ask(ctx, &asker{run: run, end: true, alone: alone})
	switch {
	case askErr != nil:
		return askErr
	case got.noted:
		return nil
	case !got.served:
		alone()
	}
	return err
}

// An asker waits for what becomes of its run.
type asker struct {
	run    schema.Run
	end    bool   // it notes the run as done; else it claims it
	alone  func() // asks for it without a group
	hash   [32]byte
	answer chan answer // has room for one
}

type answer struct {
	lead   bool                // none yet: the asker is to deal with the next group, itself among it
	served bool                // alone has been called
	record *schema.InboxRecord // of a run that may go ahead
	noted  bool
	err    error
}

// ask returns what a group has done for a, or nothing if that is for alone to do.
func (g *gathered) ask(ctx context.Context, a *asker) (answer, error) {
	a.hash, a.answer = a.run.Key.Hash(), make(chan answer, 1)
	g.mu.Lock()
	g.queue = append(g.queue, a)
	g.pass()
	g.mu.Unlock()
	for {
		select {
		case got := <-a.answer:
			if !got.lead {
				return got, got.err
			}
			g.lead(ctx)
		case <-ctx.Done():
			return g.leave(ctx, a)
		}
	}
}

// pass makes the one who came first lead the next group, if there is to be one now.
func (g *gathered) pass() {
	n := len(g.queue)
	if !g.named && (n > 0 && g.under == 0 || n >= enough && g.under < maxGroups) {
		g.named = true
		g.queue[0].answer <- answer{lead: true}
	}
}

// leave is for an asker that waits no longer. Unless it has its answer, what has become of its run is not known.
func (g *gathered) leave(ctx context.Context, a *asker) (answer, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if i := slices.Index(g.queue, a); i >= 0 {
		g.queue = slices.Delete(g.queue, i, i+1)
	}
	select {
	case got := <-a.answer:
		if !got.lead {
			return got, got.err
		}
		g.named = false
		g.pass()
	default:
	}
	return answer{}, fmt.Errorf("%w: %w", schema.ErrNoAnswer, context.Cause(ctx))
}

// lead deals with the next group and gives its members their answers.
func (g *gathered) lead(ctx context.Context) {
	group := g.take()
	defer func() {
		g.mu.Lock()
		g.under--
		g.pass()
		g.mu.Unlock()
	}()
	if len(group) == 1 {
		group[0].alone()
		group[0].answer <- answer{served: true}
		return
	}
	var claims, ends []schema.Run
	for _, a := range group {
		if a.end {
			ends = append(ends, a.run)
		} else {
			claims = append(claims, a.run)
		}
	}
	call, cancel := storeContext(ctx)
	records, noted, err := g.grouper.Group(call, claims, ends)
	cancel()
	for _, a := range group {
		var got answer
		switch {
		case errors.Is(err, schema.ErrUnavailable):
			got.err = err
		case err != nil: // one of them is to blame: each is asked for alone
		case a.end:
			got.noted, noted = noted[0], noted[1:]
		default:
			got.record, records = records[0], records[1:]
		}
		a.answer <- got
	}
}

// take removes the next group from the queue. No two of a group have the same key.
func (g *gathered) take() []*asker {
	g.mu.Lock()
	defer g.mu.Unlock()
	keys := make(map[[32]byte]bool, min(len(g.queue), maxGroup))
	var group, rest []*asker
	for _, a := range g.queue {
		if len(group) < maxGroup && !keys[a.hash] {
			keys[a.hash] = true
			group = append(group, a)
		} else {
			rest = append(rest, a)
		}
	}
	g.queue, g.named = rest, false
	g.under++
	g.pass()
	return group
}
