package dbdown

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/internal/testkit/proof"
	"github.com/millbridge/millbridge/publishers"
	"github.com/millbridge/millbridge/publishers/jetstream"
	"github.com/millbridge/millbridge/router"
	"github.com/millbridge/millbridge/schema"
	"github.com/millbridge/millbridge/schema/sqlite"
)

// A shop is an application's SQLite file, opened.
type shop struct {
	write, read *sql.DB
	store       *sqlite.Store
	book        *proof.Book
}

// openShop opens a file whose writers wait so long for each other.
func openShop(t *testing.T, file string, patience time.Duration, now func() time.Time) *shop {
	t.Helper()
	open := func(more string, conns int) *sql.DB {
		dsn := fmt.Sprintf("file:%s?_pragma=busy_timeout(%d)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)", file, patience.Milliseconds())
		db, err := sql.Open("sqlite", dsn+more)
		if err != nil {
			t.Fatal(err)
		}
		db.SetMaxOpenConns(conns)
		db.SetMaxIdleConns(conns)
		if err := db.PingContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		return db
	}
	s := &shop{write: open("&_txlock=immediate", 1)}
	s.read = open("&_pragma=query_only(1)", 4)
	t.Cleanup(s.close)
	s.store = sqlite.New(s.write, s.read, sqlite.Options{Logger: logger(t), Now: now})
	if _, _, err := s.store.MigrateUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.book = proof.OnSQLite(s.write, s.read)
	if err := s.book.Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.write.ExecContext(t.Context(), `CREATE TABLE IF NOT EXISTS ballast (data BLOB)`); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *shop) close() {
	s.store.Close()
	_ = s.read.Close()
	_ = s.write.Close()
}

// onSQLite is onPostgres for a file.
func onSQLite(t *testing.T, s *shop, conn *nats.Conn, now func() time.Time, edits ...func(*router.Config)) *world {
	t.Helper()
	outbox := publishers.NewOutbox(s.store, publishers.Config{Now: now})
	w := &world{t: t, book: s.book, conn: conn}
	w.publish = func(ctx context.Context, envs ...schema.Envelope) error {
		return s.store.InTx(ctx, func(tx *sql.Tx) error {
			if _, err := outbox.Publish(ctx, tx, envs...); err != nil {
				return err
			}
			return s.book.EnterSQLite(ctx, tx, envs...)
		})
	}
	w.effect = func(ctx context.Context, handler, key, id string) error {
		tx, err := handlers.Tx[*sql.Tx](ctx)
		if err != nil {
			return err
		}
		return s.book.EffectSQLite(ctx, tx, handler, key, id)
	}
	w.large = func(ctx context.Context, bytes int) error {
		tx, err := handlers.Tx[*sql.Tx](ctx)
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, `INSERT INTO ballast (data) VALUES (zeroblob(?))`, bytes)
		return err
	}
	w.enter = func(effects []proof.Effect) error {
		return s.store.InTx(t.Context(), func(tx *sql.Tx) error {
			for _, e := range effects {
				if err := s.book.EffectSQLite(t.Context(), tx, e.Handler, e.Key, e.ID); err != nil {
					return err
				}
			}
			return nil
		})
	}
	w.used = func() (n int, err error) {
		err = s.read.QueryRowContext(t.Context(), `SELECT (SELECT count(*) FROM millbridge_parked) +
			(SELECT count(*) FROM millbridge_inbox WHERE attempts > 0 AND handler <> 'again')`).Scan(&n)
		return n, err
	}
	w.committed = func(stream schema.Stream) (ids []string, err error) {
		rows, err := s.read.QueryContext(t.Context(), `SELECT id FROM proof_committed WHERE stream = ?`, string(stream))
		if err != nil {
			return nil, err
		}
		defer rows.Close()
		for rows.Next() {
			var id string
			if err := rows.Scan(&id); err != nil {
				return nil, err
			}
			ids = append(ids, id)
		}
		return ids, rows.Err()
	}
	w.start(s.store, false, repairer(t, jetstream.RepairStoreOf(s.store), conn), edits...)
	return w
}

func realTime() time.Time { return time.Now() }

