// Package testkit gives tests real backends: PostgreSQL, SQLite and NATS servers of their own, which are gone when the
// test ends.
//
// PostgreSQL is the server that MILLBRIDGE_TEST_POSTGRES_URL names (as a user who may create databases) or a throwaway
// server of this test binary, started from the binaries on this machine. NATS servers run in the test's process and are
// reached over real loopback TCP.
package testkit
