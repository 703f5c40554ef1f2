package jetstream

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/schema"
)

// stressTime is how long a stress lasts: a few seconds, or what MILLBRIDGE_STRESS says.
func stressTime(t testing.TB, short time.Duration) time.Duration {
	t.Helper()
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

// A storm is what owners of the same shards go through.
type storm struct {
	shop     *shop
	url      string
	replicas int
	last     time.Duration
	owners   int
	faults   faults
	weather  func(i int) // something that happens to the servers, again and again
	resets   int
}

// stress lets owners without leases fight over the shards and returns what the checker found.
func (s *storm) stress(t *testing.T) []string {
	t.Helper()
	js := testkit.JetStream(t, s.connect(t))
	if err := EnsureStreams(t.Context(), js, StreamsConfig{Replicas: s.replicas}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), s.last)
	defer cancel()
	r := &reckless{store: s.shop, url: s.url, cut: 0.3, faults: s.faults}
	var group sync.WaitGroup
	group.Go(func() { s.shop.trade(ctx, 4, 4*time.Millisecond) })
	group.Go(func() { r.run(ctx, t, s.owners) })
	group.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-ctx.Done():
				return
			case <-time.After(150 * time.Millisecond):
			}
			if err := s.shop.reset(context.WithoutCancel(ctx)); err != nil {
				t.Error(err)
			}
			s.resets++
			if s.weather != nil {
				s.weather(i)
			}
		}
	})
	group.Wait()
	return s.calm(t, js, r)
}

func (s *storm) connect(t *testing.T) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(s.url, append(ConnectOptions(), nats.ReconnectWait(20*time.Millisecond))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// calm lets one owner finish and looks at what has become of everything.
func (s *storm) calm(t *testing.T, js natsjs.JetStream, r *reckless) []string {
	t.Helper()
	f := newForwarder(t, anyone{s.shop}, s.connect(t), ForwarderConfig{RetryMax: 200 * time.Millisecond, Logger: testkit.Logger(t)})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tally, err := f.Drain(ctx)
	if stop := (*StopError)(nil); errors.As(err, &stop) {
		return []string{stop.Error()}
	}
	if err != nil {
		t.Fatalf("drain at the end: %v", err)
	}
	rows, found := s.shop.check(t.Context(), js)
	total := 0
	for _, st := range f.Status() {
		total += int(st.Total)
		if st.Ledger != st.Batch {
			found = append(found, fmt.Sprintf("%s/%d ends with its ledger at %d and its cursor at %d", st.Stream, st.Shard, st.Ledger, st.Batch))
		}
	}
	if total != rows {
		found = append(found, fmt.Sprintf("the cursors count %d rows, committed were %d", total, rows))
	}
	t.Logf("%d rows committed, %d sent in the storm, %d in the calm; %d crashes, %d removals cut, %d sequence resets; %d faults",
		rows, r.batches.Load(), tally.Sent, r.crashes.Load(), r.removalsCut.Load(), s.resets, len(found))
	return found
}

func report(t *testing.T, found []string) {
	t.Helper()
	for _, f := range found[:min(len(found), 10)] {
		t.Error(f)
	}
}

// Three servers, whose leaders step down all the time.
func TestStress_postgres_cluster(t *testing.T) {
	t.Parallel()
	cluster := testkit.Cluster(t, 3)
	s := &storm{shop: openShop(t), url: cluster.URL(), replicas: 3, last: stressTime(t, 6*time.Second), owners: 2}
	steps := 0
	s.weather = func(i int) {
		if i%3 == 0 && cluster.StepDown([]string{"MB_JOBS", "MB_EVENTS"}[i/3%2]) == nil {
			steps++
		}
	}
	report(t, s.stress(t))
	t.Logf("%d step-downs", steps)
}

// Servers that are killed and come back.
func TestStress_postgres_cluster_loses_servers(t *testing.T) {
	t.Parallel()
	cluster := testkit.Cluster(t, 3)
	s := &storm{shop: openShop(t), url: cluster.URL(), replicas: 3, last: stressTime(t, 8*time.Second), owners: 2}
	down := -1
	s.weather = func(i int) {
		switch i % 14 {
		case 3:
			down = max(cluster.Leader("MB_JOBS"), 0)
			cluster.Kill(down)
		case 10:
			cluster.Restart(down)
			down = -1
		}
	}
	defer func() {
		if down >= 0 {
			cluster.Restart(down)
		}
	}()
	report(t, s.stress(t))
}

func TestStress_sqlite_single_server(t *testing.T) {
	t.Parallel()
	b := testkit.NATS(t)
	s := &storm{shop: openSQLiteShop(t), url: b.URL(), replicas: 1, last: stressTime(t, 4*time.Second), owners: 3}
	s.weather = func(i int) {
		if i%10 == 5 {
			b.Restart()
		}
	}
	report(t, s.stress(t))
}

// Storms between which the cursors are lost and repaired.
func TestStress_cursors_are_lost_and_repaired(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(testing.TB) *shop{"postgres": openShop, "sqlite": openSQLiteShop} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := testkit.NATS(t)
			js := b.JetStream(t)
			s := &storm{shop: open(t), url: b.URL(), replicas: 1, last: stressTime(t, 6*time.Second) / 3, owners: 2}
			for range 3 {
				report(t, s.stress(t))
				for _, name := range []string{"MB_JOBS", "MB_EVENTS"} {
					stream, err := js.Stream(t.Context(), name)
					if err != nil {
						t.Fatal(err)
					}
					if err := stream.Purge(t.Context(), natsjs.WithPurgeSubject("mb.cursor.>")); err != nil {
						t.Fatal(err)
					}
				}
				r, err := NewRepairer(s.shop.repair, b.Conn(t), ForwarderConfig{}, StreamsConfig{})
				if err != nil {
					t.Fatal(err)
				}
				p := plan(t, r, RepairOptions{StreamRecreated: true})
				wantPlan(t, p, true, "which stay")
				if err := r.Apply(t.Context(), p); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// The checker must see what goes wrong when a rule is broken, or it proves nothing.
func TestStress_notices_broken_rules(t *testing.T) {
	t.Parallel()
	for name, broken := range map[string]func(s *storm){
		"names are not carried forward":      func(s *storm) { s.faults.forgetNames = true },
		"a cursor names its own rows only":   func(s *storm) { s.faults.nameOwnBatchOnly = true },
		"a removal takes a range of numbers": func(s *storm) { s.shop.Store = byRange{s.shop.Store, s.shop.pool} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := testkit.NATS(t)
			s := &storm{shop: openShop(t), url: b.URL(), replicas: 1, last: 3 * time.Second, owners: 2}
			broken(s)
			for range 8 {
				if len(s.stress(t)) > 0 {
					return
				}
			}
			t.Error("nothing was noticed")
		})
	}
}

// byRange removes whatever has a number between those of the named rows.
type byRange struct {
	Store
	pool *pgxpool.Pool
}

func (s byRange) Remove(ctx context.Context, p schema.RemoveParams) (schema.RemoveResult, error) {
	low, high := p.Names[0].Seq, p.Names[0].Seq
	for _, n := range p.Names {
		low, high = min(low, n.Seq), max(high, n.Seq)
	}
	if _, err := s.pool.Exec(ctx, `DELETE FROM millbridge.outbox WHERE stream = $1 AND slot * 2 >> 16 = $2 AND seq BETWEEN $3 AND $4`,
		string(p.Stream), p.Shard, low, high); err != nil {
		return schema.RemoveResult{}, err
	}
	return s.Store.Remove(ctx, p)
}
