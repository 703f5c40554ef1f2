// Package sqlite keeps the outbox, the forwarder's ledger and the inbox in SQLite. Every statement for SQLite is here.
//
// It uses database/sql only; the driver is the caller's. Tables are named millbridge_*, times are integers (nanoseconds
// since 1970), ids are 16-byte blobs.
//
// # One writer
//
// SQLite has one writer at a time, so sequence order is commit order: there are no late commits and no leases. Two
// processes must not forward one file; [Store.Acquire] holds a lock on a file beside the database for that. The clock
// is the machine's, which all users of the file share.
//
// Transactions of this package are short and never wait for anything but the disk, so the application's own writes are
// held up by milliseconds. A [Store.Unit] takes the write lock when it first writes, not while its handler prepares.
//
// # Durability
//
// A row must not be sent before its commit is on disk, or a power cut makes a message that no transaction wrote. The
// application's connection may run with synchronous=NORMAL, whose commits are not; so [Reader.Read] first makes an own
// commit with synchronous=FULL, which flushes all earlier ones, whenever it has found rows that none of its own commits
// has covered. synchronous=OFF on any connection gives that up.
package sqlite
