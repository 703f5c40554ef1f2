package jetstream

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/schema"
)

// Only PostgreSQL has transactions that write side by side.
func TestC01_late_commit(t *testing.T) {
	t.Parallel()
	s, b := openShop(t), openBroker(t)
	cfg := quick(t)
	cfg.PollMax = 20 * time.Millisecond
	f := newForwarder(t, StoreOf(s.store), b.nc, cfg)
	stop := start(t, f)
	begin := func(e schema.Envelope) pgx.Tx {
		tx, err := s.pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.store.Append(t.Context(), tx, []schema.Envelope{e}); err != nil {
			t.Fatal(err)
		}
		return tx
	}
	envs := jobs(0, 3)
	late := begin(envs[0])
	gone := begin(schema.NewJob("shop", "rolled.back", nil))
	early := begin(envs[1])
	if err := early.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantSent(t, f, 1)
	if err := gone.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	last := begin(envs[2])
	if err := last.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantSent(t, f, 2) // behind the gap, and beside the transaction that is still open
	if err := late.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantSent(t, f, 3)
	if err := stop(); err != nil {
		t.Error(err)
	}
	wantStored(t, b, "MB_JOBS", []schema.Envelope{envs[1], envs[2], envs[0]})
}

// A thousand in the long form; in the short one the readers alone see a thousand.
func TestC01_many_transactions_of_any_length(t *testing.T) {
	t.Parallel()
	transactions := int64(250)
	if long {
		transactions = 1000
	}
	s, b := openShop(t), openBroker(t)
	f := newForwarder(t, StoreOf(s.store), b.nc, quick(t))
	stop := start(t, f)
	var left atomic.Int64
	left.Store(transactions)
	var group sync.WaitGroup
	for range 12 {
		group.Go(func() {
			for left.Add(-1) >= 0 {
				s.transaction(t.Context())
			}
		})
	}
	group.Wait()
	eventually(t, func() error {
		rows, err := s.store.ListOutbox(t.Context(), schema.RowFilter{})
		if err == nil && len(rows) > 0 {
			err = fmt.Errorf("%d rows wait", len(rows))
		}
		return err
	})
	if err := stop(); err != nil {
		t.Error(err)
	}
	rows, faults := s.check(t.Context(), b.js)
	if rows == 0 || len(faults) > 0 {
		t.Errorf("%d rows committed, faults: %v", rows, faults)
	}
	if n := f.tally().Sent; n != rows {
		t.Errorf("%d sent, want %d", n, rows)
	}
}

// The broker forgets message ids after a while; the cursor does not.
func TestC14_crash_between_publish_and_removal(t *testing.T) {
	t.Parallel()
	databases(t, func(t *testing.T, open func(testing.TB) *database) {
		for name, later := range map[string]bool{"restarted at once": false, "restarted when the broker has forgotten": true} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				db, b := open(t), openBroker(t)
				s, err := b.js.Stream(t.Context(), "MB_JOBS")
				if err != nil {
					t.Fatal(err)
				}
				cfg := s.CachedInfo().Config
				cfg.Duplicates = 100 * time.Millisecond
				if _, err := b.js.UpdateStream(t.Context(), cfg); err != nil {
					t.Fatal(err)
				}
				envs := jobs(0, 12, schema.WithOrderingKey("one"))
				db.mustPublish(t, envs...)
				takeHand(t, db, b, envs[0], faults{}).take().send(5) // and crashes
				if later {
					<-time.After(300 * time.Millisecond)
					b.Restart()
					testkit.Eventually(t, time.Minute, func() error { return b.nc.FlushTimeout(time.Second) })
				}
				drain(t, newForwarder(t, db, b.nc, quick(t)))
				wantStored(t, b, "MB_JOBS", envs)
			})
		}
	})
}

