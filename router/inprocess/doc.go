// Package inprocess is a queue and dispatcher in the memory of one process, for tests, tools and work that may be lost. It
// is called as the outbox is and runs the same handlers with the same policies, so a program can begin with it and move
// to the outbox by one line, where it is put together.
//
//	queue := inprocess.New[pgx.Tx](inprocess.Config{AllowLoss: true})
//	err := queue.Target(handlers.Target{Name: "mailer", Handler: mailer})
//	...
//	_, err = queue.Publish(ctx, tx, schema.NewJob("mailer", "send", mail))
//	...
//	err = queue.Run(ctx)
//
// # What it does not promise
//
// The transaction is IGNORED: a message is on its way as soon as Publish returns, whether the transaction commits, is
// rolled back or is still open, so a handler may run before the business rows are there, or for rows that never will be.
// Everything is lost when the process ends: what waits, what is scheduled, idempotency keys and dead letters. A message
// reaches its handler at most once across the end of a process. That is why [Queue.Run] refuses to run unless
// [Config.AllowLoss] says that this is meant, why a target with a job type that needs more than [schema.InMemory] is
// refused, and why publishers.RequireDurable refuses the queue.
//
// # What is as with the outbox and a bridge
//
//   - What is wrong with a message is found at Publish, with the same errors; idempotency keys stand for the first message
//     (for [Config.KeepKeys]); a due time or delay holds a message back.
//   - A job goes to its target, an event to each subscription that matches, none being fine. A job for an unknown target is
//     parked with the reason and counted; it goes on its way when a target of that name is there at the next run.
//   - The policy of a target or of a job type decides on retries, time, concurrency, rate and, with Ordered, on the order of
//     messages that share an ordering key: one that waits for its next attempt holds back those behind it.
//   - A key is handled once per handler. [handlers.Decide] says what becomes of a failure; what is given up is kept as a
//     dead letter, to be looked at with [Queue.DeadLetters] and to be replayed with [Queue.Replay].
//   - A job with a reply address has its outcome reported.
//
// Kept messages take memory, dead letters and parked ones too. When there are [Config.MaxMessages], Publish fails with
// [ErrFull].
//
// # Handlers in a transaction
//
// With [handlers.ModeTx] a handler runs in a transaction from [Config.Units], usually the Unit method of a store. What it
// publishes with handlers.Publish goes on its way, through this queue, when that transaction has committed.
//
// # Tests
//
// [Queue.DrainUntilEmpty] handles everything, later attempts and scheduled messages included, and returns the tally. With
// a clock that can be moved (handlertest.NewClock) nothing is waited for. The time limit of an attempt is always real
// time.
package inprocess
