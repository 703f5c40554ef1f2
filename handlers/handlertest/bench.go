package handlertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/schema"
)

// lab tries messages in worlds.
type lab struct {
	ctx   context.Context
	fresh func() World
	envs  []schema.Envelope
}

// try runs a scenario, in as many rounds as it has, and returns what was wrong in the first that went wrong.
func (l *lab) try(s scenario, order []int, once string) string {
	for n := 1; n <= maxRounds; n++ {
		b := l.bench()
		problem, more := s.all(b, order, n)
		if problem != "" {
			return problem
		}
		if now := b.state(); now != once {
			return "what it leaves is not what one run leaves (- one run, + now):\n" + diffText(once, now)
		}
		if !more {
			break
		}
	}
	return ""
}

// outcome runs a scenario once and returns the state that it leaves.
func (l *lab) outcome(order []int, all func(*bench, []int, int) (string, bool)) (state, problem string) {
	b := l.bench()
	problem, _ = all(b, order, 0)
	return b.state(), problem
}

func (l *lab) inOrder() []int {
	order := make([]int, len(l.envs))
	for i := range order {
		order[i] = i
	}
	return order
}

// reversed returns the messages last first, but for those that share an ordering key.
func (l *lab) reversed() []int {
	order := l.inOrder()
	slices.Reverse(order)
	places := make(map[[32]byte][]int) // of an ordering key's messages
	for at, i := range order {
		if key, ok := l.envs[i].OrderHash(); ok {
			places[key] = append(places[key], at)
		}
	}
	for _, at := range places {
		for a, b := 0, len(at)-1; a < b; a, b = a+1, b-1 {
			order[at[a]], order[at[b]] = order[at[b]], order[at[a]]
		}
	}
	return order
}

// repeatable returns the messages that may be repeated after all were handled: an ordered target has settled a message
// before it begins with the next of its key.
func (l *lab) repeatable(order []int) []int {
	last := make(map[[32]byte]int)
	for _, i := range order {
		if key, ok := l.envs[i].OrderHash(); ok {
			last[key] = i
		}
	}
	var may []int
	for _, i := range order {
		if key, ok := l.envs[i].OrderHash(); !ok || last[key] == i {
			may = append(may, i)
		}
	}
	return may
}

// bench is one world with the process that runs in it.
type bench struct {
	lab     *lab
	world   World
	handler handlers.Handler

	mu       sync.Mutex
	attempts map[int]int // that failed, by message
}

func (l *lab) bench() *bench {
	b := &bench{lab: l, world: l.fresh(), attempts: make(map[int]int)}
	b.restart()
	return b
}

// restart ends the process and starts another.
func (b *bench) restart() { b.handler = b.world.Handler() }

func (b *bench) state() string { return strings.Join(stateLines(b.world.State()), "\n") }

// settled reports whether a run that ended with err is the message's last.
func settled(err error) bool { return err == nil || schema.IsCancel(err) }

// maxRuns is how often a message is run until it must have succeeded.
const maxRuns = 5

// finish runs message i until it is settled and returns why it cannot be.
func (b *bench) finish(i int) string {
	var err error
	for range maxRuns {
		if err = b.run(b.lab.ctx, i, false); settled(err) {
			return ""
		}
		if schema.KindOf(err) == schema.Permanent {
			return fmt.Sprintf("%s is given up although its work may be done already: %v.", b.name(i), schema.Reason(err))
		}
	}
	return fmt.Sprintf("%s fails again and again: %v.", b.name(i), schema.Reason(err))
}

func (b *bench) name(i int) string {
	env := b.lab.envs[i]
	return fmt.Sprintf("message %d (%s, key %q)", i+1, env.Name, env.IdempotencyKey())
}

var errCrash = errors.New("the process has ended before the commit")

