package brokerdown

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/internal/testkit/proof"
	"github.com/millbridge/millbridge/schema"
)

const producers = 2

// names are all handlers.
var names = []string{"audit", "books", "crm", "till"}

// A traffic is what producers commit, faults or not.
type traffic struct {
	w      *world
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu   sync.Mutex
	errs []error
	want map[string][]string  // keys by handler
	of   map[string][2]string // handler and key by id
}

// publish starts the producers.
func (w *world) publish(pace time.Duration) *traffic {
	if pace == 0 {
		pace = 200 * time.Millisecond
		if long { // otherwise it keeps small machines busy under the race detector, and recovery waits for them
			pace = 100 * time.Millisecond
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	tr := &traffic{w: w, cancel: cancel, want: make(map[string][]string), of: make(map[string][2]string)}
	for p := range producers {
		tr.wg.Go(func() {
			tick := time.NewTicker(pace)
			defer tick.Stop()
			for i := 0; ; i++ {
				select {
				case <-tick.C:
				case <-ctx.Done():
					return
				}
				name := fmt.Sprintf("p%d-%d", p, i)
				if err := tr.commit(ctx, fmt.Sprintf("p%d", p), name, i%4 == 0); err != nil && ctx.Err() == nil {
					tr.mu.Lock()
					tr.errs = append(tr.errs, err)
					tr.mu.Unlock()
					return
				}
			}
		})
	}
	return tr
}

// commit publishes one message for each handler, in one transaction; the ordered target, which is slower, need not get
// one each time.
func (tr *traffic) commit(ctx context.Context, key, name string, ordered bool) error {
	order := schema.WithOrderingKey(key)
	envs := []schema.Envelope{
		schema.NewEvent("order.placed", name, order, schema.WithKey(name)),
		schema.NewJob("books", "post", name, schema.WithKey(name)),
		schema.NewJob("crm", "tell", name, schema.WithKey(name)),
	}
	to := []string{"audit", "books", "crm"}
	if ordered {
		envs, to = append(envs, schema.NewJob("till", "add", name, order, schema.WithKey(name))), append(to, "till")
	}
	// Not cut by the end of the producers: then nobody would know whether it has committed.
	ctx = context.WithoutCancel(ctx)
	err := pgx.BeginFunc(ctx, tr.w.pool, func(tx pgx.Tx) error {
		for i := range envs {
			envs[i].Time = time.Now()
		}
		if _, err := tr.w.store.Append(ctx, tx, envs); err != nil {
			return err
		}
		return tr.w.book.EnterPostgres(ctx, tx, envs...)
	})
	if err != nil {
		return err
	}
	tr.mu.Lock()
	defer tr.mu.Unlock()
	for i, h := range to {
		tr.want[h] = append(tr.want[h], name)
		tr.of[envs[i].ID] = [2]string{h, name}
	}
	return nil
}

// stop ends the producers; a commit that failed is a failure of the test: no fault of the broker may reach it.
func (tr *traffic) stop(t *testing.T) {
	t.Helper()
	tr.cancel()
	tr.wg.Wait()
	for _, err := range tr.errs {
		t.Errorf("publish: %v", err)
	}
	tr.errs = nil
}

// inTx is a handler with its effect in the transaction it is given.
func (w *world) inTx(ctx context.Context, env schema.Envelope) error {
	w.hold()
	tx, err := handlers.Tx[pgx.Tx](ctx)
	if err != nil {
		return err
	}
	call, _ := handlers.CallFrom(ctx)
	return w.book.EffectPostgres(ctx, tx, call.Handler, call.Key, env.ID)
}

// outside is a handler with its effect elsewhere.
func (w *world) outside(ctx context.Context, env schema.Envelope) error {
	w.hold()
	call, _ := handlers.CallFrom(ctx)
	return pgx.BeginFunc(ctx, w.pool, func(tx pgx.Tx) error {
		return w.book.EffectPostgres(ctx, tx, call.Handler, call.Key, env.ID)
	})
}

// handled waits until every handler has had its effect for a message.
func (w *world) handled(t *testing.T, key string) {
	t.Helper()
	late := time.Now().Add(w.recoveryMost * 3 / 4)
	testkit.Eventually(t, w.recoveryMost, func() error {
		rows, err := w.pool.Query(t.Context(), `SELECT handler FROM proof_effects WHERE key = $1`, key)
		if err != nil {
			return err
		}
		by, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return err
		}
		slices.Sort(by)
		if by = slices.Compact(by); !slices.Equal(by, names) {
			where := ""
			if time.Now().After(late) {
				where = w.whereabouts(t)
			}
			return fmt.Errorf("%s was handled by %q; the bridges say %q%s", key, by, w.problems(t), where)
		}
		return nil
	})
}

// whereabouts tells where messages that do not come may be.
func (w *world) whereabouts(t *testing.T) string {
	where := fmt.Sprintf("; in the outbox: %v", slices.Collect(maps.Keys(w.waiting(t))))
	for _, c := range consumers {
		there, err := w.js.Consumer(t.Context(), c.stream, c.name)
		if err != nil {
			where += fmt.Sprintf("; consumer %s: %v", c.name, err)
			continue
		}
		info := there.CachedInfo()
		where += fmt.Sprintf("; consumer %s of %s, from %d, delivered %d, acked %d: %d to ack, %d to come, %d asked for",
			c.name, c.stream, info.Config.OptStartSeq, info.Delivered.Stream, info.AckFloor.Stream, info.NumAckPending, info.NumPending, info.NumWaiting)
	}
	return where
}

// again does harm and repairs it, several times. After each time everything must recover by itself.
func (w *world) again(t *testing.T, times int, fault func(i int)) {
	t.Helper()
	for i := range times {
		fault(i)
		w.faults++
		w.recovers(t)
	}
}

// recovers waits until a message that is committed now has been handled and all is well again.
func (w *world) recovers(t *testing.T) {
	t.Helper()
	began := time.Now()
	probe := fmt.Sprintf("probe-%d", len(w.recovered))
	if err := w.traffic.commit(t.Context(), "probe", probe, true); err != nil {
		t.Fatal(err)
	}
	w.handled(t, probe)
	w.healthy(t)
	w.recovered = append(w.recovered, time.Since(began))
	t.Logf("fault %d: back within %v", w.faults, time.Since(began).Round(10*time.Millisecond))
}

// finish ends the traffic, waits until everything is handled and looks at it.
func (w *world) finish(t *testing.T) {
	t.Helper()
	w.traffic.stop(t)
	w.settle(t)
	report := w.check(t)
	slices.Sort(w.recovered)
	most := time.Duration(0)
	if n := len(w.recovered); n > 0 {
		most = w.recovered[n-1]
	}
	t.Logf("%d faults; %v; recovered within %v", w.faults, report, most.Round(10*time.Millisecond))
}

// drop takes a message out of what must have been handled.
func (tr *traffic) drop(id string) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	of := tr.of[id]
	tr.want[of[0]] = slices.DeleteFunc(tr.want[of[0]], func(key string) bool { return key == of[1] })
}

