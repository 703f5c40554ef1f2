package handlertest_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/handlers/handlertest"
	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/schema"
	"github.com/millbridge/millbridge/schema/sqlite"
)

// world returns a handler on a remote system.
func world(remote *handlertest.Recorder, handler func() handlers.Handler) handlertest.World {
	return handlertest.World{Handler: handler, State: func() any { return remote.Effects() }}
}

func fn(f handlers.HandlerFunc) func() handlers.Handler {
	return func() handlers.Handler { return f }
}

// passesTheKey is correct: the other side honours the key.
func passesTheKey() handlertest.World {
	remote := &handlertest.Recorder{ByKey: true}
	return world(remote, fn(remote.Handle))
}

// countsUp is broken: it does the work again each time.
func countsUp() handlertest.World {
	remote := &handlertest.Recorder{}
	return world(remote, fn(remote.Handle))
}

// remembersInMemory is broken: what it knows goes with the process.
func remembersInMemory() handlertest.World {
	remote := &handlertest.Recorder{}
	return world(remote, func() handlers.Handler {
		var mu sync.Mutex
		done := map[string]bool{}
		return handlers.HandlerFunc(func(ctx context.Context, env schema.Envelope) error {
			mu.Lock()
			defer mu.Unlock()
			if done[env.IdempotencyKey()] {
				return nil
			}
			if err := remote.Handle(ctx, env); err != nil {
				return err
			}
			done[env.IdempotencyKey()] = true
			return nil
		})
	})
}

// looksFirst is broken: between its look and its act somebody else may act.
func looksFirst() handlertest.World {
	remote := &handlertest.Recorder{}
	return world(remote, fn(func(ctx context.Context, env schema.Envelope) error {
		for _, c := range remote.Effects() {
			if c.Key == env.IdempotencyKey() {
				return nil
			}
		}
		return remote.Handle(ctx, env)
	}))
}

// refusesRepeats is broken: the other side calls a repeat a conflict, and so the message dies.
func refusesRepeats() handlertest.World {
	remote := &handlertest.Recorder{ByKey: true}
	return world(remote, fn(func(ctx context.Context, env schema.Envelope) error {
		for _, c := range remote.Effects() {
			if c.Key == env.IdempotencyKey() {
				return handlers.Permanent(errors.New("409 exists already"))
			}
		}
		return remote.Handle(ctx, env)
	}))
}

// stopsHalfWay is broken: its first step has no key.
func stopsHalfWay() handlertest.World {
	remote := &handlertest.Recorder{}
	done := map[string]bool{}
	return world(remote, fn(func(ctx context.Context, env schema.Envelope) error {
		if done[env.IdempotencyKey()] {
			return nil
		}
		if err := remote.Call(ctx, "reserve", "", nil); err != nil {
			return err
		}
		if err := remote.Call(ctx, "ship", env.IdempotencyKey(), nil); err != nil {
			return err
		}
		done[env.IdempotencyKey()] = true
		return nil
	}))
}

// lastWins sets a value: a repeat that comes late puts the old one back.
func lastWins() handlertest.World {
	var value string
	return handlertest.World{
		Handler: fn(func(_ context.Context, env schema.Envelope) error {
			value = string(env.Payload)
			return nil
		}),
		State: func() any { return value },
	}
}

func charges() []schema.Envelope {
	return []schema.Envelope{
		schema.NewJob("billing", "charge", charge{"o-1", 100}, schema.WithKey("k1")),
		schema.NewJob("billing", "charge", charge{"o-2", 200}, schema.WithKey("k2")),
	}
}

const (
	isTwice    = "delivered twice"
	isCrash    = "crash between effect and ack"
	isLate     = "repeated late"
	isLastLate = "repeated late, last first"
	isOvertake = "two runs at the same time"
	isCut      = "cut off in the middle"
	isTurned   = "in another order"
)

func TestExamine_tells_correct_from_broken_handlers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fresh  func() handlertest.World
		broken []string
		says   []string
	}{
		"passes the key": {passesTheKey, nil, []string{
			"The handler is idempotent: whatever happened (delivered twice; crash between effect and ack;",
			"it left what one run of each message leaves.",
		}},
		"counts up": {countsUp, []string{isTwice, isCrash, isLate, isLastLate, isOvertake, isTurned}, []string{
			"The handler is NOT idempotent. Of 7 scenarios it did not stand 6.",
			"When a message is delivered twice, what it leaves is not what one run leaves (- one run, + now):",
			`+ charge key="k1" {"cents":100,"order":"o-1"}`,
			"What helps: Pass the idempotency key on to the other side",
		}},
		"remembers in memory": {remembersInMemory, []string{isCrash, isLate, isLastLate}, []string{
			"When the process ends after the effect, before the message is marked as handled, the handler runs again in a new process",
			"Note: It knows a repeat as long as its process lives, so it seems to keep what it has done in memory.",
		}},
		"looks first": {looksFirst, []string{isOvertake}, []string{
			"When a second run of the same message overtakes one that was paused, as after a lost lease, what it leaves is not what one run leaves",
			"Between looking and acting somebody else may act",
		}},
		"refuses repeats": {refusesRepeats, []string{isTwice, isCrash, isLate, isLastLate, isTurned}, []string{
			`message 1 (charge, key "k1") is given up although its work may be done already: error: 409 exists already.`,
		}},
		"stops half-way": {stopsHalfWay, []string{isOvertake, isCut}, []string{
			"When the handler's context ends in the middle (a timeout, a stop) and the message is run again, what it leaves",
			`+ reserve key="" null`,
			"Make each step safe to repeat by itself",
		}},
		"last wins": {lastWins, []string{isLastLate}, []string{
			"When repeats come late and the last one first, ",
			"the last write must not win just because it came last",
			"Note: The order matters: with the last message first the end is another.",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := handlertest.Examine(t.Context(), c.fresh, charges()...)
			if v.Idempotent != (len(c.broken) == 0) || v.Unjudged != "" {
				t.Errorf("idempotent: %v, unjudged: %q", v.Idempotent, v.Unjudged)
			}
			for _, s := range v.Tried {
				if want := strings.Contains(strings.Join(c.broken, "|")+"|", s+"|"); v.Broke(s) != want {
					t.Errorf("%q broke it: %v, want %v", s, v.Broke(s), want)
				}
			}
			for _, want := range c.says {
				if !strings.Contains(v.String(), want) {
					t.Errorf("the verdict does not say %q", want)
				}
			}
			if t.Failed() {
				t.Log(v)
			}
		})
	}
}

