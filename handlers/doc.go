// Package handlers is what the author of a target writes against. It knows neither the broker nor the router, and
// brings in nothing but the standard library.
//
// # A target
//
// A job asks one target for one action. Who publishes it and who handles it agree on a [schema.JobType], a variable that
// both import; [OnJob] gives it its function, and a [Target] gives the functions a name and a [Policy]:
//
//	var Charge = schema.JobType[ChargeArgs]{Target: "billing", Action: "charge"}
//
//	func New(client *Client) handlers.Target {
//		var actions handlers.Actions
//		handlers.OnJob(&actions, Charge, func(ctx context.Context, args ChargeArgs, key string) error {
//			return client.Charge(ctx, key, args)
//		})
//		return handlers.Target{Name: "billing", Handler: &actions}
//	}
//
// Hand it to a bridge (package router), which runs it for the messages of the outbox, or to the queue of
// router/inprocess. Events are the same with [schema.EventType], [OnEvent] and [Subscription]: each subscription gets
// each event once, and none at all is fine. A [Handler] of your own, without [Actions], gets the whole envelope.
//
// A payload that does not fit the arguments is a permanent [*ArgsError] that names the place ("lines[2].price"); so is an
// action that the target does not have. Jobs for a target that nobody runs wait in their stream, and status names them.
//
// # At least once, and the key
//
// A handler is called at least once for each message. It is called again when it fails, and also when it has succeeded
// but nobody could note that: the process died between the effect and the note, the connection to the database was cut,
// an operator replayed the message. Every one of these runs has the same idempotency key. It comes with the message,
// never from the payload, and is passed to the function.
//
// A second run must do no harm. There are three ways, and the first that is possible is the one to take:
//
//   - The other side honours the key: send it along (Idempotency-Key, a RequestId), as it is.
//   - The request is idempotent by itself: it sets a state, as PUT does, and does not add to one.
//   - Look before you send: ask the other side whether there is something under the key, and send only if not. Write the
//     key where it can be found again. [CallFrom] tells first attempts from others, but a first attempt may come after a
//     run that nobody heard of: always look.
//
// What is written to the same database needs none of this: see the next section. CheckIdempotent of package
// handlers/handlertest runs a handler in all these ways and says whether it holds.
//
// # Modes
//
// [Policy.Mode] says how a key is kept from being handled twice:
//
//   - [ModeLease], the default, is for effects outside the database. A lease in the database keeps two runs of a key apart,
//     and the key is marked as done after the handler has returned nil. Only a crash between the two repeats a run that
//     succeeded.
//   - [ModeTx] is for effects inside the database. The handler runs in the transaction that marks the key as done: what it
//     writes with [Tx] and publishes with [Publish] commits with that mark, exactly once, or not at all. A run that was
//     thought dead and comes back cannot commit. Do not call other systems from it: the transaction would wait for them,
//     and a rollback does not take their effects back. Publish a job that calls them instead.
//   - [ModeNone] keeps no book of what succeeds. Only for what is harmless to repeat, at the same time too.
//
// # What an error says
//
// The kind of the returned error decides what happens next; [Decide] is the rule. Errors keep their kind when they are
// wrapped with %w, and the outermost mark counts.
//
//   - nil: done.
//   - [Permanent]: trying again is useless. The message becomes a dead letter, whole and with its reason, until somebody
//     replays or drops it.
//   - [RetryAfter]: again after the wait that the other side asked for; it counts as an attempt.
//   - [Snooze]: not ready yet, again after a wait; it costs no attempt.
//   - [Cancel]: nobody wants it any more. Done with, its reason kept, no dead letter.
//   - [Gone]: whom the target calls wants no more messages. The target is disabled if its [Breaker] disables at all; the
//     message waits until it is enabled. Else as Permanent.
//   - any other error, a panic, the end of the attempt's time: again by the retry policy, a dead letter when the attempts
//     are used up.
//
// Return soon when ctx ends. If it ended because the process stops or somebody else has taken the message over, return
// the error of ctx: the run costs no attempt.
//
// # Policies
//
// The zero [Policy] makes 12 attempts within about half an hour, 30 seconds each, 10 at the same time in each
// process. A target can have its own retries, time, concurrency, a rate over all processes, a [Breaker] that stops
// calling what is down and disables what does not come back, and Ordered, which keeps messages with one ordering key in order through retries. A job type can
// have its own retries and time, which count before the target's, and the weakest path that it may take
// ([schema.Durability]): a bridge or queue that offers less refuses to run it.
//
// # What a handler knows
//
// [CallFrom] returns the [Call] that a context belongs to: handler, id, key, attempt, replay, tenant, actor, request,
// trace and deadline. [Attempt] and [Key] are short for two of them. [Inherit] hands tenant, actor, request and trace on
// to a message that the handler makes; [Publish] does so by itself.
//
// # Reporting back
//
// Whoever needs the answer of another system publishes the job with [schema.WithReplyTo] and goes on. The handler
// answers with [Report]; when it has succeeded, or was given up or cancelled, a job with a [schema.Outcome] goes to the
// address that was given, committed together with the job's own end. Package handlers/saga is built on this.
//
// # Clients and settings
//
// Make a target's client once, where the target is made. Package handlers/outbound has HTTP clients that share their
// connections and refuse addresses inside; package handlers/configgroup reads a target's settings from variables like
// MILLBRIDGE_BILLING_BASE_URL. Package handlers/webhook is a whole target.
//
// # Tests
//
// A function that takes (ctx, args, key) is tested by calling it. [WithCall] makes the context of a run, and [ReportOf]
// returns its report. Package handlers/handlertest has recording fakes, a clock and the check for idempotency;
// router/inprocess runs targets without a database. The program in examples/target has all of it, and docs/handlers.md
// goes through it step by step.
package handlers
