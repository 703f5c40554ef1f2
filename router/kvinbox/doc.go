// Package kvinbox remembers which keys were handled in a NATS KV bucket, for bridges that have no database.
//
// # Records
//
// The bucket is <PREFIX>_INBOX. A key of it is the hash of an inbox key in hexadecimal, its value the record as JSON. Every
// write says which revision it replaces, and the server refuses it if another was there first. So of two runs that both
// believe they hold a key one commits, whatever their clocks say: a run that stood still while its lease was taken over
// gets [schema.ErrLeaseLost].
//
// # Clocks
//
// No process's own clock is asked. A record says how long its lease, or the wait for the next attempt, is; it counts from
// the time at which the server stored the record. Whether it is over is judged by the time that the server tells when it
// is asked about the bucket, which only happens when a key is in other hands or waits. With several servers the bucket's
// leader tells both; when the lead changes, a difference between the servers' clocks makes a lease longer or shorter by as
// much. That can make two runs overlap. It cannot make both commit.
//
// # Limits
//
// There is no transaction: handlers in transaction mode, and jobs that are to report their outcome, need a database.
// Records expire as the stores delete them: after a time, unless the message was given up.
package kvinbox