func TestExamine_keeps_the_order_of_keys(t *testing.T) {
	t.Parallel()
	envs := charges()
	for i := range envs {
		envs[i].OrderingKey = "account"
	}
	if v := handlertest.Examine(t.Context(), lastWins, envs...); !v.Idempotent || len(v.Notes) != 0 {
		t.Errorf("an ordering key keeps the last write last: %v", v)
	}
}

func TestExamine_says_when_it_cannot_tell(t *testing.T) {
	t.Parallel()
	n := 0
	for want, fresh := range map[string]func() handlertest.World{
		`message 1 (charge, key "k1") fails again and again: handlers.PanicError: panic: no`: func() handlertest.World {
			return handlertest.World{Handler: fn(func(context.Context, schema.Envelope) error { panic("no") }), State: func() any { return nil }}
		},
		"the same runs leave another state each time": func() handlertest.World {
			n++
			m := n
			return handlertest.World{Handler: fn(func(context.Context, schema.Envelope) error { return nil }), State: func() any { return m }}
		},
	} {
		if v := handlertest.Examine(t.Context(), fresh, charges()...); v.Idempotent || !strings.Contains(v.String(), want) {
			t.Errorf("verdict %q lacks %q", v, want)
		}
	}
	if v := handlertest.Examine(t.Context(), passesTheKey); v.Idempotent || !strings.Contains(v.String(), "there are no messages to try") {
		t.Errorf("without messages: %q", v)
	}
}

func TestCheckIdempotent_fails_the_test_with_the_verdict(t *testing.T) {
	t.Parallel()
	handlertest.CheckIdempotent(t, passesTheKey, charges()...)
	f := failures{TB: t}
	handlertest.CheckIdempotent(&f, countsUp, charges()...)
	if !strings.Contains(f.text.String(), "The handler is NOT idempotent.") {
		t.Errorf("it says %q", f.text.String())
	}
}

// In ModeTx the key is marked in the handler's transaction, which takes care of rows but not of what is outside.
func TestExamine_runs_handlers_in_their_transaction(t *testing.T) {
	t.Parallel()
	write, read := testkit.SQLite(t)
	store := sqlite.New(write, read, sqlite.Options{})
	t.Cleanup(store.Close)
	if _, _, err := store.MigrateUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := write.ExecContext(t.Context(), "CREATE TABLE charges (world integer, cents integer)"); err != nil {
		t.Fatal(err)
	}
	worlds := 0
	for name, outside := range map[string]bool{"rows only": false, "an effect outside of the database": true} {
		v := handlertest.Examine(t.Context(), func() handlertest.World {
			worlds++
			return inDatabase(t, store, read, worlds, outside)
		}, charges()[0])
		if v.Unjudged != "" || v.Idempotent == outside || v.Broke(isCrash) != outside || v.Broke(isTwice) {
			t.Errorf("%s: %v", name, v)
		}
	}
}

// scoped lets many worlds share one database: each has its own keys.
type scoped struct {
	schema.Unit
	world int
}

func (s scoped) Claim(ctx context.Context, run schema.Run) (schema.ClaimResult, error) {
	run.Key.Source = fmt.Sprint(s.world)
	return s.Unit.Claim(ctx, run)
}

func inDatabase(t *testing.T, store *sqlite.Store, read *sql.DB, world int, outside bool) handlertest.World {
	remote := &handlertest.Recorder{}
	return handlertest.World{
		Units: func(ctx context.Context, fn func(schema.Unit) error) error {
			return store.Unit(ctx, func(u schema.Unit) error { return fn(scoped{u, world}) })
		},
		Handler: func() handlers.Handler {
			var a handlers.Actions
			handlers.On(&a, "charge", func(ctx context.Context, c charge, key string) error {
				tx, err := handlers.Tx[*sql.Tx](ctx)
				if err != nil {
					return err
				}
				if outside {
					if err := remote.Call(ctx, "charge", key, c); err != nil {
						return err
					}
				}
				_, err = tx.ExecContext(ctx, "INSERT INTO charges VALUES (?, ?)", world, c.Cents)
				return err
			})
			return &a
		},
		State: func() any {
			var n, sum int
			const rows = "SELECT count(*), coalesce(sum(cents), 0) FROM charges WHERE world = ?"
			if err := read.QueryRowContext(t.Context(), rows, world).Scan(&n, &sum); err != nil {
				t.Error(err)
			}
			return map[string]any{"rows": fmt.Sprint(n, sum), "remote": remote.Effects()}
		},
	}
}
