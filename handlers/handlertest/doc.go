// Package handlertest helps to test handlers, without a database or a broker.
//
//   - A [Recorder] stands in for the client of the other system: it records (action, key, args) of each call, fails as it
//     is told to, and says exactly which calls were wrong.
//   - [DrainUntilEmpty] handles everything that was published, by a bridge or by the in-process queue of router/inprocess,
//     and returns the tally.
//   - A [Clock] moves by hand, or by itself when the in-process queue would only wait, so that retries take no time.
//   - [CheckIdempotent] runs a handler as a bridge may have to run it (twice, after a crash, late, two at the same time,
//     cut off in the middle) and says in plain words whether the outcome is still that of one run.
//
// # A handler against a recorder
//
// Give the handler a client whose methods call [Recorder.Call]:
//
//	type fakeBilling struct{ *handlertest.Recorder }
//
//	func (f fakeBilling) Charge(ctx context.Context, key string, c Charge) error {
//		return f.Call(ctx, "charge", key, c)
//	}
//
// then run it through the whole machinery, in memory:
//
//	queue := inprocess.New[struct{}](inprocess.Config{Clock: handlertest.NewClock(time.Time{})})
//	err := queue.Target(handlers.Target{Name: "billing", Handler: New(fakeBilling{rec})})
//	...
//	_, err = queue.PublishAlone(ctx, ChargeJob.New(Charge{Cents: 500}, schema.WithKey("order-7")))
//	...
//	if n := handlertest.DrainUntilEmpty(t, queue).Handled; n != 1 { ... }
//	rec.Want(t, handlertest.Call{Action: "charge", Key: "order-7", Args: Charge{Cents: 500}})
package handlertest
