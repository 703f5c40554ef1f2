// Package embedded is the default that needs no installation: SQLite and a NATS server with JetStream in this process,
// both in one data directory.
//
// The directory is for its owner only. It holds
//
//	lock             locked while a process runs here, with the process's number
//	millbridge.json  how to connect to it: address, token, process; only there while it runs
//	millbridge.db    the database (and its -wal, -shm and -forwarder.lock)
//	nats/            the streams
//
// One process runs the directory ([Open]); others connect to it ([Find], [Attach]): to the database file directly and
// to the server over loopback TCP with the token.
//
// Commits and stored messages are on disk before they are acknowledged: SQLite runs with synchronous=FULL, the server
// with SyncAlways.
package embedded
