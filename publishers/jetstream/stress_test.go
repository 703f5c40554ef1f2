package jetstream

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/schema"
	"github.com/millbridge/millbridge/schema/postgres"
)

// stressTime is how long a stress lasts: a few seconds, or what MILLBRIDGE_STRESS says.
func stressTime(t testing.TB, short time.Duration) time.Duration {
	v := os.Getenv("MILLBRIDGE_STRESS")
	if v == "" {
		return short
	}
	d, err := time.ParseDuration(v)
	if err != nil {
		t.Fatalf("MILLBRIDGE_STRESS: %v", err)
	}
	return d
}

// A shop commits messages together with a record of them, and knows in which order those of a key committed.
type shop struct {
	t     testing.TB
	pool  *pgxpool.Pool
	store *postgres.Store
}

func openShop(t testing.TB) *shop {
	pool := testkit.Postgres(t)
	s := &shop{t: t, pool: pool, store: postgres.New(pool, postgres.Options{})}
	t.Cleanup(s.store.Close)
	if _, err := pool.Exec(t.Context(), `CREATE TABLE truth (id text PRIMARY KEY, key text NOT NULL, n bigint NOT NULL)`); err != nil {
		t.Fatal(err)
	}
	return s
}

// trade commits and rolls back transactions until ctx ends.
func (s *shop) trade(ctx context.Context, writers int, pause time.Duration) {
	var group sync.WaitGroup
	for range writers {
		group.Go(func() {
			for ctx.Err() == nil {
				s.transaction(context.WithoutCancel(ctx))
				select {
				case <-ctx.Done():
				case <-time.After(rand.N(2 * pause)):
				}
			}
		})
	}
	group.Wait()
}

// transaction publishes some messages, half of them ordered, and commits four times out of five.
func (s *shop) transaction(ctx context.Context) {
	tx, err := s.pool.Begin(ctx)
	if err != nil {
		s.t.Error(err)
		return
	}
	defer func() { _ = tx.Rollback(ctx) }()
	key := ""
	if rand.IntN(2) == 0 {
		key = fmt.Sprintf("key-%d", rand.IntN(12))
	}
	var envs []schema.Envelope
	for range 1 + rand.IntN(8) {
		if rand.IntN(2) == 0 {
			envs = append(envs, schema.NewJob("shop", "order.paid", 1, schema.WithOrderingKey(key)))
		} else {
			envs = append(envs, schema.NewEvent("order.paid", 1, schema.WithOrderingKey(key)))
		}
	}
	if _, err := s.store.Append(ctx, tx, envs); err != nil {
		s.t.Error(err)
		return
	}
	for _, e := range envs {
		// The key's lock is held until the commit, so the count within a key is the order of commits.
		scope := ""
		if key != "" {
			scope = string(e.Stream()) + "/" + key
		}
		_, err := tx.Exec(ctx, `INSERT INTO truth SELECT $1::text, $2::text,
			CASE WHEN $2::text = '' THEN 0 ELSE (SELECT count(*) FROM truth WHERE key = $2::text) END`, e.ID, scope)
		if err != nil {
			s.t.Error(err)
			return
		}
	}
	if rand.IntN(10) == 0 { // a late commit
		<-time.After(rand.N(20 * time.Millisecond))
	}
	if rand.IntN(5) == 0 {
		return
	}
	if err := tx.Commit(ctx); err != nil {
		s.t.Error(err)
	}
}

// resetSequence gives numbers of removed rows out again, as a database does that comes back from a crash.
func (s *shop) resetSequence(ctx context.Context) {
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `LOCK TABLE millbridge.outbox IN EXCLUSIVE MODE`)
		if err == nil {
			_, err = tx.Exec(ctx, `SELECT setval('millbridge.outbox_seq', (SELECT coalesce(max(seq), 0) + 1 FROM millbridge.outbox), false)`)
		}
		if err == nil {
			_, err = tx.Exec(ctx, `UPDATE millbridge.epoch SET token = gen_random_uuid()`)
		}
		return err
	})
	if err != nil {
		s.t.Error(err)
	}
}

// check compares the committed messages with the streams, in which nothing was consumed.
func (s *shop) check(ctx context.Context, js natsjs.JetStream) (rows int, faults []string) {
	type place struct {
		stream string
		seq    uint64
	}
	places := make(map[string][]place)
	for _, stream := range []string{"MB_JOBS", "MB_EVENTS"} {
		for _, m := range stored(s.t, js, stream) {
			places[m.id] = append(places[m.id], place{stream, m.seq})
		}
	}
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	records, err := s.pool.Query(ctx, `SELECT id, key, n FROM truth ORDER BY key, n`)
	if err != nil {
		s.t.Fatal(err)
	}
	var id, key, last string
	var n int64
	var lastSeq uint64
	_, err = pgx.ForEachRow(records, []any{&id, &key, &n}, func() error {
		rows++
		at := places[id]
		delete(places, id)
		switch {
		case len(at) == 0:
			fault("%s is lost", id)
			return nil
		case len(at) > 1:
			fault("%s is stored %d times", id, len(at))
		}
		if key != "" {
			if key == last && at[0].seq < lastSeq {
				fault("%s (%s, number %d) overtook the message before it", id, key, n)
			}
			last, lastSeq = key, at[0].seq
		}
		return nil
	})
	if err != nil {
		s.t.Fatal(err)
	}
	for id := range places {
		fault("%s was never committed", id)
	}
	return rows, faults
}

func TestStress_two_owners_without_leases(t *testing.T) {
	t.Parallel()
	cluster := testkit.Cluster(t, 3)
	r := stress(t, stressTime(t, 6*time.Second), 2, faults{}, func() *nats.Conn { return cluster.Conn(t) }, cluster.StepDown, 3)
	for _, f := range r {
		t.Error(f)
	}
}

// stress lets owners fight over the shards and returns what the checker found.
func stress(t *testing.T, d time.Duration, owners int, broken faults, connect func() *nats.Conn, stepDown func(string) error, replicas int) []string {
	t.Helper()
	s := openShop(t)
	js := testkit.JetStream(t, connect())
	if err := EnsureStreams(t.Context(), js, StreamsConfig{Replicas: replicas}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	r := &reckless{store: StoreOf(s.store), connect: connect, cut: 0.3, life: 800 * time.Millisecond, faults: broken}
	steps, resets := 0, 0
	var group sync.WaitGroup
	group.Go(func() { s.trade(ctx, 4, 4*time.Millisecond) })
	group.Go(func() { r.run(ctx, t, owners) })
	group.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-ctx.Done():
				return
			case <-time.After(150 * time.Millisecond):
			}
			s.resetSequence(context.WithoutCancel(ctx))
			resets++
			if stepDown != nil && i%3 == 0 {
				if stepDown([]string{"MB_JOBS", "MB_EVENTS"}[steps%2]) == nil {
					steps++
				}
			}
		}
	})
	group.Wait()

	f := newForwarder(t, StoreOf(s.store), connect(), ForwarderConfig{RetryMax: 200 * time.Millisecond, Logger: testkit.Logger(t)})
	calm, cancelCalm := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancelCalm()
	tally, err := f.Drain(calm)
	if err != nil {
		t.Fatalf("drain at the end: %v", err)
	}
	rows, found := s.check(t.Context(), js)
	t.Logf("%d rows committed, %d sent in the storm, %d in the calm; %d crashes, %d removals cut, %d step-downs, %d sequence resets; %d faults",
		rows, r.batches.Load(), tally.Sent, r.crashes.Load(), r.removalsCut.Load(), steps, resets, len(found))
	return found
}
