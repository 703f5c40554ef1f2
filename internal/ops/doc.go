// Package ops answers what operators ask and does what they order: status and health, where a message is, the
// conservation tally, and what happens to messages that were given up. The command line, and any other surface, renders
// its answers and adds nothing.
//
// Everything is read back from where it is kept - ledger, outbox, inbox and streams - and nothing is counted along the
// way, so the answers hold for processes that this one knows nothing about. What could not be read is said to be
// unknown; it never counts as zero.
package ops
