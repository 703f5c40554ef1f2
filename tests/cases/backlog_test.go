package cases

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/millbridge/millbridge/internal/ops"
	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/router"
	"github.com/millbridge/millbridge/schema"
)

// readers is a store that remembers the readers it gives to a forwarder.
type readers struct {
	router.Store
	mu  sync.Mutex
	all map[schema.ShardRef]schema.RowReader
}

func (r *readers) RowReader(ref schema.ShardRef, shards int) schema.RowReader {
	reader := r.Store.RowReader(ref, shards)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all[ref] = reader
	return reader
}

// read looks at the shards of a stream once, as a forwarder does that has sent nothing of what it finds.
func (r *readers) read(t *testing.T, stream schema.Stream) (rows int, took time.Duration) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for ref, reader := range r.all {
		if ref.Stream != stream {
			continue
		}
		began := time.Now()
		got, err := reader.Read(t.Context(), schema.ReadParams{})
		took += time.Since(began)
		if err != nil {
			t.Fatal(err)
		}
		rows += len(got)
	}
	return rows, took
}

// oldSnapshot keeps a transaction open that sees the database as it is now.
func (w *world) oldSnapshot(t *testing.T) {
	t.Helper()
	if w.pg != nil {
		tx, err := w.pg.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
		if _, err := tx.Exec(t.Context(), `SELECT count(*) FROM orders`); err != nil {
			t.Fatal(err)
		}
		return
	}
	tx, err := w.read.BeginTx(context.WithoutCancel(t.Context()), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback() })
	var n int
	if err := tx.QueryRowContext(t.Context(), `SELECT count(*) FROM orders`).Scan(&n); err != nil {
		t.Fatal(err)
	}
}

// begin forwards until the returned function ends it; r keeps the readers.
func (w *world) begin(t *testing.T, r *readers) (stop func()) {
	t.Helper()
	b := w.openWith(t, func(c *router.Config) { c.Store = r })
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- b.Run(ctx) }()
	return sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("run: %v", err)
		}
	})
}

func (w *world) sent(t *testing.T, n int) {
	t.Helper()
	testkit.Eventually(t, 2*time.Minute, func() error {
		if got := w.ledger(t, schema.Events); got != int64(n) {
			return fmt.Errorf("%d events sent, want %d", got, n)
		}
		return nil
	})
}

// Rows flow for long while an old snapshot keeps what is deleted in the table, and the inbox is full of history. A look
// at what waits costs what it costs in a database without a past.
func TestC31_old_snapshot(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		fresh := onSQLite
		if w.pg != nil {
			fresh = onPostgres
		}
		worlds := []*world{w, fresh(t)}
		flow, waiting := number(20_000, 90_000), number(20, 10_000)
		if w.pg == nil && !long {
			flow = 2_000 // a file keeps no deleted rows in its tables
		}
		w.oldSnapshot(t)
		history(t, w, number(20_000, 5_000_000))
		used := make([]*readers, len(worlds))
		for i, x := range worlds {
			used[i] = &readers{Store: x.store, all: make(map[schema.ShardRef]schema.RowReader)}
			stop := x.begin(t, used[i])
			total := 10
			if i == 0 {
				total = flow
			}
			events := func(n int) (envs []schema.Envelope) {
				for range n {
					envs = append(envs, schema.NewEvent("happened", nil))
				}
				return envs
			}
			for n := total; n > 0; n -= 200 {
				x.publish(t, events(min(n, 200))...)
				if long { // 500 a second, for three minutes
					<-time.After(400 * time.Millisecond)
				}
			}
			x.sent(t, total)
			stop()
			for n := waiting; n > 0; n -= 500 {
				x.publish(t, events(min(n, 500))...)
			}
		}
		var took [2][]time.Duration
		for range 40 { // in turns, so that a busy machine is the same for both
			for i, r := range used {
				rows, d := r.read(t, schema.Events)
				if rows < min(waiting, schema.MaxBatchRows) {
					t.Fatalf("%d rows were read, %d wait", rows, waiting)
				}
				took[i] = append(took[i], d)
			}
		}
		past, none := median(took[0]), median(took[1])
		t.Logf("a look at %d rows takes %v after %d others, %v without", waiting, past, flow, none)
		if past > 3*none+time.Millisecond {
			t.Errorf("a look takes %v with a past and %v without", past, none)
		}
		if limit := 250 * time.Millisecond; past > limit {
			t.Errorf("a look takes %v, want at most %v", past, limit)
		}
		w.statusIsQuick(t)
	})
}

