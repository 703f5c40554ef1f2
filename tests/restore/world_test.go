package restore

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/millbridge/millbridge/internal/cli"
	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/internal/testkit/proof"
	"github.com/millbridge/millbridge/publishers/jetstream"
	"github.com/millbridge/millbridge/schema"
	"github.com/millbridge/millbridge/schema/postgres"
)

// runMain makes the test's own binary the program, so that it can be killed.
const runMain = "MILLBRIDGE_TEST_RUN_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(runMain) != "" {
		os.Exit(cli.Main(context.Background(), os.Args[1:], cli.Env{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Now: time.Now, Getenv: os.Getenv}))
	}
	os.Exit(m.Run())
}

// A world is a database and the server whose streams it feeds.
type world struct {
	*testing.T
	url   string
	pool  *pgxpool.Pool
	store *postgres.Store
	nats  *testkit.Server
	js    natsjs.JetStream
	book  *proof.Book
}

func newWorld(t *testing.T, url string, server *testkit.Server) *world {
	t.Helper()
	pool, err := pgxpool.New(context.Background(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	w := &world{T: t, url: url, pool: pool, store: postgres.New(pool, postgres.Options{}), nats: server, js: server.JetStream(t), book: proof.OnPostgres(pool)}
	t.Cleanup(w.store.Close)
	if err := w.book.Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	return w
}

// first makes a world with streams and a database of its own.
func first(t *testing.T) *world {
	t.Helper()
	pool, server := testkit.Postgres(t), testkit.NATS(t)
	w := newWorld(t, testkit.PostgresURL(pool), server)
	w.streams()
	return w
}

func (w *world) streams() {
	w.Helper()
	if err := jetstream.EnsureStreams(w.Context(), w.js, jetstream.StreamsConfig{}); err != nil {
		w.Fatal(err)
	}
}

func (w *world) flags() []string {
	return []string{"--database-url", w.url, "--nats-url", w.nats.URL(), "--set", "nats.replicas=1"}
}

// A result is what a command answered.
type result struct {
	args           []string
	code           int
	stdout, stderr string
}

func (r result) String() string {
	return fmt.Sprintf("%v: exit code %d\n%s%s", r.args, r.code, r.stdout, r.stderr)
}

func (w *world) run(args ...string) result { return w.runContext(w.Context(), args...) }

func (w *world) runContext(ctx context.Context, args ...string) result {
	var out, errs bytes.Buffer
	code := cli.Main(ctx, append(args, w.flags()...), cli.Env{
		Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs, Now: time.Now, Getenv: func(string) string { return "" },
	})
	return result{args, code, out.String(), errs.String()}
}

// want runs a command that has to end with code and say all of this.
func (w *world) want(code int, args []string, says ...string) result {
	w.Helper()
	r := w.run(args...)
	if r.code != code {
		w.Fatalf("want exit code %d of %s", code, r)
	}
	for _, s := range says {
		if !strings.Contains(r.stdout+r.stderr, s) {
			w.Errorf("%q is not said by %s", s, r)
		}
	}
	return r
}

func args(s string) []string { return strings.Fields(s) }

// drain sends what can be sent.
func (w *world) drain() {
	w.Helper()
	w.want(0, args("run --drain"))
}

// bridge runs a bridge beside the test, until the returned function is called.
func (w *world) bridge() (stop func()) {
	w.Helper()
	ctx, cancel := context.WithCancel(w.Context())
	done := make(chan result, 1)
	go func() { done <- w.runContext(ctx, "run") }()
	stop = func() {
		cancel()
		if r, ok := <-done; ok && r.code != 0 {
			w.Errorf("the bridge ended: %s", r)
		}
		close(done)
	}
	return stop
}

// publish publishes messages in one transaction that also enters them into the book.
func (w *world) publish(envs ...schema.Envelope) []schema.Envelope {
	w.Helper()
	err := pgx.BeginFunc(w.Context(), w.pool, func(tx pgx.Tx) error {
		if _, err := w.store.Append(w.Context(), tx, envs); err != nil {
			return err
		}
		return w.book.EnterPostgres(w.Context(), tx, envs...)
	})
	if err != nil {
		w.Fatal(err)
	}
	return envs
}

// some makes n jobs in order, as many without a key, and half as many events.
func some(n int) (envs []schema.Envelope) {
	key := schema.WithOrderingKey("one")
	for i := range n {
		envs = append(envs, schema.NewJob("crm", "ordered", i, key), schema.NewJob("crm", "plain", i))
		if i%2 == 0 {
			envs = append(envs, schema.NewEvent("paid", i, key))
		}
	}
	return envs
}

// rounds sends messages in so many batches that the cursor forgets what it named before.
func (w *world) rounds() (all []schema.Envelope) {
	w.Helper()
	f, err := jetstream.NewForwarder(jetstream.StoreOf(w.store), w.js.Conn(), jetstream.ForwarderConfig{})
	if err != nil {
		w.Fatal(err)
	}
	for range schema.MaxCursorBatches + 2 {
		all = append(all, w.publish(some(4)...)...)
		if _, err := f.Drain(w.Context()); err != nil {
			w.Fatal(err)
		}
	}
	return all
}

// handle takes n jobs with a subject out of the stream, as a handler does, and returns their ids.
func (w *world) handle(name string, n int) map[string]bool {
	w.Helper()
	c, err := w.js.CreateOrUpdateConsumer(w.Context(), "MB_JOBS", natsjs.ConsumerConfig{
		Durable: name, FilterSubject: "mb.jobs.crm." + name, AckPolicy: natsjs.AckExplicitPolicy,
	})
	if err != nil {
		w.Fatal(err)
	}
	ids := make(map[string]bool)
	batch, err := c.Fetch(n, natsjs.FetchMaxWait(20*time.Second))
	if err != nil {
		w.Fatal(err)
	}
	for m := range batch.Messages() {
		if err := m.DoubleAck(w.Context()); err != nil {
			w.Fatal(err)
		}
		ids[m.Headers().Get(schema.HeaderID)] = true
	}
	if len(ids) != n {
		w.Fatalf("%d of %d jobs were there", len(ids), n)
	}
	return ids
}

// each calls f for the messages of all outboxes in the streams.
func (w *world) each(f func(id, source string)) {
	w.Helper()
	for _, name := range []string{"MB_JOBS", "MB_EVENTS"} {
		s, err := w.js.Stream(w.Context(), name)
		if err != nil {
			w.Fatal(err)
		}
		for seq := uint64(1); ; {
			m, err := s.GetMsg(w.Context(), seq, natsjs.WithGetMsgSubject("mb.>"))
			if errors.Is(err, natsjs.ErrMsgNotFound) {
				break
			}
			if err != nil {
				w.Fatal(err)
			}
			if id := m.Header.Get(schema.HeaderID); id != "" {
				f(id, m.Header.Get(schema.HeaderSource))
			}
			seq = m.Sequence + 1
		}
	}
}

// stored counts the messages in the streams, by id.
func (w *world) stored() map[string]int {
	w.Helper()
	times := make(map[string]int)
	w.each(func(id, _ string) { times[id]++ })
	return times
}

// sources returns where each stored message comes from.
func (w *world) sources() map[string]string {
	w.Helper()
	from := make(map[string]string)
	w.each(func(id, source string) { from[id] = source })
	return from
}

// source is what the messages of this database's outbox carry.
func (w *world) source() string {
	w.Helper()
	info, err := w.store.Info(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	return schema.SourceOf(info.ID)
}

// check compares the book with the streams. Of what else is stored it returns the ids.
func (w *world) check() (others []string) {
	w.Helper()
	report, err := w.book.Check(w.Context(), w.js, schema.Subjects{})
	if err != nil {
		w.Fatal(err)
	}
	others, report.Invented = report.Invented, nil
	if faults := report.Faults(true); len(faults) > 0 || report.Waiting > 0 {
		w.Errorf("%s: %v", report, faults)
	}
	return others
}

// A plan is what `repair --json` says.
type plan struct {
	Needed, Applied bool
	Plan, Undecided []string
	Rows            []struct{ ID, Subject, Where string }
}

func (w *world) plan(code int, more string) plan {
	w.Helper()
	r := w.want(code, args("repair --json "+more))
	var p plan
	if err := json.Unmarshal([]byte(r.stdout), &p); err != nil {
		w.Fatalf("%v in %s", err, r)
	}
	return p
}

func (p plan) says(t *testing.T, parts ...string) {
	t.Helper()
	text := strings.Join(append(p.Plan, p.Undecided...), "\n")
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("the plan does not say %q:\n%s", part, text)
		}
	}
}

// fine checks that nothing is left to repair.
func (w *world) fine() {
	w.Helper()
	w.want(0, args("repair"), "nothing to repair")
	if r := w.run("status"); strings.Contains(r.stdout, "is stopped") {
		w.Errorf("after the repair: %s", r)
	}
}

func ids(envs []schema.Envelope) map[string]bool {
	set := make(map[string]bool)
	for _, e := range envs {
		set[e.ID] = true
	}
	return set
}
