package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millbridge/millbridge/schema"
)

// outageOf returns which outage err stands for, one of the errors that are [schema.ErrUnavailable], or nil.
func outageOf(err error) error {
	var answer *pgconn.PgError
	var connect *pgconn.ConnectError
	var network net.Error
	switch {
	case err == nil, errors.Is(err, schema.ErrUnavailable), errors.Is(err, context.Canceled):
		return nil // or known already
	case errors.As(err, &answer):
		if known := outageByCode(answer); known != nil || !errors.As(err, &connect) {
			return known
		}
		return schema.ErrUnreachable
	case errors.As(err, &connect):
		return schema.ErrUnreachable
	case errors.Is(err, context.DeadlineExceeded):
		return schema.ErrNoAnswer
	case errors.As(err, &network), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed),
		strings.Contains(err.Error(), "conn closed"): // pgx has no error of its own for it
		return schema.ErrUnreachable
	}
	return nil
}

// outageByCode knows the server's own words for it (SQLSTATE).
func outageByCode(answer *pgconn.PgError) error {
	switch answer.Code {
	case "57P01", "57P02", "57P03", "57P05": // it stops, has crashed, does not take us yet, threw us out
		return schema.ErrUnreachable
	case "25006":
		return schema.ErrReadOnly
	case "53100":
		return schema.ErrNoSpace
	case "53300":
		return schema.ErrNoConns
	case "58030":
		return schema.ErrIO
	}
	switch {
	case strings.HasPrefix(answer.Code, "08"):
		return schema.ErrUnreachable
	case strings.HasPrefix(answer.Code, "53"): // out of memory, of locks
		return schema.ErrUnavailable
	case (answer.Code == "55000" || answer.Code == "0A000") && strings.Contains(answer.Message, "recovery"): // a standby
		return schema.ErrReadOnly
	}
	return nil
}

// failed is wrap for answers of the pool. It also has the pool make new connections when the one that answered cannot
// write: it may lead to a standby, or carry a setting that was changed since.
func (s *Store) failed(doing string, err error) error {
	if err == nil {
		return nil
	}
	if stat := s.pool.Stat(); errors.Is(err, context.DeadlineExceeded) && stat.AcquiredConns() >= stat.MaxConns() {
		err = schema.WithKind(schema.Temporary, fmt.Errorf("%s: %w (%d, the pool has no more): %w", doing, schema.ErrNoConns, stat.MaxConns(), err))
	} else {
		err = wrap(doing, err)
	}
	s.reconnect(err)
	return err
}

// reconnectEvery keeps a database that is read-only for long from being asked for new connections all the time.
const reconnectEvery = time.Second

func (s *Store) reconnect(err error) {
	if !errors.Is(err, schema.ErrReadOnly) {
		return
	}
	now := time.Now().UnixNano()
	last := s.reconnected.Load()
	if now-last > int64(reconnectEvery) && s.reconnected.CompareAndSwap(last, now) {
		s.pool.Reset()
	}
}

// broken says of the error with which the work in a transaction has ended whether the database is to blame: the
// transaction is lost with its connection, or the server could not go on with it.
func (s *Store) broken(ctx context.Context, tx pgx.Tx, err error) error {
	conn := tx.Conn().PgConn()
	outage := outageOf(err)
	switch {
	case ctx.Err() != nil, errors.Is(err, schema.ErrUnavailable):
	case conn.IsClosed():
		err = fmt.Errorf("%w: %w", schema.ErrUnreachable, err)
	case outage != nil && conn.TxStatus() == 'E':
		err = fmt.Errorf("%w: %w", outage, err)
	}
	s.reconnect(err)
	return err
}

// rollbackTimeout is for a server that does not answer any more: without an end nobody would notice.
const rollbackTimeout = 5 * time.Second

// rollback ends a transaction that was not committed, or its connection. After a commit it does nothing.
func rollback(ctx context.Context, tx pgx.Tx) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
	defer cancel()
	_ = tx.Rollback(ctx) // if it fails, pgx closes the connection, which does the same
}
