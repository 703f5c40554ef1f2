// Package router runs a bridge: it forwards the outbox to JetStream and calls the handlers of targets and subscriptions.
//
// A [Bridge] is opened on a store and a NATS connection, told its targets and subscriptions, and run:
//
//	bridge, err := router.Open(ctx, router.Config{Store: store, Conn: conn})
//	...
//	err = bridge.Target(handlers.Target{Name: "billing", Handler: billing})
//	...
//	err = bridge.Run(ctx) // until ctx ends
//
// # The way of a message
//
// Each target and subscription has durable consumers of its own. Its messages go through four Watermill middlewares,
// outermost first:
//
//   - settle decides what the broker hears: an ack, or when to hand the message out again. It records failures and
//     keeps what is given up as a dead letter.
//   - timeout gives each attempt its time.
//   - idempotency asks the inbox whether the message's key is handled, given up or in other hands, and marks it as
//     handled; by a lease or in the handler's own transaction (see [handlers.Mode]).
//   - recover turns a panic into an error.
//
// What becomes of a message is decided by [handlers.Decide] from the policy, the number of the attempt and the kind of the
// error. Giving up goes in three steps, each of which may be repeated: the inbox records the verdict, the dead letter is
// written, the message is acked. A message that is not one of ours becomes a dead letter whole.
//
// # Stopping
//
// When the context of [Bridge.Run] ends, nothing new is taken, and handlers that run keep a live context and have
// [Config.CloseTimeout] to finish. Then their contexts end, their messages come back later, and Run says how many.
package router