// Another process holds the only writer for longer than anybody waits for it.
func TestSQLite_is_busy(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "shop.db")
	patience := 300 * time.Millisecond
	if long {
		patience = 10 * time.Second // as the embedded default has it
	}
	s := openShop(t, file, patience, nil)
	other := openShop(t, file, patience, nil)
	w := onSQLite(t, s, testkit.NATS(t).Conn(t), realTime, pace())
	stop := w.produce(2, 50*time.Millisecond)
	var back []time.Duration
	for range times(2, 5) {
		pause(500 * time.Millisecond)
		var tx *sql.Tx
		testkit.Eventually(t, time.Minute, func() (err error) {
			tx, err = other.write.BeginTx(context.Background(), nil)
			return err
		})
		w.says(3*time.Minute, "health", "somebody else holds the database for too long")
		if err := w.publish(t.Context(), schema.NewJob("tx", "do", nil)); !errors.Is(err, schema.ErrRetryTransaction) || schema.KindOf(err) != schema.Temporary {
			t.Errorf("publishing while somebody else writes: %v", err)
		}
		<-time.After(3 * patience)
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
		back = append(back, w.recovers(time.Minute))
	}
	stop()
	w.well(3 * time.Minute)
	w.settled(3 * time.Minute)
	took(t, "busy", back)
}

// The file may not grow any more, as on a full disk: publishing fails, and so does a handler that needs more room than
// whatever leaves can make. When there is room again all goes on, with every attempt still to be had.
func TestSQLite_is_full(t *testing.T) {
	t.Parallel()
	s := openShop(t, filepath.Join(t.TempDir(), "shop.db"), 10*time.Second, nil)
	w := onSQLite(t, s, testkit.NATS(t).Conn(t), realTime, pace())
	stop := w.produce(2, 20*time.Millisecond)
	var back []time.Duration
	for range times(2, 10) {
		pause(500 * time.Millisecond)
		pages := pragma(t, s, `PRAGMA page_count`) + 500
		pragma(t, s, fmt.Sprint(`PRAGMA max_page_count = `, pages))
		size := pages * pragma(t, s, `PRAGMA page_size`)
		if err := w.publish(t.Context(), schema.NewJob("large", "do", size)); err != nil {
			t.Fatal(err)
		}
		w.fill(size)
		w.says(3*time.Minute, "health", "the disk of the database is full")
		pragma(t, s, `PRAGMA max_page_count = 1000000`)
		back = append(back, w.recovers(time.Minute))
	}
	stop()
	w.well(3 * time.Minute)
	w.settled(3 * time.Minute)
	took(t, "full", back)
}

func pragma(t *testing.T, s *shop, statement string) (n int) {
	t.Helper()
	if err := s.write.QueryRowContext(t.Context(), statement).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// fill publishes more than a database of so many bytes has room for, then half of it, and so on until it is full.
func (w *world) fill(size int) {
	w.t.Helper()
	const one = 100_000
	payload := []byte(strings.Repeat("x", one))
	for n, most := size/one+1, size/one+1; n > 0; n /= 2 {
		envs := make([]schema.Envelope, n)
		for i := range envs {
			envs[i] = schema.NewEvent("happened", payload)
		}
		err := w.publish(w.t.Context(), envs...)
		if full := errors.Is(err, schema.ErrNoSpace) && schema.KindOf(err) == schema.Temporary; !full && (n == most || err != nil) {
			w.t.Fatalf("%d bytes where there is room for less than %d: %v", n*one, size, err)
		}
	}
}

// The file is copied, work goes on, and the copy is put back: that is noticed, said and repaired; what was sent is not
// sent again and what was not is not lost.
func TestSQLite_is_copied_back(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "shop.db")
	conn := testkit.NATS(t).Conn(t)
	work := func(edits ...func(*router.Config)) (*shop, *world) {
		s := openShop(t, file, 10*time.Second, nil)
		return s, onSQLite(t, s, conn, realTime, edits...)
	}
	s, w := work()
	stop := w.produce(2, 5*time.Millisecond)
	pause(time.Second)
	stop()
	w.settled(3 * time.Minute)
	// What waits when the copy is made comes back with it, although it is sent after that.
	s2 := openShop(t, file, 10*time.Second, nil)
	s.close()
	s2.waiting(t, 40)
	s2.close()
	keep(t, file, file+".old")

	s, w = work()
	stop = w.produce(2, 5*time.Millisecond)
	pause(time.Second)
	stop()
	w.settled(3 * time.Minute)
	s.close()
	// One batch more, or the last cursor might still name all that was sent: then it is known to be, and is not sent again,
	// although what handlers made of it went back with the file.
	s, w = work()
	s.waiting(t, 1)
	w.settled(3 * time.Minute)
	s.close()
	keep(t, file+".old", file)

	s, w = work()
	w.says(3*time.Minute, "", "is stopped (")
	w.says(3*time.Minute, "status", "millbridge repair")
	s.waiting(t, 10)
	r := repairer(t, jetstream.RepairStoreOf(s.store), conn)
	lines := w.repaired(r, time.Minute)
	t.Logf("repaired: %q", lines)
	w.recovers(time.Minute)
	w.stop()
	w.enterLeased(t)
	report, err := w.book.Check(t.Context(), w.js, schema.Subjects{})
	if err != nil {
		t.Fatal(err)
	}
	// The book went back as well: it does not know what was published after the copy.
	t.Logf("%v", report)
	if len(report.Doubled)+len(report.Reordered)+len(report.Lost) > 0 {
		t.Errorf("doubled %v, reordered %v, lost %v", report.Doubled, report.Reordered, report.Lost)
	}
}

