package postgres

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millbridge/millbridge/schema"
)

// limitAge is how long the payload limit is believed before it is read again.
const limitAge = time.Minute

// payloadLimit remembers the database's payload limit.
type payloadLimit struct {
	asks sync.Mutex // held by who asks aside

	mu    sync.Mutex
	bytes int
	read  time.Time
}

func (l *payloadLimit) get() (bytes int, fresh bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.bytes, l.bytes > 0 && time.Since(l.read) < limitAge
}

func (l *payloadLimit) set(bytes int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bytes, l.read = bytes, time.Now()
}

// maxPayload returns the limit, read in the caller's transaction if it is not known.
func (s *Store) maxPayload(ctx context.Context, r runner) (int, error) {
	bytes, fresh := s.limit.get()
	if fresh {
		return bytes, nil
	}
	err := r.run(ctx, statement{sql: sqlMaxPayload, each: scan(&bytes)})
	if err != nil {
		return 0, wrap("read payload limit", err)
	}
	s.limit.set(bytes)
	return bytes, nil
}

// limitAside returns the limit, read over a connection of its own if it is not known: who asks may hold the last one of the
// pool.
func (s *Store) limitAside() (bytes int, err error) {
	s.limit.asks.Lock()
	defer s.limit.asks.Unlock()
	if bytes, fresh := s.limit.get(); fresh {
		return bytes, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), limitWait)
	defer cancel()
	cfg := s.pool.Config()
	if cfg.BeforeConnect != nil {
		if err := cfg.BeforeConnect(ctx, cfg.ConnConfig); err != nil {
			return 0, wrap("read payload limit", err)
		}
	}
	conn, err := pgx.ConnectConfig(ctx, cfg.ConnConfig)
	if err != nil {
		return 0, wrap("read payload limit", err)
	}
	defer conn.Close(ctx)
	return s.maxPayload(ctx, pgxRunner{conn})
}

// limitWait bounds the look for the payload limit of those who have no context to pass.
const limitWait = 5 * time.Second

const sqlMaxPayload = `SELECT max_payload FROM millbridge.meta`

// mostPayload is what nats-server can be configured to take at most.
const mostPayload = 64 << 20

// SetMaxPayload sets the largest payload in bytes that may be published to this database. Other processes follow
// within a minute.
func (s *Store) SetMaxPayload(ctx context.Context, bytes int) error {
	if bytes < 1 || bytes > mostPayload {
		return fmt.Errorf("set payload limit: %d bytes is not between 1 and %d, which is as much as nats-server can be set to", bytes, mostPayload)
	}
	tag, err := s.pool.Exec(ctx, `UPDATE millbridge.meta SET max_payload = $1::integer`, bytes)
	if err != nil {
		return wrap("set payload limit", err)
	}
	if tag.RowsAffected() == 0 {
		return fmt.Errorf("set payload limit: %w", schema.ErrNotMigrated)
	}
	s.limit.set(bytes)
	return nil
}