// The rows of a process that was killed are sent by another within the lease. On SQLite there is no lease: the file's
// lock ends with the process.
func TestC32_killed_forwarder(t *testing.T) {
	t.Parallel()
	db, b := openPostgres(t), openBroker(t)
	cfg := quick(t)
	cfg.Lease = 2 * time.Second
	dead := &dying{Store: db}
	nc := b.Conn(t)
	killed := newForwarder(t, dead, nc, cfg)
	stop := start(t, killed)
	db.mustPublish(t, jobs(0, 50)...)
	wantSent(t, killed, 50)
	envs := jobs(0, 100)
	dead.die.Store(true) // at its next removal, with 100 rows sent
	db.mustPublish(t, envs...)
	other := newForwarder(t, db, b.Conn(t), cfg)
	begin := time.Now()
	start(t, other)
	eventually(t, func() error {
		rows, err := db.waiting(t.Context(), schema.RowFilter{})
		if err == nil && len(rows) > 0 {
			err = fmt.Errorf("%d rows wait", len(rows))
		}
		return err
	})
	if d := time.Since(begin); d > 20*time.Second+cfg.Lease { // the machine may be busy
		t.Errorf("it took %v, the lease is %v", d, cfg.Lease)
	}
	_ = stop()
	if got := stored(t, b.js, "MB_JOBS"); len(got) != 150 {
		t.Errorf("%d jobs are stored, want 150", len(got))
	}
}

// dying is the store of a process that dies at its next removal.
type dying struct {
	Store
	die, dead atomic.Bool
}

func (d *dying) Remove(ctx context.Context, p schema.RemoveParams) (schema.RemoveResult, error) {
	if d.die.Load() {
		d.dead.Store(true)
	}
	if d.dead.Load() {
		return schema.RemoveResult{}, errCrashed
	}
	return d.Store.Remove(ctx, p)
}

func (d *dying) Renew(ctx context.Context, tokens []string, ttl time.Duration) ([]string, error) {
	if d.dead.Load() {
		return nil, errCrashed
	}
	return d.Store.Renew(ctx, tokens, ttl)
}

func (d *dying) Acquire(ctx context.Context, ref schema.ShardRef, token string, ttl time.Duration) (schema.Shard, bool, error) {
	if d.dead.Load() {
		return schema.Shard{}, false, errCrashed
	}
	return d.Store.Acquire(ctx, ref, token, ttl)
}

func (d *dying) Release(ctx context.Context, token string) error {
	if d.dead.Load() {
		return errCrashed
	}
	return d.Store.Release(ctx, token)
}

// A process that stood still beyond its lease writes nothing when it goes on.
func TestC32_paused_forwarder(t *testing.T) {
	t.Parallel()
	db, b := openPostgres(t), openBroker(t)
	cfg := quick(t)
	cfg.Lease = time.Second
	asleep := &sleepy{Store: db, wake: make(chan struct{})}
	paused := newForwarder(t, asleep, b.Conn(t), cfg)
	stop := start(t, paused)
	asleep.tired.Store(true)
	envs := jobs(0, 100, schema.WithOrderingKey("one"))
	db.mustPublish(t, envs[:50]...)
	wantSent(t, paused, 50) // sent, and asleep before it removes them
	other := newForwarder(t, db, b.Conn(t), cfg)
	start(t, other)
	db.mustPublish(t, envs[50:]...)
	eventually(t, func() error {
		rows, err := db.waiting(t.Context(), schema.RowFilter{})
		if err == nil && len(rows) > 0 {
			err = fmt.Errorf("%d rows wait", len(rows))
		}
		return err
	})
	before := asleep.ledgers(t)
	asleep.tired.Store(false)
	asleep.sleep.Store(false)
	close(asleep.wake)
	eventually(t, func() error {
		if asleep.refused.Load() == 0 {
			return errors.New("it has not gone on yet")
		}
		return nil
	})
	if err := stop(); err != nil {
		t.Error(err)
	}
	wantStored(t, b, "MB_JOBS", envs)
	if after := asleep.ledgers(t); after != before {
		t.Errorf("it has written to the ledger: %s, was %s", after, before)
	}
}

// sleepy is the store of a process that is stopped in its removal.
type sleepy struct {
	Store
	tired   atomic.Bool // it falls asleep at its next removal, and not before: its lease would end
	sleep   atomic.Bool
	wake    chan struct{}
	refused atomic.Int64
}

func (s *sleepy) Remove(ctx context.Context, p schema.RemoveParams) (schema.RemoveResult, error) {
	if !s.tired.Load() {
		return s.Store.Remove(ctx, p)
	}
	s.sleep.Store(true)
	<-s.wake
	res, err := s.Store.Remove(context.WithoutCancel(ctx), p)
	if errors.Is(err, schema.ErrLeaseLost) {
		s.refused.Add(1)
	}
	return res, err
}

