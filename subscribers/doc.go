// Package subscribers takes messages out of JetStream streams: [Subscriber] is a Watermill [message.Subscriber] over
// durable pull consumers.
//
// # What it promises
//
// A message is acknowledged only when whoever received it called Ack; nothing else removes it from its consumer, no
// matter what the message looks like. A message that Watermill's wire format cannot express is handed out like any
// other, with what arrived in its [Delivery].
//
// Never more messages are handed out than [Config.MaxInFlight]. As many more are asked for as were settled in the last 20
// milliseconds, at most 512, so that quick handlers are never idle; slow ones have none that wait here and could be with
// another process. The server is told every third of the ack wait that a message is still in hand, so neither a slow
// handler nor one that waits sees its messages handed to somebody else. Messages that are fetched but not handed out when
// the subscriber stops are given back at once.
//
// The context of a message does not end with the subscription: a handler that runs when the subscriber is closed may
// finish and acknowledge, up to [Config.CloseTimeout].
//
// # Coming back
//
// A consumer or stream that is deleted, a server that restarts and a connection that breaks end nothing: the
// subscription keeps trying, and [Subscriber.Health] says what is wrong until it works again. Consumers are durable
// and are never deleted by this package.
//
// # Order
//
// With an [Order] one process at a time consumes. It has a window of messages in hand and hands out the first of each key;
// the next one of the key follows only after an ack. A message that is nacked waits here for its next try and holds back
// those behind it with the same key, and no others. It is handed out again with [Delivery.Delivered] one higher; the
// server does not hear of it.
//
// Nothing is handed out while the server counts a message as handed out that is not in hand here. The server numbers
// what it hands out, so a process notices when another one gets something, whatever it believes about its lease.
package subscribers
