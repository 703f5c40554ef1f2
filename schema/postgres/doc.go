// Package postgres keeps Millbridge's tables in PostgreSQL 14 or newer and holds every statement that touches them.
//
// All tables live in the database schema "millbridge" and are always named with it, so the search path does not
// matter. No statement depends on the state of a session: locks end with their transaction, nothing listens, and all
// parameters are cast. The package therefore works behind a pooler in transaction mode, with any of pgx's query
// execution modes that such a pooler allows (exec, simple_protocol, cache_describe).
//
// # Isolation levels
//
// Publishing works at every isolation level. At REPEATABLE READ and above, an explicit idempotency key that another
// transaction has committed since the caller's snapshot was taken cannot be compared with; such a publish fails with
// [schema.ErrRetryTransaction] in place of giving back the first message, and succeeds when the whole transaction is
// run again. The same error reports deadlocks, which are possible when one transaction publishes ordered messages or
// explicit keys in several calls: publish those in one call.
package postgres
