// Command bench measures Millbridge beside what else there is for the same work, in one run on one machine:
//
//	go run . [-scenario drain,consume] [-rounds 3] [-messages 100000] [-backlog 1000000] [-seconds 2] [-quick]
//	    [-json FILE] [-chart FILE] [-profile DIR]
//
// It starts a PostgreSQL and a NATS server of its own and lets all contenders of a scenario take turns, round after
// round, so that a slow spell of the machine hits all of them. Contenders are Millbridge; the stock Watermill assembly
// (watermill-sql, components/forwarder, watermill-nats); River with its defaults and tuned; and the raw limits, which
// are the same clients without what makes a message safe. What counts are the ratios within a round; in the end they are
// compared with what Millbridge aims for. Forwarders that drain run in processes of their own, whose memory is measured.
// The data is where TMPDIR says, by default on the disk; that of a quick run, whose figures mean nothing, in memory.
//
// After each run the messages are read back: their number, duplicates, and the order of each key. A run that lost,
// doubled or reordered one is a failed run, and the command fails with it.
//
// It is a module of its own so that River and the stock assembly are no dependencies of Millbridge.
package main
