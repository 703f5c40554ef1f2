// Package saga runs work that takes several steps at several places, and takes back what it did when it cannot be
// finished.
//
// A [Definition] lists the steps. A step is a function of the saga's state; it makes no external call. It returns a
// [Result]: the state after it, why, and what others are to do. The state, a line in the saga's ledger and the jobs for
// the others commit in one transaction, so that a crash at any point leaves either all of a step or nothing of it.
//
// An [Intent] is told ([Tell]) or asked ([Ask]). A step that asks waits for the report: the answer reaches its OnReport,
// which may use it for the state. So nothing needs to be called from inside of a step. A step may also await a signal
// from outside ([OnSignal]), and has a time-out.
//
// A saga fails when a step returns [Fail] or a permanent error, has used up its attempts, is told that what it asked for
// was given up, or waits too long. Then the Undo of the steps done so far are called, last step first, each once. An
// Undo works like a step. One that fails leaves the saga stuck, with a dead letter; a replay of the letter goes on from
// there.
//
// The definition is an ordinary target ([Definition.Target]), and what starts or signals a saga is an ordinary job: it
// is published in the transaction of the caller.
package saga