// run runs message i once. With crash the process ends when the handler has returned and before that is known.
func (b *bench) run(ctx context.Context, i int, crash bool) error {
	env := b.lab.envs[i]
	b.mu.Lock()
	attempt := b.attempts[i] + 1
	b.mu.Unlock()
	call := handlers.CallOf(env.Target, env)
	call.Attempt, call.MaxAttempts = attempt, schema.DefaultRetry.MaxAttempts
	if call.Handler == "" {
		call.Handler = "subscription"
	}
	err := b.call(ctx, env, call, crash)
	if err != nil && !crash {
		b.mu.Lock()
		b.attempts[i]++
		b.mu.Unlock()
	}
	return err
}

func (b *bench) call(ctx context.Context, env schema.Envelope, call handlers.Call, crash bool) error {
	if b.world.Units == nil {
		return b.handle(ctx, env, call)
	}
	return b.world.Units(ctx, func(u schema.Unit) error {
		res, err := u.Claim(ctx, schema.Run{
			Key: schema.InboxKeyOf(call.Handler, env), Owner: schema.NewID(), MessageID: env.ID, BodyHash: env.BodyHash(), Lease: time.Minute,
		})
		if err != nil {
			return err
		}
		switch res.Claim {
		case schema.ClaimRun:
		case schema.ClaimDone:
			return nil
		default:
			return fmt.Errorf("the inbox does not let the message run (%d)", res.Claim)
		}
		call.Unit = u
		if err := b.handle(ctx, env, call); err != nil {
			return err
		}
		if crash {
			return errCrash
		}
		return nil
	})
}

func (b *bench) handle(ctx context.Context, env schema.Envelope, call handlers.Call) error {
	env.Payload = slices.Clone(env.Payload)
	return handlers.Recover(func() error { return b.handler.Handle(handlers.WithCall(ctx, call), env) })
}

// looks is a context that does something when it is looked at for the at-th time.
type looks struct {
	context.Context
	cancel context.CancelFunc
	then   func()
	at     int

	mu    sync.Mutex
	n     int
	over  bool
	doing sync.WaitGroup
}

func newLooks(parent context.Context, at int) *looks {
	l := &looks{at: at, then: func() {}}
	l.Context, l.cancel = context.WithCancel(parent)
	return l
}

func (l *looks) look() {
	l.mu.Lock()
	l.n++
	now := l.n == l.at && !l.over
	if now {
		l.doing.Add(1)
	}
	l.mu.Unlock()
	if now {
		defer l.doing.Done()
		l.then()
	}
}

// end is called when the run has ended. What a client leaves behind may look once more, and must not do anything then.
func (l *looks) end() {
	l.mu.Lock()
	l.over = true
	l.mu.Unlock()
	l.doing.Wait()
	l.cancel()
}

func (l *looks) reached() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.n >= l.at
}

func (l *looks) Done() <-chan struct{} {
	l.look()
	return l.Context.Done()
}

func (l *looks) Err() error {
	l.look()
	return l.Context.Err()
}

// overtakeTime is how long a paused run waits for the one that overtakes it: it may hold a lock that the other needs.
const overtakeTime = 100 * time.Millisecond

// overtake pauses a run where it looks at its context for the n-th time, until another run of the same message has
// ended, which decides what becomes of the message.
func overtake(b *bench, order []int, n int) (problem string, more bool) {
	for _, i := range order {
		var second sync.WaitGroup
		var err error
		ctx := newLooks(b.lab.ctx, n)
		other := func() {
			ended := make(chan struct{})
			second.Go(func() {
				defer close(ended)
				err = b.run(b.lab.ctx, i, false)
			})
			limit := time.NewTimer(overtakeTime)
			defer limit.Stop()
			select {
			case <-ended:
			case <-limit.C:
			}
		}
		if b.world.Units == nil {
			ctx.then = other
		} else { // the paused one would keep the database's lock
			second.Go(func() { err = b.run(b.lab.ctx, i, false) })
		}
		first := b.run(ctx, i, false)
		ctx.end()
		second.Wait()
		overtaken := b.world.Units != nil || ctx.reached()
		more = more || b.world.Units == nil && overtaken
		if settled(err) && (overtaken || settled(first)) {
			continue
		}
		if p := b.finish(i); p != "" {
			return p, false
		}
	}
	return "", more
}
