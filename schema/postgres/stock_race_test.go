package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wmsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/schema"
	"github.com/millbridge/millbridge/schema/postgres"
)

// sent records what a stock forwarder sends.
type sent struct {
	mu     sync.Mutex
	got    []string
	killed bool
	hold   func() // called before each message
}

var errKilled = errors.New("the process has been killed")

func (s *sent) Publish(_ string, msgs ...*message.Message) error {
	if s.hold != nil {
		s.hold()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.killed {
		return errKilled
	}
	for _, m := range msgs {
		s.got = append(s.got, m.UUID)
	}
	return nil
}

func (*sent) Close() error { return nil }

func (s *sent) all() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.got)
}

// forward runs a stock forwarder, as its users do, until stop is called.
func (st *stock) forward(to *sent) (stop func()) {
	st.t.Helper()
	to.mu.Lock()
	to.killed = false
	to.mu.Unlock()
	sub, err := wmsql.NewSubscriber(st.db, wmsql.SubscriberConfig{
		SchemaAdapter: st.schema, OffsetsAdapter: wmsql.DefaultPostgreSQLOffsetsAdapter{},
		PollInterval: time.Millisecond, RetryInterval: time.Millisecond, ResendInterval: time.Millisecond,
	}, watermill.NopLogger{})
	if err != nil {
		st.t.Fatal(err)
	}
	fwd, err := forwarder.NewForwarder(sub, to, watermill.NopLogger{}, forwarder.Config{ForwarderTopic: stockTopic})
	if err != nil {
		st.t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- fwd.Run(context.WithoutCancel(st.t.Context())) }()
	<-fwd.Running()
	return sync.OnceFunc(func() {
		if err := errors.Join(fwd.Close(), <-ended); err != nil {
			st.t.Error(err)
		}
	})
}

// lockOut does what the documentation tells operators to do: it stops the stock forwarder where it has nothing in hand. One
// that does not end while its position is locked is killed: whatever it does afterwards, it sends nothing.
func (st *stock) lockOut(stop func(), to *sent) {
	st.t.Helper()
	tx := begin(st.t, st.pool, pgx.ReadCommitted)
	if _, err := tx.Exec(st.t.Context(), `UPDATE "watermill_offsets_forwarder_topic" SET offset_acked = offset_acked WHERE consumer_group = ''`); err != nil {
		st.t.Fatal(err)
	}
	to.mu.Lock()
	to.killed = true
	to.mu.Unlock()
	commit(st.t, tx)
	stop()
}

// once reports ids that are there other than once.
func once(t testing.TB, want []string, got ...string) {
	t.Helper()
	times := map[string]int{}
	for _, id := range got {
		times[id]++
	}
	lost, doubled := 0, 0
	for _, id := range want {
		switch n := times[id]; {
		case n == 0:
			lost++
		case n > 1:
			doubled++
		}
		delete(times, id)
	}
	if lost+doubled+len(times) > 0 {
		t.Errorf("of %d messages %d are lost and %d doubled; %d came that nobody committed", len(want), lost, doubled, len(times))
	}
}

func ofEnvelopes(envs []schema.Envelope) []string {
	out := make([]string, len(envs))
	for i, e := range envs {
		out[i] = e.ID
	}
	return out
}