func (s *sleepy) Renew(ctx context.Context, tokens []string, ttl time.Duration) ([]string, error) {
	if s.sleep.Load() {
		<-s.wake
	}
	return s.Store.Renew(ctx, tokens, ttl)
}

func (s *sleepy) ledgers(t *testing.T) string {
	t.Helper()
	var all string
	for _, stream := range schema.Streams {
		shards, err := s.Shards(t.Context(), stream)
		if err != nil {
			t.Fatal(err)
		}
		for _, sh := range shards {
			all += fmt.Sprint(sh.LedgerOwner, sh.Batch, sh.Total, sh.CursorSeq, " ")
		}
	}
	return all
}

// One bad item costs the others nothing, wherever the process crashes around it.
func TestC36_one_bad_item_in_a_batch(t *testing.T) {
	t.Parallel()
	databases(t, func(t *testing.T, open func(testing.TB) *database) {
		for name, crash := range map[string]func(t *testing.T, db *database, b *broker, first schema.Envelope){
			"no crash": func(*testing.T, *database, *broker, schema.Envelope) {},
			"before the batch is complete": func(t *testing.T, db *database, b *broker, first schema.Envelope) {
				takeHand(t, db, b, first, faults{}).take().stageRows(7)
			},
			"when it is refused": func(t *testing.T, db *database, b *broker, first schema.Envelope) {
				h := takeHand(t, db, b, first, faults{}).take()
				if err := h.commit(t.Context(), h.stageRows(10)); codeOf(err) != codeIncomplete {
					t.Errorf("a batch with a bad item: %v", err)
				}
			},
			"when its first half is sent": func(t *testing.T, db *database, b *broker, first schema.Envelope) {
				takeHand(t, db, b, first, faults{}).take().send(7)
			},
			"before the bad item is parked": func(t *testing.T, db *database, b *broker, first schema.Envelope) {
				h := takeHand(t, db, b, first, faults{}).take().send(7)
				if err := h.commit(t.Context(), h.stageRows(1)); codeOf(err) != codeTooLarge {
					t.Errorf("the bad item alone: %v", err)
				}
			},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				db, b := open(t), openBroker(t)
				envs := jobs(0, 10)
				envs[7] = large()
				// All in one shard, whatever their number.
				for i := range envs {
					for envs[i].Slot()>>15 != 0 {
						envs[i].ID = schema.NewID()
					}
				}
				db.mustPublish(t, envs...)
				small(t, db, b)
				crash(t, db, b, envs[0])
				drain(t, newForwarder(t, anyone{db}, b.nc, quick(t)))
				wantStored(t, b, "MB_JOBS", append(append([]schema.Envelope{}, envs[:7]...), envs[8:]...))
				wantParked(t, db, map[string]string{envs[7].ID: "too large"})
			})
		}
	})
}

// Batches of any number of messages are sent, in order.
func TestC36_batches_of_any_size(t *testing.T) {
	t.Parallel()
	databases(t, func(t *testing.T, open func(testing.TB) *database) {
		db, b := open(t), openBroker(t)
		f := newForwarder(t, db, b.nc, quick(t))
		sizes, total := []int{0, 1, 10, 2*schema.MaxBatchRows + 1}, 0
		if long {
			sizes = append(sizes, 21_846)
		}
		for _, n := range sizes {
			db.mustPublish(t, jobs(total, n, schema.WithOrderingKey("one"))...)
			total += n
			drain(t, f)
			if got := f.tally(); got.Sent != total || got.Claimed != total {
				t.Fatalf("after %d more the tally is %+v, want %d sent", n, got, total)
			}
		}
		s, err := b.js.Stream(t.Context(), "MB_JOBS")
		if err != nil {
			t.Fatal(err)
		}
		if info, err := s.Info(t.Context(), natsjs.WithSubjectFilter("mb.jobs.>")); err != nil || info.State.Subjects["mb.jobs.shop.order.paid"] != uint64(total) {
			t.Errorf("the stream holds %v (%v), want %d", info.State.Subjects, err, total)
		}
		for range 50 { // spot checks of the order: payloads count, one batch's cursor goes between
			seq := 1 + uint64(rand.IntN(total-1))
			a, err1 := s.GetMsg(t.Context(), seq, natsjs.WithGetMsgSubject("mb.jobs.>"))
			if err1 != nil {
				t.Fatal(err1)
			}
			c, err2 := s.GetMsg(t.Context(), a.Sequence+1, natsjs.WithGetMsgSubject("mb.jobs.>"))
			if errors.Is(err2, natsjs.ErrMsgNotFound) {
				continue // the last one
			}
			var x, y int
			if _, err := fmt.Sscan(string(a.Data)+" "+string(c.Data), &x, &y); err2 != nil || err != nil || y != x+1 {
				t.Fatalf("%s is followed by %s (%v, %v)", a.Data, c.Data, err2, err)
			}
		}
	})
}

