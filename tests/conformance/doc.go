// Package conformance holds tests of the whole path, outbox to subscriber, against suites that others wrote.
package conformance
