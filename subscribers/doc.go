// Package subscribers takes messages out of JetStream streams: [Subscriber] is a Watermill [message.Subscriber] over
// durable pull consumers.
//
// # What it promises
//
// A message is acknowledged only when whoever received it called Ack; nothing else removes it from its consumer, no
// matter what the message looks like. A message that Watermill's wire format cannot express is handed out like any
// other, with what arrived in its [Delivery].
//
// Never more messages are asked for than there are free places for them ([Config.MaxInFlight]), and the server is told
// every third of the ack wait that a message is still being worked on, so a slow handler does not see its messages
// handed to somebody else. Messages that are fetched but not handed out when the subscriber stops are given back at
// once.
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
// With [Config.Ordered] the server hands out one message at a time, over all processes that share the consumer, and
// the next one only after an ack: a message that waits for its next try holds back all that follow it.
package subscribers