// Somebody answers that the message is a duplicate of one that is stored, which it is not. What the stream has is asked
// of the stream; the answer is shown, and removes no row.
func TestC13_duplicate_is_not_stored(t *testing.T) {
	t.Parallel()
	databases(t, func(t *testing.T, open func(testing.TB) *database) {
		db, b := open(t), openBroker(t)
		s, err := b.js.Stream(t.Context(), "MB_JOBS")
		if err != nil {
			t.Fatal(err)
		}
		cfg := quick(t)
		cfg.AckTimeout = 500 * time.Millisecond
		f := newForwarder(t, db, b.Conn(t), cfg)
		start(t, f)
		db.mustPublish(t, jobs(0, 3, schema.WithOrderingKey("k"))...)
		wantSent(t, f, 3)
		full := s.CachedInfo().Config
		full.MaxMsgs = 1 // from now on it stores nothing
		if _, err := b.js.UpdateStream(t.Context(), full); err != nil {
			t.Fatal(err)
		}
		liar, err := b.nc.Subscribe("mb.cursor.>", func(m *nats.Msg) {
			_ = m.Respond([]byte(`{"stream":"MB_JOBS","seq":1,"duplicate":true}`))
		})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = liar.Unsubscribe() }()
		if err := b.nc.Flush(); err != nil {
			t.Fatal(err)
		}
		want := jobs(3, 3, schema.WithOrderingKey("k"))
		db.mustPublish(t, want...)
		eventually(t, func() error {
			for _, s := range f.Status() {
				if s.State == ShardWaiting && (strings.Contains(s.Error, "duplicate") || strings.Contains(s.Error, "10077")) {
					return nil
				}
			}
			return fmt.Errorf("the answer is not shown: %+v", f.Status())
		})
		if rows, err := db.waiting(t.Context(), schema.RowFilter{}); err != nil || len(rows) != 3 || f.tally().Sent != 3 {
			t.Errorf("%d rows wait (%v) and %d are sent, want 3 and 3", len(rows), err, f.tally().Sent)
		}
		full.MaxMsgs = -1
		if _, err := b.js.UpdateStream(t.Context(), full); err != nil {
			t.Fatal(err)
		}
		eventually(t, func() error { // the liar goes on; each batch is found in the stream or sent again
			rows, err := db.waiting(t.Context(), schema.RowFilter{})
			if err == nil && len(rows) > 0 {
				err = fmt.Errorf("%d rows wait: %+v", len(rows), f.Status())
			}
			return err
		})
		if got := stored(t, b.js, "MB_JOBS"); len(got) != 6 {
			t.Errorf("%d jobs are stored, want 6", len(got))
		}
	})
}

// Two messages with one id to two targets are two messages.
func TestC13_one_id_for_two_targets(t *testing.T) {
	t.Parallel()
	databases(t, func(t *testing.T, open func(testing.TB) *database) {
		db, b := open(t), openBroker(t)
		id := schema.NewID()
		db.mustPublish(t, schema.NewJob("a", "x", 1, schema.WithID(id)))
		db.mustPublish(t, schema.NewJob("b", "x", 1, schema.WithID(id)))
		f := newForwarder(t, db, b.nc, quick(t))
		if tally := drain(t, f); tally.Sent != 2 {
			t.Errorf("tally is %+v", tally)
		}
		got := stored(t, b.js, "MB_JOBS")
		if len(got) != 2 || got[0].subject == got[1].subject || got[0].id != id || got[1].id != id {
			t.Errorf("stored are %+v", got)
		}
		for _, m := range got {
			if m.header.Get("Nats-Msg-Id") != "" {
				t.Error("a message carries an id that the broker may take for a duplicate")
			}
		}
	})
}
