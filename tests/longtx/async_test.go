package longtx

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/internal/testkit/pgserver"
	"github.com/millbridge/millbridge/schema/postgres"
)

// Applications may choose not to wait for the disk. What a crash of the server then undoes was never published, and all
// else is, once.
func TestAsynchronousCommit_nothing_is_published_that_a_crash_undoes(t *testing.T) {
	t.Parallel()
	server, err := pgserver.StartWith(pgserver.Options{Settings: "wal_writer_delay = '10s'\ncheckpoint_timeout = '1d'"})
	if err != nil {
		t.Fatalf("this test needs a server that it may kill: %v", err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	pool, err := pgxpool.New(t.Context(), server.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	if _, _, err := postgres.New(pool, postgres.Options{}).MigrateUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, pool)
	said, until := make(map[string]bool), time.Now().Add(open(t, 0))
	crashes, undone := 0, 0
	for crashes < 3 || undone == 0 && crashes < 20 || time.Now().Before(until) {
		for _, id := range w.crash(server, crashes%2 == 1) {
			said[id] = true
		}
		crashes++
		w.recovered()
		rows, err := pool.Query(t.Context(), `SELECT id FROM proof_committed`)
		w.must(err)
		ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
		w.must(err)
		for _, id := range ids {
			delete(said, id)
		}
		undone += len(said)
		clear(said)
		w.all(fmt.Sprintf("after crash %d", crashes))
	}
	if undone == 0 {
		t.Error("no crash has undone a commit: this test sees nothing")
	}
	t.Logf("%d crashes undid %d messages whose commit had been reported; none of them was published", crashes, undone)
}

// crash publishes without waiting for the disk until the server is killed, or until shortly before. It returns the ids
// of the messages whose commits were reported.
func (w *world) crash(server *pgserver.Server, atOnce bool) (committed []string) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	w.hold.Store(true) // nobody but a reader that waits for the disk brings anything there
	defer w.hold.Store(false)
	var mu sync.Mutex
	var group sync.WaitGroup
	for range 3 {
		group.Go(func() {
			for ctx.Err() == nil {
				envs := messages(1+rand.IntN(4), []string{"", "a", "b"}[rand.IntN(3)])
				err := w.store.InTx(ctx, func(tx pgx.Tx) error {
					if _, err := tx.Exec(ctx, `SET LOCAL synchronous_commit = off`); err != nil {
						return err
					}
					return w.publish(ctx, tx, envs...)
				})
				if err != nil {
					continue
				}
				mu.Lock()
				for _, e := range envs {
					committed = append(committed, e.ID)
				}
				mu.Unlock()
				<-time.After(rand.N(3 * time.Millisecond))
			}
		})
	}
	<-time.After(200*time.Millisecond + rand.N(300*time.Millisecond))
	// What is new on the log's last page is all that a killed server forgets.
	if !atOnce { // now is when a forwarder that does not care would send it
		cancel()
		group.Wait()
		<-time.After(rand.N(60 * time.Millisecond))
	}
	err := server.Kill()
	cancel()
	group.Wait()
	w.must(err)
	w.must(server.Restart())
	return committed
}

// recovered waits until the database answers.
func (w *world) recovered() {
	w.t.Helper()
	testkit.Eventually(w.t, time.Minute, func() error {
		_, err := w.store.Info(w.t.Context())
		return err
	})
}