// history fills inbox and keys with what was handled.
func history(t *testing.T, w *world, n int) {
	t.Helper()
	w.exec(t, `INSERT INTO millbridge.inbox (hash, body_hash, state, handler, message_id)
		SELECT decode(lpad(to_hex(g), 64, '0'), 'hex'), '', 'done', 'old', 'm' || g FROM generate_series(1, $1::integer) AS g`,
		`WITH RECURSIVE s(g) AS (SELECT 1 UNION ALL SELECT g + 1 FROM s WHERE g < ?)
		INSERT INTO millbridge_inbox (key_hash, handler, state, message_id, body_hash, updated_at, since)
		SELECT randomblob(32), 'old', 'done', 'm' || g, x'', unixepoch() * 1000000000, unixepoch() * 1000000000 FROM s`, n)
}

func (w *world) operator(t *testing.T) *ops.Service {
	t.Helper()
	return ops.New(w.store.(ops.Store), testkit.JetStream(t, w.conn), ops.Config{Leases: w.pg != nil})
}

func (w *world) statusIsQuick(t *testing.T) {
	t.Helper()
	var st ops.Status
	var took time.Duration
	for range 5 { // the machine may be busy with other tests
		began := time.Now()
		st = w.operator(t).Status(t.Context())
		if took = time.Since(began); took <= 2*time.Second {
			break
		}
	}
	if took > 2*time.Second {
		t.Errorf("status took %v", took)
	}
	for _, part := range []string{"database", "backlogs", "shards", "streams", "dead letters"} {
		for _, reason := range st.Reasons {
			if len(reason) > len(part) && reason[:len(part)] == part {
				t.Errorf("status says %s", reason)
			}
		}
	}
	if len(st.Backlogs) == 0 {
		t.Errorf("status shows no backlog: %+v", st)
	}
}

// Many messages were given up, at the forwarder and by handlers: the list comes in pages, each as quick as the first.
func TestC31_many_poison_messages(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		parked, letters := number(3_000, 50_000), number(500, 50_000)
		w.open(t) // makes the streams
		w.exec(t, `INSERT INTO millbridge.parked (seq, created_at, id, slot, behind, stream, subject, header, payload, reason)
			SELECT g, now(), gen_random_uuid(), g % 65536, false, 'jobs', 'jobs.crm.update', '', 'x', 'too large' FROM generate_series(1, $1::integer) AS g`,
			`WITH RECURSIVE s(g) AS (SELECT 1 UNION ALL SELECT g + 1 FROM s WHERE g < ?)
			INSERT INTO millbridge_parked (seq, id, stream, slot, subject, created_at, header, payload, reason, behind, parked_at)
			SELECT g, randomblob(16), 'jobs', g % 65536, 'jobs.crm.update', unixepoch() * 1000000000, x'', x'78', 'too large', 0, unixepoch() * 1000000000 FROM s`, parked)
		w.buryMany(t, letters)
		o := w.operator(t)
		seen := make(map[string]bool)
		after := ""
		var pages []time.Duration
		for {
			began := time.Now()
			items, next, err := o.Poison(t.Context(), ops.PoisonQuery{After: after, Limit: 500})
			pages = append(pages, time.Since(began))
			if err != nil {
				t.Fatal(err)
			}
			if len(items) > 500 {
				t.Fatalf("a page has %d messages", len(items))
			}
			for _, i := range items {
				if seen[i.ID] {
					t.Fatalf("%s is on two pages", i.ID)
				}
				seen[i.ID] = true
			}
			if after = next; next == "" {
				break
			}
		}
		if len(seen) != parked+letters {
			t.Errorf("%d messages on %d pages, want %d", len(seen), len(pages), parked+letters)
		}
		if m := median(pages); m > 2*time.Second {
			t.Errorf("half of the pages took %v and more", m)
		}
		w.statusIsQuick(t)
	})
}

// buryMany writes dead letters.
func (w *world) buryMany(t *testing.T, n int) {
	t.Helper()
	env := schema.NewJob("crm", "update", []byte("x"))
	header, err := schema.ParseHeader(schema.EncodeHeader(env))
	if err != nil {
		t.Fatal(err)
	}
	letter := schema.DeadLetter{
		Handler: "crm", Cause: schema.CauseExhausted, Reason: "error: boom", Attempts: 3, Time: time.Now(),
		Stream: schema.Jobs, Subject: schema.Subjects{}.Full(env.Subject()), Header: header, Payload: env.Payload,
	}
	js := testkit.JetStream(t, w.conn)
	acks := make([]natsjs.PubAckFuture, 0, n)
	for i := range n {
		letter.ID = fmt.Sprintf("letter-%d", i)
		h, body := letter.Encode()
		msg := &nats.Msg{Subject: schema.Subjects{}.Dead(schema.Jobs, "crm", letter.ID, 0), Header: h, Data: body}
		ack, err := js.PublishMsgAsync(msg, natsjs.WithStallWait(20*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		acks = append(acks, ack)
	}
	for _, ack := range acks {
		select {
		case <-ack.Ok():
		case err := <-ack.Err():
			t.Fatal(err)
		case <-time.After(time.Minute):
			t.Fatal("the letters were not stored")
		}
	}
}
