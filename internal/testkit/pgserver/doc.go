// Package pgserver runs throwaway PostgreSQL servers for tests: one directory, one free loopback port, one random
// password, gone when its owner ends, however it ends.
//
// It is used by internal/testkit, for one server per test binary, and by internal/testrun, for one server per run.
package pgserver
