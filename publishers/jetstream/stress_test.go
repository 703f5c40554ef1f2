package jetstream

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

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

// A storm is what owners of the same shards go through: no lease keeps them apart, and answers, connections, removals,
// sequences and owners get lost all the time.
type storm struct {
	shop     *shop
	url      string
	replicas int
	last     time.Duration
	owners   int
	faults   faults
	weather  func(i int) // something that happens to the servers, again and again
	loses    int         // every so many looks at the weather the cursors are lost; 0 for never

	steps, kills, resets, lost, repairs int
}

// stress lets owners without leases fight over the shards and returns what the checker found.
func (s *storm) stress(t *testing.T) []string {
	t.Helper()
	js := testkit.JetStream(t, s.connect(t))
	testkit.Eventually(t, time.Minute, func() error {
		err := EnsureStreams(t.Context(), js, StreamsConfig{Replicas: s.replicas})
		if err != nil && !testkit.IsPeerOffline(err) && !errors.Is(err, context.DeadlineExceeded) { // nobody may lead yet
			t.Fatal(err)
		}
		return err
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r := &reckless{store: s.shop, url: s.url, cut: 0.3, faults: s.faults}
	r.cutter.share = 0.1
	var group sync.WaitGroup
	group.Go(func() { s.shop.trade(ctx, 4, 4*time.Millisecond) })
	group.Go(func() { r.run(ctx, t, s.owners) })
	group.Go(func() {
		defer cancel()
		began := time.Now()
		for i := 0; time.Since(began) < s.last || !s.raged() && time.Since(began) < s.last+time.Minute; i++ {
			<-time.After(150 * time.Millisecond)
			if err := s.shop.reset(context.WithoutCancel(ctx)); err != nil {
				t.Error(err)
			}
			s.resets++
			if s.weather != nil {
				s.weather(i)
			}
			if s.loses > 0 && i%s.loses == s.loses-1 {
				s.loseCursors(t, js)
			}
		}
	})
	group.Wait()
	return s.calm(t, js, r)
}

// raged reports whether all that is to happen has happened, which takes longer where much else goes on.
func (s *storm) raged() bool {
	return (s.weather == nil || s.steps+s.kills > 0) && (s.loses == 0 || s.lost > 0 && s.repairs > 0)
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

// loseCursors takes the cursors out of a stream, as its purge does, and repairs what stops for that while the owners
// go on trying.
func (s *storm) loseCursors(t *testing.T, js natsjs.JetStream) {
	t.Helper()
	of := schema.Streams[s.lost%2]
	shards, err := s.shop.Shards(t.Context(), of)
	if err != nil {
		t.Fatal(err)
	}
	for _, shard := range shards {
		if shard.Batch == 0 {
			return // it counts as new, and what it has sent so far would count as not sent
		}
	}
	stream, err := js.Stream(t.Context(), schema.Subjects{}.StreamName(of))
	if err != nil {
		return // it has no leader: another time
	}
	if err := stream.Purge(t.Context(), natsjs.WithPurgeSubject("mb.cursor.>")); err != nil {
		return
	}
	s.lost++
	for range 20 {
		if s.repair(t, js.Conn()) == nil {
			return
		}
		<-time.After(50 * time.Millisecond)
	}
}

// repair answers for lost streams. What was sent and is still in its stream is known for certain, since nothing takes
// messages out of it.
func (s *storm) repair(t *testing.T, nc *nats.Conn) error {
	t.Helper()
	repaired, err := s.shop.repairLost(t.Context(), nc, s.replicas, faults{})
	if repaired && err == nil {
		s.repairs++
	}
	return err
}

// calm lets one owner finish and looks at what has become of everything.
func (s *storm) calm(t *testing.T, js natsjs.JetStream, r *reckless) []string {
	t.Helper()
	f := newForwarder(t, anyone{s.shop}, s.connect(t), ForwarderConfig{RetryMax: 200 * time.Millisecond, Logger: testkit.Logger(t)})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	tally, err := f.Drain(ctx)
	for range 3 { // the cursors were lost in the last moment
		if stop := (*StopError)(nil); s.loses == 0 || !errors.As(err, &stop) {
			break
		}
		if err := s.repair(t, js.Conn()); err != nil {
			t.Fatalf("repair at the end: %v", err)
		}
		tally, err = f.Drain(ctx)
	}
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
	if total != rows && s.lost == 0 { // of what was sent before a cursor was lost, it may count less
		found = append(found, fmt.Sprintf("the cursors count %d rows, committed were %d", total, rows))
	}
	c := &r.cutter
	t.Logf("%d rows, %d of them sent in the calm; %d owners crashed; %d step-downs, %d servers killed; commits cut: %d before, %d within, "+
		"%d behind the cursor, %d answers late: %d outcomes unknown; %d removals cut, %d sequence resets, %d times cursors lost, %d repairs; %d faults",
		rows, tally.Sent, r.crashes.Load(), s.steps, s.kills, c.before.Load(), c.within.Load(), c.behind.Load(), c.late.Load(),
		c.within.Load()+c.behind.Load()+c.late.Load(), r.removalsCut.Load(), s.resets, s.lost, s.repairs, len(found))
	return found
}

func report(t *testing.T, found []string) {
	t.Helper()
	for _, f := range found[:min(len(found), 10)] {
		t.Error(f)
	}
}

// stepDown makes the leaders of both streams hand over in turn.
func (s *storm) stepDown(cluster *testkit.NATSCluster, every int) func(i int) {
	return func(i int) {
		if i%every == 0 && cluster.StepDown([]string{"MB_JOBS", "MB_EVENTS"}[i/every%2]) == nil {
			s.steps++
		}
	}
}

// Three servers, whose leaders step down all the time.
func TestStress_postgres_cluster(t *testing.T) {
	t.Parallel()
	cluster := testkit.Cluster(t, 3)
	s := &storm{shop: openShop(t), url: cluster.URL(), replicas: 3, last: stressTime(t, 3*time.Second), owners: 2}
	s.weather = s.stepDown(cluster, 3)
	report(t, s.stress(t))
}

// Servers that are killed and come back.
func TestStress_postgres_cluster_loses_servers(t *testing.T) {
	t.Parallel()
	cluster := testkit.Cluster(t, 3)
	s := &storm{shop: openShop(t), url: cluster.URL(), replicas: 3, last: stressTime(t, 4*time.Second), owners: 2}
	down := -1
	s.weather = func(i int) {
		switch i % 14 {
		case 3:
			down = max(cluster.Leader("MB_JOBS"), 0)
			cluster.Kill(down)
			s.kills++
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
	s := &storm{shop: openSQLiteShop(t), url: b.URL(), replicas: 1, last: stressTime(t, 2*time.Second), owners: 3}
	s.weather = func(i int) {
		if i%10 == 5 {
			b.Restart()
			s.kills++
		}
	}
	report(t, s.stress(t))
}

// Cursors that are lost in the middle of the storm, and repaired.
func TestStress_cursors_are_lost_and_repaired(t *testing.T) {
	t.Parallel()
	t.Run("postgres, cluster", func(t *testing.T) {
		t.Parallel()
		cluster := testkit.Cluster(t, 3)
		s := &storm{shop: openShop(t), url: cluster.URL(), replicas: 3, last: stressTime(t, 3*time.Second), owners: 2, loses: 5}
		s.weather = s.stepDown(cluster, 4)
		report(t, s.stress(t))
		s.wantLosses(t)
	})
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		s := &storm{shop: openSQLiteShop(t), url: testkit.NATS(t).URL(), replicas: 1, last: stressTime(t, 2*time.Second), owners: 2, loses: 5}
		report(t, s.stress(t))
		s.wantLosses(t)
	})
}

func (s *storm) wantLosses(t *testing.T) {
	t.Helper()
	if s.lost == 0 || s.repairs == 0 {
		t.Errorf("cursors were lost %d times and repaired %d times: this storm shows nothing", s.lost, s.repairs)
	}
}

// The checker must see what goes wrong when a rule is broken, or it proves nothing. Rules that a storm breaks only with
// luck have a scenario of their own, see [rule]; in the long form a storm must notice them as well.
func TestStress_notices_broken_rules(t *testing.T) {
	t.Parallel()
	rules := map[string]func(s *storm){
		"names are not carried forward": func(s *storm) { s.faults.forgetNames = true },
	}
	if long {
		rules["a removal takes a range of numbers"] = func(s *storm) { s.shop.Store = byRange{s.shop.Store, s.shop} }
		rules["a cursor names its own rows only"] = func(s *storm) { s.faults.nameOwnBatchOnly = true }
	}
	for name, broken := range rules {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := testkit.NATS(t)
			s := &storm{shop: openShop(t), url: b.URL(), replicas: 1, last: 1500 * time.Millisecond, owners: 2}
			broken(s)
			for range 40 {
				if len(s.stress(t)) > 0 {
					return
				}
			}
			t.Error("nothing was noticed")
		})
	}
}
