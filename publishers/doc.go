// Package publishers puts messages into the outbox, in the caller's own database transaction. What commits with the
// business rows is sent; what is rolled back never existed. Nothing here talks to a broker: a forwarder does that later,
// in any process.
//
//	outbox := publishers.NewOutbox(postgres.New(pool, postgres.Options{}), publishers.Config{})
//	...
//	tx, err := pool.Begin(ctx)
//	... // business rows
//	_, err = outbox.Publish(ctx, tx, schema.NewJob("mailer", "send", mail), schema.NewEvent("order.placed", order))
//	... // commit
//
// An [Outbox] works with the transactions of its [Store]: pgx.Tx with postgres.New, *sql.Tx with postgres.New(...).SQL()
// and with sqlite.New. In a savepoint, messages go the way of the savepoint. To send the insert along in a pgx.Batch of
// your own, use the store's AppendBatch.
//
// # Faults
//
// Everything that would keep a message from being sent is found when it is published: names, keys, sizes and headers.
// The error is a [*schema.ValidationError] for each bad message, joined, with every fault's field, length and limit;
// nothing is written, and the transaction can go on. Two errors are for the whole transaction: with
// [schema.ErrRetryTransaction] the database wants it to be run again from the start, and [schema.ErrKeyReused] reports
// an idempotency key that stands for other content.
//
// # Order
//
// Messages with an ordering key hold a lock on that key until their transaction ends. Publish several of them in one
// call: locks taken by one call cannot deadlock with those of another, locks taken one by one can.
//
// # Durability
//
// A job type says which is the weakest path that it may take. [Require] refuses to start a program whose path gives less,
// and names the weak wire; [RequireDurable] refuses the in-process queue whatever the job types say. Code that publishes
// through the interface [Publisher] works with that queue and with an outbox.
//
// # Watermill
//
// [Outbox.Publisher] is a Watermill message.Publisher for one transaction, so cqrs.EventBus and cqrs.CommandBus work
// with it unchanged. Topics are jobs.<target>.<action>, events.<name> and events.public.<name>; options that a Watermill
// message has no place for, such as an ordering key or a tenant, come with [schema.ContextWithOptions].
package publishers
