package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millbridge/millbridge/schema"
)

// DefaultKeep is how long idempotency keys and finished inbox rows are kept unless [Options] say otherwise.
const DefaultKeep = 30 * 24 * time.Hour

// Options are the rarely changed settings of a [Store]. The zero value works.
type Options struct {
	// Logger gets what the store does on its own. Default: nothing is logged.
	Logger *slog.Logger
	// Keep is how long idempotency keys and finished inbox rows are kept. It must be longer than a message can take
	// from its publishing to its last redelivery or replay. Default: [DefaultKeep].
	Keep time.Duration
	// Now is the database's clock. Default: the machine's.
	Now func() time.Time
}

func (o Options) withDefaults() Options {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Keep <= 0 {
		o.Keep = DefaultKeep
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}

// A Store is the Millbridge part of one SQLite database. It is safe for concurrent use.
type Store struct {
	write *sql.DB
	read  *sql.DB
	opts  Options

	flushed atomic.Int64 // outbox rows up to this sequence are on disk
	limit   payloadLimit
	running sync.Map // hashes of the inbox keys that units of this store run

	compiled atomic.Pointer[map[string]*sql.Stmt] // the hot statements, by their text

	mu   sync.Mutex
	held *forwarderLock // nil until a shard is acquired
}

// New returns a store that writes through write and reads through read; it does no I/O. write has one connection with
// immediate transactions (_txlock=immediate), synchronous=FULL and journal_mode=WAL; read has several.
func New(write, read *sql.DB, opts Options) *Store {
	return &Store{write: write, read: read, opts: opts.withDefaults()}
}

// Close gives up what the store holds itself: the forwarder's file lock and compiled statements. It does not close the
// databases.
func (s *Store) Close() {
	s.unlockForwarder()
	if all := s.compiled.Swap(nil); all != nil {
		closeAll(*all)
	}
}

func (s *Store) now() int64 { return s.opts.Now().UnixNano() }

// clock is now as a time, as stored ones come back.
func (s *Store) clock() time.Time { return at(s.now()) }

// at turns a stored time into a time; 0 is the zero time.
func at(ns int64) time.Time {
	if ns == 0 {
		return time.Time{}
	}
	return time.Unix(0, ns).UTC()
}

// InTx runs f in a write transaction and commits it. An error or a panic of f rolls it back. The transaction holds the
// only writing connection: f must not call methods of the store that do not take the transaction, and must not wait for
// anything slow.
func (s *Store) InTx(ctx context.Context, f func(tx *sql.Tx) error) error {
	tx, err := s.begin(ctx)
	if err != nil {
		return wrap("begin transaction", err)
	}
	defer tx.Rollback() //nolint:errcheck // after a commit there is nothing to roll back
	if err := f(tx); err != nil {
		return blame(err)
	}
	return wrap("commit transaction", tx.Commit())
}

// update is InTx for our own writes; what says what they do.
func (s *Store) update(ctx context.Context, what string, f func(tx *sql.Tx) error) error {
	return wrap(what, s.InTx(ctx, f))
}

// queryer is what reading needs of a database or a transaction.
type queryer interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// collect reads all rows of a query.
func collect[T any](ctx context.Context, q queryer, scan func(*sql.Rows, *T) error, query string, args ...any) ([]T, error) {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var all []T
	for rows.Next() {
		var one T
		if err := scan(rows, &one); err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, rows.Err()
}

// affected runs a statement and returns how many rows it changed.
func affected(ctx context.Context, tx *sql.Tx, query string, args ...any) (int, error) {
	res, err := tx.ExecContext(ctx, query, args...)
	if err != nil {
		return 0, err
	}
	n, err := res.RowsAffected()
	return int(n), err
}

// list encodes values for json_each: one bind variable whatever their number.
func list[T int64 | string](values []T) string {
	if len(values) == 0 {
		return "[]"
	}
	b, err := json.Marshal(values)
	if err != nil {
		panic(err) // numbers and strings always encode
	}
	return string(b)
}

// Info returns what the database says about its outbox. An SQLite file is not bound to a place: a copy that forwards to
// the same streams is found by its cursor, which names an owner that this file never had.
func (s *Store) Info(ctx context.Context) (schema.OutboxInfo, error) {
	info := schema.OutboxInfo{Bound: true}
	var jobsGen, jobsShards, eventsGen, eventsShards int
	err := s.read.QueryRowContext(ctx, `SELECT outbox_id, max_payload, jobs_generation, jobs_shards, events_generation, events_shards
		FROM millbridge_meta`).Scan(&info.ID, &info.MaxPayload, &jobsGen, &jobsShards, &eventsGen, &eventsShards)
	info.Generation = map[schema.Stream]int{schema.Jobs: jobsGen, schema.Events: eventsGen}
	info.Shards = map[schema.Stream]int{schema.Jobs: jobsShards, schema.Events: eventsShards}
	return info, wrap("read outbox info", err)
}
