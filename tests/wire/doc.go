// Package wire follows docs/wire.md: the program in it reads what the outbox and the forwarder have put into the streams.
package wire