// settle waits until nothing is in motion.
func (w *world) settle(t *testing.T) {
	t.Helper()
	want := 0
	for _, keys := range w.traffic.want {
		want += len(keys)
	}
	testkit.Eventually(t, 2*patience, func() error {
		var rows, effects int
		err := w.pool.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM millbridge.outbox), (SELECT count(DISTINCT (handler, key)) FROM proof_effects)`).Scan(&rows, &effects)
		switch {
		case err != nil:
			return err
		case rows > 0 || effects < want:
			return fmt.Errorf("%d rows wait, %d of %d effects; the bridges say %q", rows, effects, want, w.problems(t))
		}
		// Acks may still be on their way.
		stream, err := w.js.Stream(t.Context(), "MB_JOBS")
		if err != nil {
			return err
		}
		left, err := stream.Info(t.Context())
		if err != nil {
			return err
		}
		if n := left.State.Msgs; n > shards {
			return fmt.Errorf("%d jobs are left", n-shards)
		}
		return nil
	})
}

// shards is how many cursors a stream holds.
const shards = 2

// check looks at everything from the outside.
func (w *world) check(t *testing.T) proof.Report {
	t.Helper()
	report, err := w.book.Check(t.Context(), w.js, schema.Subjects{})
	if err != nil {
		t.Fatal(err)
	}
	judged := report
	judged.Lost = slices.DeleteFunc(slices.Clone(report.Lost), w.mayBeLost)
	for _, fault := range judged.Faults(true) {
		t.Error(fault)
	}
	effects, err := w.book.Effects(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range names {
		doubled, missing := proof.EffectsOnce(effects, h, w.traffic.want[h])
		if len(doubled)+len(missing) > 0 {
			t.Errorf("%s: %d keys handled twice %.5v, %d never %.5v", h, len(doubled), doubled, len(missing), missing)
		}
	}
	w.inOrder(t, effects)
	w.unharmed(t)
	return report
}

// inOrder checks that the ordered target handled the messages of each producer in their order.
func (w *world) inOrder(t *testing.T, effects []proof.Effect) {
	t.Helper()
	last := make(map[string]int)
	for _, e := range effects {
		producer, number, ok := strings.Cut(e.Key, "-")
		if e.Handler != "till" || !ok {
			continue
		}
		n, err := strconv.Atoi(number)
		if err != nil {
			t.Fatal(err)
		}
		if n < last[producer] {
			t.Errorf("the ordered target handled %s after %d", e.Key, last[producer])
		}
		last[producer] = n
	}
}

// unharmed checks that nothing was parked or given up and that no attempt was used up.
func (w *world) unharmed(t *testing.T) {
	t.Helper()
	var parked, attempts, unfinished int
	err := w.pool.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM millbridge.parked), coalesce(sum(attempts), 0), count(*) FILTER (WHERE state <> 'done')
		FROM millbridge.inbox`).Scan(&parked, &attempts, &unfinished)
	if err != nil {
		t.Fatal(err)
	}
	if parked+attempts+unfinished > 0 {
		t.Errorf("%d rows parked, %d attempts used up, %d keys not done", parked, attempts, unfinished)
	}
	dead, err := w.js.Stream(t.Context(), "MB_DEAD")
	if err != nil {
		t.Fatal(err)
	}
	if n := dead.CachedInfo().State.Msgs; n > 0 {
		t.Errorf("%d dead letters", n)
	}
	for _, n := range []*node{w.sender, w.worker} {
		for _, s := range n.bridge.Health(t.Context()).Shards {
			if s.Vanished > 0 || s.Parked > 0 {
				t.Errorf("%s shard %d: %d rows vanished, %d parked", s.Stream, s.Shard, s.Vanished, s.Parked)
			}
		}
	}
}
