package handlertest_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/handlers/handlertest"
	"github.com/millbridge/millbridge/router/inprocess"
	"github.com/millbridge/millbridge/schema"
)

// Charge is a job type of a target "billing".
var Charge = schema.JobType[charge]{Target: "billing", Action: "charge"}

// fakeBilling is what a test gives the handler in place of the real client.
type fakeBilling struct{ *handlertest.Recorder }

func (f fakeBilling) Charge(ctx context.Context, key string, c charge) error {
	return f.Call(ctx, "charge", key, c)
}

// newBilling returns the handler under test.
func newBilling(client fakeBilling) handlers.Handler {
	var a handlers.Actions
	handlers.OnJob(&a, Charge, func(ctx context.Context, c charge, key string) error {
		return client.Charge(ctx, key, c)
	})
	return &a
}

// A handler against a recorder, with the whole machinery around it: the first two calls fail, and nothing waits for the
// retries.
func ExampleRecorder() {
	remote := &handlertest.Recorder{ByKey: true}
	remote.Fail("charge", 2, errors.New("down"))
	queue := inprocess.New[struct{}](inprocess.Config{Clock: handlertest.NewClock(time.Time{})})
	if err := queue.Target(handlers.Target{Name: "billing", Handler: newBilling(fakeBilling{remote})}); err != nil {
		fmt.Println(err)
	}
	ctx := context.Background()
	if _, err := queue.PublishAlone(ctx, Charge.New(charge{"o-7", 1250}, schema.WithKey("o-7"))); err != nil {
		fmt.Println(err)
	}
	tally, err := queue.DrainUntilEmpty(ctx) // in a test: handlertest.DrainUntilEmpty(t, queue)
	fmt.Println(tally.Handled, tally.Retried, err)
	for _, c := range remote.Calls() {
		fmt.Println(c)
	}
	// Output:
	// 1 2 <nil>
	// charge key="o-7" {"cents":1250,"order":"o-7"}
	// charge key="o-7" {"cents":1250,"order":"o-7"}
	// charge key="o-7" {"cents":1250,"order":"o-7"}
}

// The other side does not know keys, so a repeat charges twice. In a test use CheckIdempotent, which fails it.
func ExampleExamine() {
	verdict := handlertest.Examine(context.Background(), func() handlertest.World {
		remote := &handlertest.Recorder{}
		return handlertest.World{
			Handler: func() handlers.Handler { return newBilling(fakeBilling{remote}) },
			State:   func() any { return remote.Effects() },
		}
	}, Charge.New(charge{"o-7", 1250}, schema.WithKey("o-7")))
	fmt.Println(verdict.Idempotent)
	first := verdict.Findings[0]
	fmt.Print(first.What, first.Problem)
	fmt.Println(first.Hint)
	// Output:
	// false
	// When a message is delivered twice, what it leaves is not what one run leaves (- one run, + now):
	//     charge key="o-7" {"cents":1250,"order":"o-7"}
	//   + charge key="o-7" {"cents":1250,"order":"o-7"}
	// Pass the idempotency key on to the other side, look there before you act, or write what is done under the key where it is unique.
}

// With the key passed on to a system that honours it, the handler is idempotent.
func ExampleExamine_correct() {
	verdict := handlertest.Examine(context.Background(), func() handlertest.World {
		remote := &handlertest.Recorder{ByKey: true}
		return handlertest.World{
			Handler: func() handlers.Handler { return newBilling(fakeBilling{remote}) },
			State:   func() any { return remote.Effects() },
		}
	}, Charge.New(charge{"o-7", 1250}, schema.WithKey("o-7")))
	fmt.Println(verdict.Idempotent, len(verdict.Tried))
	// Output:
	// true 6
}

// A clock that stands still until it is moved.
func ExampleClock() {
	clock := handlertest.NewClock(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))
	clock.AfterFunc(time.Hour, func() { fmt.Println("called at", clock.Now().Format(time.TimeOnly)) })
	clock.Advance(2 * time.Hour)
	fmt.Println(clock.Now().Format(time.TimeOnly))
	// Output:
	// called at 01:00:00
	// 02:00:00
}
