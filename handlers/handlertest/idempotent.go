package handlertest

import (
	"context"
	"testing"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/schema"
)

// A World is a handler with everything it works on, made anew for each scenario.
type World struct {
	// Handler makes the handler, as a process does that has just started. It is called again after each crash: what the
	// handler kept in memory is gone then, what it works on is still there.
	Handler func() handlers.Handler
	// State returns what the handler's runs have changed: rows, or the Effects of a [Recorder]. States are compared as JSON,
	// so leave out what differs from run to run, such as times and random ids.
	State func() any
	// Units gives a handler with [handlers.ModeTx] its transactions: the Unit method of a store. The key is then marked as
	// handled in the same transaction, as by a bridge. Leave it nil for all other handlers.
	Units func(ctx context.Context, fn func(schema.Unit) error) error
}

// CheckIdempotent fails the test, with the words of [Examine], unless the handler is idempotent for these messages.
//
//	handlertest.CheckIdempotent(t, func() handlertest.World {
//		remote := &handlertest.Recorder{ByKey: true}
//		return handlertest.World{
//			Handler: func() handlers.Handler { return mailer.New(fakeMail{remote}) },
//			State:   func() any { return remote.Effects() },
//		}
//	}, mailer.Send.New(mail))
func CheckIdempotent(t testing.TB, fresh func() World, envs ...schema.Envelope) {
	t.Helper()
	v := Examine(t.Context(), fresh, envs...)
	if !v.Idempotent {
		t.Errorf("%v", v)
		return
	}
	t.Log(v)
}

// Examine finds out whether the outcome is the same, however often and in whatever way a bridge has to run the handler
// for these messages: twice; again after a crash between the effect and the ack; late, after others; in another order;
// two at the same time; cut off in the middle and run again. What counts is the state that one run of each message
// leaves. Messages that share an ordering key keep their order.
//
// Where a handler can be cut off or overtaken is wherever it looks at its context, so a fake should look at it, as a
// client that does I/O does and a [Recorder] does, too.
func Examine(ctx context.Context, fresh func() World, envs ...schema.Envelope) Verdict {
	l := &lab{ctx: ctx, fresh: fresh, envs: envs}
	given := l.inOrder()
	if len(envs) == 0 {
		return Verdict{Unjudged: "there are no messages to try"}
	}
	once, problem := l.outcome(given, plain)
	if problem != "" {
		return Verdict{Unjudged: "with one run of each message, and nothing else, " + problem}
	}
	if again, _ := l.outcome(given, plain); again != once {
		return Verdict{Unjudged: "the same runs leave another state each time, so states cannot be compared. " +
			"Leave out what is random or a time:\n" + diffText(once, again)}
	}
	var v Verdict
	for _, s := range scenarios {
		v.Tried = append(v.Tried, s.name)
		if p := l.try(s, given, once); p != "" {
			v.Findings = append(v.Findings, Finding{s.name, s.words, p, s.hint})
		}
	}
	if turned := l.reversed(); len(envs) > 1 {
		v.Tried = append(v.Tried, "in another order")
		switch onceTurned, problem := l.outcome(turned, plain); {
		case problem != "":
			v.Notes = append(v.Notes, "The order matters: with the last message first, "+problem+". Give such messages an ordering key.")
		default:
			if !sameLines(onceTurned, once) {
				v.Notes = append(v.Notes, "The order matters: with the last message first the end is another. If that is not meant, give "+
					"such messages an ordering key.")
			}
			if p := l.try(scenarios[0], turned, onceTurned); p != "" {
				v.Findings = append(v.Findings, Finding{
					"in another order", "When the messages come in another order, each twice, ", p, scenarios[0].hint,
				})
			}
		}
	}
	v.Idempotent = len(v.Findings) == 0
	v.remember()
	return v
}

// scenario is one way in which things may go. run runs message i and returns what is wrong with that, in words. n is the
// number of the round; more reports whether the round was different from all before it.
type scenario struct {
	name  string
	words string // what happens, up to where the problem follows
	hint  string
	all   func(b *bench, order []int, n int) (problem string, more bool)
}

// maxRounds bounds the scenarios that are tried at one place after the other.
const maxRounds = 20

const (
	useTheKey = "Pass the idempotency key on to the other side, look there before you act, or write what is done under the key " +
		"where it is unique."
	lateHint = "Remember, under the key, what was done, or compare a version: the last write must not win just because it came last."
)

var scenarios = []scenario{
	{"delivered twice", "When a message is delivered twice, ", useTheKey, twice},
	{
		"crash between effect and ack",
		"When the process ends after the effect, before the message is marked as handled, the handler runs again in a new process with the " +
			"same key. Then ", useTheKey, crash,
	},
	{"repeated late", "When repeats come late, after other messages, ", lateHint, late},
	{"repeated late, last first", "When repeats come late and the last one first, ", lateHint, lateReversed},
	{
		"two runs at the same time",
		"When a second run of the same message overtakes one that was paused, as after a lost lease, ",
		"Between looking and acting somebody else may act: let the other side decide by the key, in one step.", overtake,
	},
	{
		"cut off in the middle",
		"When the handler's context ends in the middle (a timeout, a stop) and the message is run again, ",
		"Make each step safe to repeat by itself: give each a key of its own, made from the message's.", cutOff,
	},
}

// plain runs each message once.
func plain(b *bench, order []int, _ int) (string, bool) {
	for _, i := range order {
		if p := b.finish(i); p != "" {
			return p, false
		}
	}
	return "", false
}

func twice(b *bench, order []int, _ int) (string, bool) {
	for _, i := range order {
		if p := b.finish(i); p != "" {
			return p, false
		}
		if p := b.finish(i); p != "" {
			return p, false
		}
	}
	return "", false
}

func crash(b *bench, order []int, _ int) (string, bool) {
	for _, i := range order {
		_ = b.run(b.lab.ctx, i, true) // nobody learns how it ended
		b.restart()
		if p := b.finish(i); p != "" {
			return p, false
		}
	}
	return "", false
}

func late(b *bench, order []int, n int) (string, bool) {
	if p, _ := plain(b, order, n); p != "" {
		return p, false
	}
	b.restart()
	return plain(b, b.lab.repeatable(order), n)
}

func lateReversed(b *bench, order []int, n int) (string, bool) {
	if p, _ := plain(b, order, n); p != "" {
		return p, false
	}
	b.restart()
	repeats := b.lab.repeatable(order)
	for k := len(repeats) - 1; k >= 0; k-- {
		if p := b.finish(repeats[k]); p != "" {
			return p, false
		}
	}
	return "", false
}

func cutOff(b *bench, order []int, n int) (problem string, more bool) {
	for _, i := range order {
		ctx := newLooks(b.lab.ctx, n)
		ctx.then = ctx.cancel
		err := b.run(ctx, i, false)
		ctx.end()
		more = more || ctx.reached()
		if settled(err) {
			continue
		}
		if p := b.finish(i); p != "" {
			return p, false
		}
	}
	return "", more
}
