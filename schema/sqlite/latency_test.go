package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/millbridge/millbridge/schema"
)

// TestApplicationWritesAreNotHeldUp writes as an application does while everything of ours is busy in the same file:
// one reader has read rows and waits for a network that does not answer, a forwarder reads and removes, handlers claim
// and settle, and the upkeep runs.
func TestApplicationWritesAreNotHeldUp(t *testing.T) {
	t.Parallel()
	s, file := newFile(t)
	app := application(t, file, 30*time.Second)
	if _, err := app.ExecContext(t.Context(), "CREATE TABLE orders (n INTEGER)"); err != nil {
		t.Fatal(err)
	}
	if _, ok, err := s.Acquire(t.Context(), jobsShard, "me", time.Minute); !ok || err != nil {
		t.Fatal(ok, err)
	}
	appendTo(t, s, schema.NewJob("shop", "say", nil))
	stuck := s.NewReader(schema.ShardRef{Stream: schema.Jobs, Generation: 1}, 1)
	if rows, err := stuck.Read(t.Context(), schema.ReadParams{}); err != nil || len(rows) != 1 {
		t.Fatal(len(rows), err)
	}

	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	loop := func(f func(n int64) error) {
		wg.Go(func() {
			for n := int64(1); ctx.Err() == nil; n++ {
				if err := f(n); err != nil && ctx.Err() == nil && !errors.Is(err, schema.ErrRetryTransaction) {
					t.Error(err)
					return
				}
			}
		})
	}
	reader := s.NewReader(jobsShard, 1)
	total := int64(0)
	loop(func(n int64) error {
		rows, err := reader.Read(ctx, schema.ReadParams{})
		if err != nil {
			return err
		}
		names := make([]schema.RowName, len(rows))
		for i, r := range rows {
			names[i] = r.Name()
		}
		total += int64(len(rows))
		_, err = s.Remove(ctx, schema.RemoveParams{ShardRef: jobsShard, Owner: "me", Batch: n, Total: total, Names: names})
		return err
	})
	loop(func(n int64) error {
		run := schema.Run{Key: schema.InboxKey{Handler: "h", Key: fmt.Sprint(n)}, Owner: fmt.Sprint(n), MessageID: fmt.Sprint(n), Lease: time.Minute}
		if _, err := s.Claim(ctx, run); err != nil {
			return err
		}
		return s.Done(ctx, run)
	})
	loop(func(int64) error { _, err := s.Tend(ctx, 100); return err })

	const limit = 2 * time.Second // each wait is for a few commits; the machine may be slow
	var worst time.Duration
	for n := range 200 {
		start := time.Now()
		err := inTx(t.Context(), app, func(tx *sql.Tx) error {
			if _, err := tx.ExecContext(t.Context(), "INSERT INTO orders VALUES (?)", n); err != nil {
				return err
			}
			_, err := s.Append(t.Context(), tx, []schema.Envelope{schema.NewJob("shop", "say", nil)})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		worst = max(worst, time.Since(start))
	}
	stop()
	wg.Wait()
	t.Logf("worst of 200 writes: %v", worst)
	if worst > limit {
		t.Errorf("a write took %v, want at most %v", worst, limit)
	}
}