// waiting publishes n events and n jobs.
func (s *shop) waiting(t *testing.T, n int) {
	t.Helper()
	outbox := publishers.NewOutbox(s.store, publishers.Config{})
	for i := range n {
		order := schema.WithOrderingKey(fmt.Sprint("w", i%3))
		envs := []schema.Envelope{schema.NewEvent("happened", i, order), schema.NewJob("tx", "do", i, order)}
		err := s.store.InTx(t.Context(), func(tx *sql.Tx) error {
			if _, err := outbox.Publish(t.Context(), tx, envs...); err != nil {
				return err
			}
			return s.book.EnterSQLite(t.Context(), tx, envs...)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// keep copies a database that nobody has open.
func keep(t *testing.T, from, to string) {
	t.Helper()
	for _, suffix := range []string{"-wal", "-shm"} {
		if err := os.Remove(to + suffix); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		if info, err := os.Stat(from + suffix); err == nil && info.Size() > 0 {
			t.Fatalf("%s%s is left", from, suffix)
		}
	}
	b, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// The clocks that can be set, the one of the database and the one of the publisher, jump by an hour and by a day, ahead
// and back: what is published then is handled at once, and nothing is lost or doubled.
func TestSQLite_clock_jumps(t *testing.T) {
	t.Parallel()
	var offset atomic.Int64
	now := func() time.Time { return time.Now().Add(time.Duration(offset.Load())) }
	s := openShop(t, filepath.Join(t.TempDir(), "shop.db"), 10*time.Second, now)
	w := onSQLite(t, s, testkit.NATS(t).Conn(t), now, pace())
	stop := w.produce(2, 10*time.Millisecond)
	var back []time.Duration
	published := int64(0)
	for range times(1, 5) {
		for _, jump := range []time.Duration{time.Hour, -time.Hour, 24 * time.Hour, 0, -24 * time.Hour, 0} {
			pause(300 * time.Millisecond)
			// Some of these wait for their second attempt when the clock jumps.
			for range 5 {
				if err := w.publish(t.Context(), schema.NewJob("again", "do", nil)); err != nil {
					t.Fatal(err)
				}
				published++
			}
			pause(100 * time.Millisecond)
			offset.Store(int64(jump))
			back = append(back, w.recovers(time.Minute))
		}
	}
	stop()
	// What was to be handled a moment later, when the clock was a day ahead, waits for that day.
	offset.Store(int64(25 * time.Hour))
	w.well(3 * time.Minute)
	testkit.Eventually(t, time.Minute, func() error {
		if n := w.again.Load(); n < published {
			return fmt.Errorf("%d of %d are handled at their second attempt", n, published)
		}
		return nil
	})
	w.settled(3 * time.Minute)
	took(t, "clock jumps", back)
}
