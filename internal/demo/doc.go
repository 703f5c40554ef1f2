// Package demo is a small shop on the embedded default: it shows in a few seconds what Millbridge does, and its code is
// meant to be read as an example.
//
// The shop (shop.go) commits each order together with its messages, in one transaction of its own database. Its targets
// (targets.go) are what applications write: one that works inside the database transaction, one that is flaky, one that
// is broken, one that is reached over HTTP, and a subscriber of events. Everything else (demo.go) opens the pieces,
// waits, replays a dead letter and reads the tally back.
package demo
