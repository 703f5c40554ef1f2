// Package deadletters keeps the messages that were given up: [Box] is the DEAD stream, [Operator] puts its letters back
// into work or drops them.
//
// A letter has one subject, named after the handler, the message and its replay number, and is written only while there
// is nothing at that subject. So it cannot be there twice, whoever writes it and how often. A letter that was replayed
// or dropped is overwritten by a tombstone, which keeps the place taken: a run that was given up long ago and wakes up
// cannot bring the letter back.
//
// Who replays or drops a letter is decided in the database, by the inbox row of its key, in the transaction that also
// publishes the replay. The tombstone follows. When it is missing, because the operator's process ended in between, the
// next operator is told that the letter was replayed, and writes it.
package deadletters
