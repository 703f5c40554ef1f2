package webhook

import (
	"context"
	"database/sql"
	"errors"
	"sync"
)

// ErrInProgress reports a message that is being taken at this moment. The sender is asked to try again.
var ErrInProgress = errors.New("the message is being taken at this moment")

// A Ledger remembers which messages a [Receiver] has taken, by their webhook-id.
type Ledger interface {
	// Once calls take unless the id was taken before, and says whether it is the first time. An id is taken when take has
	// returned nil; if it returns an error, or panics, it is as if there had been no call. The context that take gets is
	// the request's.
	Once(ctx context.Context, id string, take func(ctx context.Context) error) (first bool, err error)
}

// Memory is a [Ledger] in the memory of one process: it forgets everything when the process ends, so what is taken must
// be harmless to take twice. Beyond its size the oldest ids are forgotten. Make it large enough for as long as senders
// try again, and at least for what comes in during the receiver's tolerance.
type Memory struct {
	size int

	mu    sync.Mutex
	taken map[string]bool // false: in progress
	order []string        // the taken ones, a ring
	next  int             // where in order the oldest one is
}

// NewMemory returns a ledger of the last size messages.
func NewMemory(size int) *Memory { return &Memory{size: max(size, 1), taken: make(map[string]bool)} }

// Once is that of [Ledger]. It returns [ErrInProgress] for a message that another request is taking.
func (m *Memory) Once(ctx context.Context, id string, take func(ctx context.Context) error) (first bool, err error) {
	m.mu.Lock()
	done, known := m.taken[id]
	if !known {
		m.taken[id] = false
	}
	m.mu.Unlock()
	switch {
	case done:
		return false, nil
	case known:
		return false, ErrInProgress
	}
	kept := false
	defer func() { m.end(id, kept) }() // after a panic, too
	if err := take(ctx); err != nil {
		return true, err
	}
	kept = true
	return true, nil
}

func (m *Memory) end(id string, kept bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case !kept:
		delete(m.taken, id)
		return
	case len(m.order) < m.size:
		m.order = append(m.order, id)
	default:
		delete(m.taken, m.order[m.next])
		m.order[m.next] = id
		m.next = (m.next + 1) % m.size
	}
	m.taken[id] = true
}

// InTx returns a [Ledger] in the receiver's own database: the handler finds a transaction with [Tx], and what it writes
// commits together with the note that the message was taken, or not at all. note writes the id into a table in which it is
// unique and reports whether it is new:
//
//	func note(ctx context.Context, tx *sql.Tx, id string) (bool, error) {
//		res, err := tx.ExecContext(ctx, "INSERT INTO taken_webhooks (id) VALUES ($1) ON CONFLICT DO NOTHING", id)
//		if err != nil {
//			return false, err
//		}
//		n, err := res.RowsAffected()
//		return n == 1, err
//	}
//
// Two requests with one id wait for each other in the database. For other drivers, write a [Ledger] of these few lines.
func InTx(db *sql.DB, note func(ctx context.Context, tx *sql.Tx, id string) (first bool, err error)) Ledger {
	return txLedger{db, note}
}

type txLedger struct {
	db   *sql.DB
	note func(ctx context.Context, tx *sql.Tx, id string) (bool, error)
}

type txKey struct{}

// Tx returns the transaction that a request is handled in; ok is false if its [Ledger] is not that of [InTx].
func Tx(ctx context.Context) (tx *sql.Tx, ok bool) {
	tx, ok = ctx.Value(txKey{}).(*sql.Tx)
	return tx, ok
}

func (l txLedger) Once(ctx context.Context, id string, take func(ctx context.Context) error) (first bool, err error) {
	tx, err := l.db.BeginTx(ctx, nil)
	if err != nil {
		return false, err
	}
	defer tx.Rollback() //nolint:errcheck // after a commit there is nothing left to do
	first, err = l.note(ctx, tx, id)
	if err != nil || !first {
		return false, err
	}
	if err := take(context.WithValue(ctx, txKey{}, tx)); err != nil {
		return true, err
	}
	return true, tx.Commit()
}