// The switch, while everybody works: writers with long transactions and rollbacks, the stock forwarder, and two processes
// that move.
func TestStock_beside_a_stock_forwarder_and_writers(t *testing.T) {
	t.Parallel()
	st := newStock(t, "JSON")
	to := &sent{}
	stop := st.forward(to)
	var mu sync.Mutex
	var committed []string
	var writers, movers sync.WaitGroup
	var failures atomic.Int32
	fail := func(err error) {
		if err != nil && failures.Add(1) < 5 {
			t.Error(err)
		}
	}
	for w := range 4 {
		rnd := rand.New(rand.NewPCG(uint64(w), 1))
		writers.Go(func() {
			for range 120 {
				tx, err := st.db.BeginTx(t.Context(), nil)
				if err != nil {
					fail(err)
					return
				}
				var ids []string
				for range 1 + rnd.IntN(3) {
					msgs := make(message.Messages, 1+rnd.IntN(4))
					for i := range msgs {
						msgs[i] = message.NewMessage(watermill.NewUUID(), []byte(`{}`))
						ids = append(ids, msgs[i].UUID)
					}
					fail(publishStock(tx, st.schema, fmt.Sprintf("jobs.mail.w%d", w), msgs...))
					if rnd.IntN(10) == 0 { // stays open for a while
						_, err = tx.ExecContext(t.Context(), `SELECT pg_sleep(0.02)`)
						fail(err)
					}
				}
				if rnd.IntN(5) == 0 {
					fail(tx.Rollback())
					continue
				}
				fail(tx.Commit())
				mu.Lock()
				committed = append(committed, ids...)
				mu.Unlock()
			}
		})
	}
	done := make(chan struct{})
	begun := make(chan struct{})
	for range 2 {
		m := st.mover(schema.StockRules{})
		movers.Go(func() {
			<-begun
			for end := false; ; {
				res, err := m.Feed(t.Context())
				fail(err)
				if err != nil || end && res == (schema.FeedResult{}) {
					return
				}
				select {
				case <-done:
					end = true
				default:
				}
			}
		})
	}
	testkit.Eventually(t, time.Minute, func() error { // it has its share
		if n := len(to.all()); n < 200 {
			return fmt.Errorf("the stock forwarder has sent %d messages", n)
		}
		return nil
	})
	close(begun)
	testkit.Eventually(t, time.Minute, func() error { // and so have we
		if n := st.count(`SELECT count(*) FROM millbridge.outbox`); n < 100 {
			return fmt.Errorf("%d messages are moved", n)
		}
		return nil
	})
	st.lockOut(stop, to)
	writers.Wait()
	close(done)
	movers.Wait()
	moved := ofEnvelopes(st.moved())
	once(t, committed, append(to.all(), moved...)...)
	t.Logf("%d committed, the stock forwarder has sent %d, %d are moved", len(committed), len(to.all()), len(moved))
}

