package proof

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millbridge/millbridge/schema"
)

// A Book is kept in the tables of the application, in the same transactions as its messages: it cannot be wrong about
// what was committed, whatever the application was told. It goes with the database through crashes, restores and
// fail-overs. It is safe for concurrent use.
type Book struct {
	pool        *pgxpool.Pool // PostgreSQL
	write, read *sql.DB       // SQLite
}

// OnPostgres keeps the book in a PostgreSQL database; see [Book.Create].
func OnPostgres(pool *pgxpool.Pool) *Book { return &Book{pool: pool} }

// OnSQLite keeps the book in an SQLite database; see [Book.Create].
func OnSQLite(write, read *sql.DB) *Book { return &Book{write: write, read: read} }

const (
	createPostgres = `
		CREATE TABLE IF NOT EXISTS proof_committed (n bigserial PRIMARY KEY, id text NOT NULL, stream text NOT NULL, key text NOT NULL);
		CREATE TABLE IF NOT EXISTS proof_effects (n bigserial PRIMARY KEY, handler text NOT NULL, key text NOT NULL, id text NOT NULL)`
	createSQLite = `
		CREATE TABLE IF NOT EXISTS proof_committed (n integer PRIMARY KEY AUTOINCREMENT, id text NOT NULL, stream text NOT NULL, key text NOT NULL);
		CREATE TABLE IF NOT EXISTS proof_effects (n integer PRIMARY KEY AUTOINCREMENT, handler text NOT NULL, key text NOT NULL, id text NOT NULL)`
	enterEffect = `INSERT INTO proof_effects (handler, key, id) VALUES ($1, $2, $3)`
	// Numbers are drawn in the order of the arrays. Within an ordering key that is the order of commits, because the
	// key's lock was taken before and is held until the commit.
	enterPostgres = `
		INSERT INTO proof_committed (id, stream, key)
		SELECT id, stream, key FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY AS t (id, stream, key, i) ORDER BY i`
)

// Create makes the tables, unless they are there.
func (b *Book) Create(ctx context.Context) error {
	var err error
	if b.pool != nil {
		_, err = b.pool.Exec(ctx, createPostgres)
	} else {
		_, err = b.write.ExecContext(ctx, createSQLite)
	}
	return wrap("create the book", err)
}

// orderOf is the scope in which messages keep their order; empty for messages without one.
func orderOf(e schema.Envelope) string {
	if e.OrderingKey == "" {
		return ""
	}
	return fmt.Sprintf("%s/%s/%s/%s", e.Stream(), e.Tenant, e.Target, e.OrderingKey)
}

// EnterPostgres notes that tx publishes envs. Call it after they were published, in the order of the call; leave out
// those whose receipt says that they existed.
func (b *Book) EnterPostgres(ctx context.Context, tx pgx.Tx, envs ...schema.Envelope) error {
	var ids, streams, keys []string
	for _, e := range envs {
		ids, streams, keys = append(ids, e.ID), append(streams, string(e.Stream())), append(keys, orderOf(e))
	}
	_, err := tx.Exec(ctx, enterPostgres, ids, streams, keys)
	return wrap("enter into the book", err)
}

// EnterSQLite is EnterPostgres for SQLite.
func (b *Book) EnterSQLite(ctx context.Context, tx *sql.Tx, envs ...schema.Envelope) error {
	for _, e := range envs {
		_, err := tx.ExecContext(ctx, `INSERT INTO proof_committed (id, stream, key) VALUES ($1, $2, $3)`, e.ID, string(e.Stream()), orderOf(e))
		if err != nil {
			return wrap("enter into the book", err)
		}
	}
	return nil
}

// EffectPostgres notes, in the handler's transaction, that handler has had its effect for an idempotency key.
func (b *Book) EffectPostgres(ctx context.Context, tx pgx.Tx, handler, key, id string) error {
	_, err := tx.Exec(ctx, enterEffect, handler, key, id)
	return wrap("note the effect", err)
}

// EffectSQLite is EffectPostgres for SQLite.
func (b *Book) EffectSQLite(ctx context.Context, tx *sql.Tx, handler, key, id string) error {
	_, err := tx.ExecContext(ctx, enterEffect, handler, key, id)
	return wrap("note the effect", err)
}

// An Effect is what a handler did for a key.
type Effect struct{ Handler, Key, ID string }

