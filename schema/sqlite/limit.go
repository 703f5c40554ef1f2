package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"time"

	"github.com/millbridge/millbridge/schema"
)

// limitAge is how long the payload limit is believed before it is read again.
const limitAge = time.Minute

// Two ways to read the payload limit. In a caller's transaction it is read by a statement that writes: a SELECT would
// pin a deferred transaction to the present state of the database, and its first write would fail if another commit
// came between.
const (
	limitLocking = "UPDATE millbridge_meta SET max_payload = max_payload RETURNING max_payload"
	limitReading = "SELECT max_payload FROM millbridge_meta"
)

// payloadLimit remembers the database's payload limit.
type payloadLimit struct {
	mu    sync.Mutex
	bytes int
	read  time.Time
}

func (l *payloadLimit) get(ctx context.Context, q rowQueryer, query string, now time.Time) (int, error) {
	l.mu.Lock()
	bytes, age := l.bytes, now.Sub(l.read)
	l.mu.Unlock()
	if bytes > 0 && age < limitAge {
		return bytes, nil
	}
	if err := q.QueryRowContext(ctx, query).Scan(&bytes); err != nil {
		return 0, err
	}
	l.set(bytes, now)
	return bytes, nil
}

func (l *payloadLimit) set(bytes int, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bytes, l.read = bytes, now
}

// maxPayloadLimit is what nats-server can be configured to take at most.
const maxPayloadLimit = 64 << 20

// SetMaxPayload sets the largest payload in bytes that may be published to this database. Other processes follow within
// a minute.
func (s *Store) SetMaxPayload(ctx context.Context, bytes int) error {
	if bytes < 1 || bytes > maxPayloadLimit {
		return schema.WithKind(schema.Permanent, fmt.Errorf(
			"set payload limit: %d bytes is not between 1 and %d, which is as much as nats-server can be set to", bytes, maxPayloadLimit))
	}
	err := s.update(ctx, "set payload limit", func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "UPDATE millbridge_meta SET max_payload = ?", bytes)
		return err
	})
	if err == nil {
		s.limit.set(bytes, s.opts.Now())
	}
	return err
}