// The stock forwarder reads its rows before it waits for its position.
func TestStock_a_stock_forwarder_that_has_read_and_waits_begins_anew(t *testing.T) {
	t.Parallel()
	st := newStock(t, "JSON")
	to := &sent{}
	st.forward(to)() // it has its position
	msgs := st.commit("jobs.mail.send", "1", "2", "3")
	holder := begin(t, st.pool, pgx.ReadCommitted)
	if _, err := holder.Exec(t.Context(), `SELECT FROM "watermill_offsets_forwarder_topic" FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	moved := make(chan error, 1)
	go func() { // first in the queue
		_, err := st.mover(schema.StockRules{}).Feed(t.Context())
		moved <- err
	}()
	blocked(t, st.pool, 1)
	stop := st.forward(to)
	blocked(t, st.pool, 2)
	commit(t, holder)
	if err := <-moved; err != nil {
		t.Fatal(err)
	}
	later := st.commit("jobs.mail.send", "4")
	testkit.Eventually(t, time.Minute, func() error {
		if got := to.all(); len(got) == 0 || got[len(got)-1] != later[0].UUID {
			return fmt.Errorf("the stock forwarder has sent %d messages, want the last", len(got))
		}
		return nil
	})
	stop()
	want := []string{later[0].UUID}
	for _, m := range msgs {
		want = append(want, m.UUID)
	}
	once(t, want, append(to.all(), ofEnvelopes(st.moved())...)...)
}

func TestStock_gives_way_to_a_stock_forwarder_that_does_not_go_on(t *testing.T) {
	t.Parallel()
	st := newStock(t, "JSON")
	held, release := make(chan struct{}), make(chan struct{})
	to := &sent{hold: sync.OnceFunc(func() { close(held); <-release })}
	stop := st.forward(to)
	msgs := st.commit("jobs.mail.send", "1")
	<-held
	m := st.mover(schema.StockRules{})
	res, err := m.Feed(t.Context())
	if err != nil || res.Waits == "" || res.Moved > 0 {
		t.Errorf("feed: %+v, %v; want that it says what it waits for", res, err)
	}
	close(release)
	testkit.Eventually(t, time.Minute, func() error {
		if len(to.all()) != 1 {
			return errors.New("nothing is sent")
		}
		return nil
	})
	st.lockOut(stop, to)
	feed(t, m)
	once(t, []string{msgs[0].UUID}, append(to.all(), ofEnvelopes(st.moved())...)...)
}

// Rows of history stay in a stock table for ever.
func TestStock_leaves_alone_what_was_acknowledged(t *testing.T) {
	t.Parallel()
	st := newStock(t, "JSON")
	to := &sent{}
	stop := st.forward(to)
	old := st.commit("jobs.mail.send", "1", "2")
	testkit.Eventually(t, time.Minute, func() error {
		if len(to.all()) != 2 {
			return errors.New("not all is sent")
		}
		return nil
	})
	st.lockOut(stop, to)
	m := st.mover(schema.StockRules{})
	if state, err := m.State(t.Context()); err != nil || state.Rows != 0 {
		t.Errorf("state: %+v, %v", state, err)
	}
	fresh := st.commit("jobs.mail.send", "3")
	feed(t, m)
	wantPayloads(t, st.moved(), "3")
	if n := st.rows(); n != len(old) {
		t.Errorf("%d rows are left, want the %d that were acknowledged", n, len(old))
	}
	// Back to the stock forwarder: it goes on where we have ended.
	last := st.commit("jobs.mail.send", "4")
	stop = st.forward(to)
	testkit.Eventually(t, time.Minute, func() error {
		if got := to.all(); len(got) != 3 || got[2] != last[0].UUID {
			return fmt.Errorf("the stock forwarder has sent %d messages", len(got))
		}
		return nil
	})
	stop()
	once(t, []string{old[0].UUID, old[1].UUID, fresh[0].UUID, last[0].UUID}, append(to.all(), ofEnvelopes(st.moved())...)...)
}

// A cutter ends a connection's session before the n-th thing that is asked.
type cutter struct {
	by *pgxpool.Pool
	n  atomic.Int32
}

func (c *cutter) cut(ctx context.Context, conn *pgx.Conn) context.Context {
	if c.n.Add(-1) == 0 {
		_, _ = c.by.Exec(ctx, `SELECT pg_terminate_backend($1::integer, 10000)`, int32(conn.PgConn().PID()))
	}
	return ctx
}

func (c *cutter) TraceQueryStart(ctx context.Context, conn *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return c.cut(ctx, conn)
}
func (*cutter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (c *cutter) TraceBatchStart(ctx context.Context, conn *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return c.cut(ctx, conn)
}
func (*cutter) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (*cutter) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

func TestStock_cut_off_at_each_step(t *testing.T) {
	t.Parallel()
	st := newStock(t, "JSON")
	cfg, err := pgxpool.ParseConfig(testkit.DirectPostgresURL(t, st.pool)) // a pooler would hide which connection is cut
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{by: st.pool}
	cfg.ConnConfig.Tracer = c
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	var want []string
	cuts := 0
	for step := int32(1); ; step++ {
		for _, m := range st.commit("jobs.mail.send", "1", "2", "3") {
			want = append(want, m.UUID)
		}
		m, err := postgres.New(pool, postgres.Options{}).NewStock(postgres.StockTable{Topic: stockTopic, Rules: schema.StockRules{OrderingKey: "key"}})
		if err != nil {
			t.Fatal(err)
		}
		c.n.Store(step)
		_, err = m.Feed(t.Context())
		if done := c.n.Load() > 0; done && err == nil {
			break
		}
		if err == nil {
			t.Errorf("cut before step %d, and there is no error", step)
		}
		if schema.KindOf(err) != schema.Temporary {
			t.Errorf("cut before step %d: %v is %v, want temporary", step, err, schema.KindOf(err))
		}
		cuts++
		feed(t, m) // the same one goes on
		if n := st.rows(); n != 0 {
			t.Errorf("after a cut before step %d %d rows are left", step, n)
		}
	}
	if cuts < 8 {
		t.Errorf("%d steps were cut, there are more", cuts)
	}
	once(t, want, ofEnvelopes(st.moved())...)
}

func TestStock_somebody_else_deletes_rows(t *testing.T) {
	t.Parallel()
	st := newStock(t, "JSON")
	msgs := st.commit("jobs.mail.send", "1", "2", "3")
	tx := begin(t, st.pool, pgx.ReadCommitted)
	if _, err := tx.Exec(t.Context(), `DELETE FROM "watermill_forwarder_topic" WHERE "offset" = 2`); err != nil {
		t.Fatal(err)
	}
	m := st.mover(schema.StockRules{})
	moved := make(chan error, 1)
	go func() {
		_, err := m.Feed(t.Context())
		moved <- err
	}()
	blocked(t, st.pool, 1)
	commit(t, tx)
	if err := <-moved; !errors.Is(err, schema.ErrRetryTransaction) || schema.KindOf(err) != schema.Temporary {
		t.Errorf("error %v, want that it is to be tried again", err)
	}
	feed(t, m)
	once(t, []string{msgs[0].UUID, msgs[2].UUID}, ofEnvelopes(st.moved())...)
}

// The stock forwarder works between a look and the step that moves what was found.
func TestStock_a_position_that_has_moved_since_the_look(t *testing.T) {
	t.Parallel()
	st := newStock(t, "JSON")
	m := st.mover(schema.StockRules{})
	big := make([]string, 0, 1500) // more than one step takes
	for i := range cap(big) {
		big = append(big, fmt.Sprint(i))
	}
	msgs := st.commit("jobs.mail.send", big...)
	if res, err := m.Feed(t.Context()); err != nil || !res.More {
		t.Fatalf("first step: %+v, %v", res, err)
	}
	to := &sent{}
	stop := st.forward(to)
	testkit.Eventually(t, time.Minute, func() error {
		if n := len(to.all()); n < 300 {
			return fmt.Errorf("the stock forwarder has sent %d messages", n)
		}
		return nil
	})
	st.lockOut(stop, to)
	feed(t, m) // the look was before
	var want []string
	for _, msg := range msgs {
		want = append(want, msg.UUID)
	}
	once(t, want, append(to.all(), ofEnvelopes(st.moved())...)...)
}

func TestStock_one_moves_at_a_time(t *testing.T) {
	t.Parallel()
	st := newStock(t, "JSON")
	a, b := st.mover(schema.StockRules{}), st.mover(schema.StockRules{})
	feed(t, a)
	feed(t, b)
	st.commit("jobs.mail.send", "1")
	holder := begin(t, st.pool, pgx.ReadCommitted)
	if _, err := holder.Exec(t.Context(), `SELECT FROM "watermill_offsets_forwarder_topic" FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	moved := make(chan error, 1)
	go func() {
		_, err := a.Feed(t.Context())
		moved <- err
	}()
	blocked(t, st.pool, 1) // it is in, and waits
	if res, err := b.Feed(t.Context()); err != nil || !strings.Contains(res.Waits, "another process") {
		t.Errorf("the second: %+v, %v; want that it gives way at once", res, err)
	}
	commit(t, holder)
	if err := <-moved; err != nil {
		t.Fatal(err)
	}
	feed(t, b)
	wantPayloads(t, st.moved(), "1")
}