// Effects returns all effects that were committed, in their order.
func (b *Book) Effects(ctx context.Context) (all []Effect, err error) {
	err = b.query(ctx, `SELECT handler, key, id FROM proof_effects ORDER BY n`, func(scan func(...any) error) error {
		var e Effect
		all = append(all, e)
		last := &all[len(all)-1]
		return scan(&last.Handler, &last.Key, &last.ID)
	})
	return all, wrap("read the effects", err)
}

// EffectsInOrder returns the messages whose effect came after that of one that committed later with the same ordering
// key.
func (b *Book) EffectsInOrder(ctx context.Context, handler string) (reordered []string, err error) {
	const query = `
		SELECT id FROM (
			SELECT e.id, c.n, max(c.n) OVER (PARTITION BY c.key ORDER BY e.n) AS last
			  FROM proof_effects AS e JOIN proof_committed AS c ON c.id = e.id WHERE e.handler = $1 AND c.key <> ''
		) AS t WHERE n < last`
	err = b.query(ctx, query, func(scan func(...any) error) error {
		reordered = append(reordered, "")
		return scan(&reordered[len(reordered)-1])
	}, handler)
	return reordered, wrap("read the order of effects", err)
}

// An InboxRow is what the database says about one message and one handler.
type InboxRow struct {
	Handler, MessageID, State string
	Attempts, Replay          int
}

// Inbox returns the rows of the inbox.
func (b *Book) Inbox(ctx context.Context) (all []InboxRow, err error) {
	table := "millbridge.inbox"
	if b.pool == nil {
		table = "millbridge_inbox"
	}
	err = b.query(ctx, `SELECT handler, message_id, state, attempts, replay FROM `+table, func(scan func(...any) error) error {
		var r InboxRow
		err := scan(&r.Handler, &r.MessageID, &r.State, &r.Attempts, &r.Replay)
		all = append(all, r)
		return err
	})
	return all, wrap("read the inbox", err)
}

// Committed returns how many messages of a stream are in the book. It waits for transactions that are about to enter
// something, also for those of processes that were killed.
func (b *Book) Committed(ctx context.Context, stream schema.Stream) (n int64, err error) {
	const query = `SELECT count(*) FROM proof_committed WHERE stream = $1`
	if b.pool != nil {
		err = pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, `LOCK TABLE proof_committed IN SHARE MODE`); err != nil {
				return err
			}
			return tx.QueryRow(ctx, query, string(stream)).Scan(&n)
		})
	} else { // its transactions are writers from their start, and there is one writer at a time
		err = b.write.QueryRowContext(ctx, query, string(stream)).Scan(&n)
	}
	return n, wrap("count the book", err)
}

// A record is a committed message.
type record struct{ id, stream, key string }

func (b *Book) committed(ctx context.Context) (all []record, err error) {
	err = b.query(ctx, `SELECT id, stream, key FROM proof_committed ORDER BY n`, func(scan func(...any) error) error {
		all = append(all, record{})
		last := &all[len(all)-1]
		return scan(&last.id, &last.stream, &last.key)
	})
	return all, wrap("read the book", err)
}

// waiting returns the ids of the rows that are in the database's tables.
func (b *Book) waiting(ctx context.Context) (map[string]string, error) {
	where := make(map[string]string)
	for _, table := range []string{"outbox", "scheduled", "parked"} {
		query := `SELECT id::text FROM millbridge.` + table
		if b.pool == nil {
			query = `SELECT lower(hex(id)) FROM millbridge_` + table
		}
		err := b.query(ctx, query, func(scan func(...any) error) error {
			var id string
			if err := scan(&id); err != nil {
				return err
			}
			if len(id) == 32 {
				id = id[:8] + "-" + id[8:12] + "-" + id[12:16] + "-" + id[16:20] + "-" + id[20:]
			}
			where[id] = table
			return nil
		})
		if err != nil {
			return nil, wrap("read "+table, err)
		}
	}
	return where, nil
}

func (b *Book) query(ctx context.Context, query string, row func(scan func(...any) error) error, args ...any) error {
	if b.pool != nil {
		rows, err := b.pool.Query(ctx, query, args...)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			if err := row(rows.Scan); err != nil {
				return err
			}
		}
		return rows.Err()
	}
	rows, err := b.read.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := row(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

func wrap(what string, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}
