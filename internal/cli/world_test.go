package cli_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/millbridge/millbridge/internal/cli"
	"github.com/millbridge/millbridge/internal/deadletters"
	"github.com/millbridge/millbridge/internal/embedded"
	"github.com/millbridge/millbridge/internal/ops"
	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/publishers/jetstream"
	"github.com/millbridge/millbridge/router"
	"github.com/millbridge/millbridge/schema"
	"github.com/millbridge/millbridge/schema/postgres"
)

// world is a place the command line works on, with a way in for the test.
type world struct {
	flags    []string
	store    store
	sends    jetstream.Store // the same, for a forwarder
	js       natsjs.JetStream
	subjects schema.Subjects
	pool     *pgxpool.Pool // one of the two
	db       *sql.DB
	logger   *slog.Logger // of bridges; nil logs nothing
}

type store interface {
	ops.Store
	router.Store
}

// everywhere runs a test on the embedded default, which the test's process runs as another one would, and on
// PostgreSQL and a NATS server.
func everywhere(t *testing.T, test func(t *testing.T, w *world)) {
	t.Parallel()
	t.Run("embedded", func(t *testing.T) {
		t.Parallel()
		test(t, embeddedWorld(t))
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		test(t, postgresWorld(t))
	})
}

func embeddedWorld(t *testing.T) *world {
	t.Helper()
	in, err := embedded.Open(t.Context(), t.TempDir(), embedded.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := in.Close(); err != nil {
			t.Error(err)
		}
	})
	w := &world{flags: []string{"--data-dir", in.Dir}, store: in.Store, sends: jetstream.StoreOf(in.Store), js: testkit.JetStream(t, in.Conn()), db: in.DB.Write}
	w.ensureStreams(t)
	return w
}

func postgresWorld(t *testing.T) *world {
	t.Helper()
	pool, server := testkit.Postgres(t), testkit.NATS(t)
	st := postgres.New(pool, postgres.Options{})
	t.Cleanup(st.Close)
	w := &world{
		flags: []string{"--database-url", testkit.PostgresURL(pool), "--nats-url", server.URL()},
		store: st, sends: jetstream.StoreOf(st), js: server.JetStream(t), pool: pool,
	}
	w.ensureStreams(t)
	return w
}

func (w *world) ensureStreams(t *testing.T) {
	t.Helper()
	if err := jetstream.EnsureStreams(t.Context(), w.js, jetstream.StreamsConfig{}); err != nil {
		t.Fatal(err)
	}
}

// result is what a command answered.
type result struct {
	code           int
	stdout, stderr string
}

func (r result) String() string {
	return fmt.Sprintf("exit code %d\n--- stdout\n%s--- stderr\n%s", r.code, r.stdout, r.stderr)
}

// objects decodes the lines of --json.
func (r result) objects(t *testing.T) []map[string]any {
	t.Helper()
	var list []map[string]any
	dec := json.NewDecoder(strings.NewReader(r.stdout))
	for {
		var v map[string]any
		err := dec.Decode(&v)
		if err == io.EOF {
			return list
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, r)
		}
		if v["version"] != 1.0 {
			t.Fatalf("no version in %v", v)
		}
		list = append(list, v)
	}
}

// call runs one command line outside any world.
func call(t *testing.T, stdin string, vars map[string]string, args ...string) result {
	t.Helper()
	return callContext(t.Context(), stdin, vars, args...)
}

// inTerminal runs one command line where a person answers.
func inTerminal(t *testing.T, answer string, args ...string) result {
	t.Helper()
	var out, errs bytes.Buffer
	code := cli.Main(t.Context(), args, cli.Env{
		Stdin: strings.NewReader(answer), Stdout: &out, Stderr: &errs, Now: time.Now, InTerminal: true, Getenv: func(string) string { return "" },
	})
	return result{code, out.String(), errs.String()}
}

func callContext(ctx context.Context, stdin string, vars map[string]string, args ...string) result {
	var out, errs bytes.Buffer
	code := cli.Main(ctx, args, cli.Env{
		Stdin: strings.NewReader(stdin), Stdout: &out, Stderr: &errs, Now: time.Now, Getenv: func(name string) string { return vars[name] },
	})
	return result{code, out.String(), errs.String()}
}

// run runs a command in the world.
func (w *world) run(t *testing.T, args ...string) result {
	t.Helper()
	return call(t, "", nil, append(args, w.flags...)...)
}

// must runs a command that has to succeed.
func (w *world) must(t *testing.T, args ...string) result {
	t.Helper()
	r := w.run(t, args...)
	if r.code != 0 {
		t.Fatalf("%v: %s", args, r)
	}
	return r
}

func contains(t *testing.T, text string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
}

// forward empties the outbox into the streams.
func (w *world) forward(t *testing.T) {
	t.Helper()
	f, err := jetstream.NewForwarder(w.sends, w.js.Conn(), jetstream.ForwarderConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// die makes one job that was given up by its target, the way a router does.
func (w *world) die(t *testing.T, target, reason string, opts ...schema.Option) schema.Envelope {
	t.Helper()
	info, err := w.store.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	env := schema.NewJob(target, "contact.update", map[string]string{"for": target}, opts...)
	header, err := schema.ParseHeader(schema.EncodeHeader(env))
	if err != nil {
		t.Fatal(err)
	}
	header[schema.HeaderSource] = []string{schema.SourceOf(info.ID)}
	env.Source = schema.SourceOf(info.ID)
	run := schema.Run{
		Key: schema.InboxKeyOf(target, env), Owner: schema.NewID(), MessageID: env.ID, BodyHash: env.BodyHash(), Lease: time.Minute,
	}
	if _, err := w.store.Claim(t.Context(), run); err != nil {
		t.Fatal(err)
	}
	if _, err := w.store.Fail(t.Context(), run, schema.Failure{Reason: reason, Attempted: true, Dead: true, Cause: schema.CauseExhausted}); err != nil {
		t.Fatal(err)
	}
	letter := schema.DeadLetter{
		Handler: target, ID: env.ID, Key: run.Key.Hash(), Cause: schema.CauseExhausted, Reason: reason, Attempts: 3, Deliveries: 3, Time: time.Now(),
		Stack: "goroutine 1 [running]:\n\tboom()", Stream: schema.Jobs, Subject: w.subjects.Full(env.Subject()), Sequence: 7, Header: header, Payload: env.Payload,
	}
	if err := deadletters.New(w.js, w.subjects, 0).Write(t.Context(), letter); err != nil {
		t.Fatal(err)
	}
	return env
}

// spoil makes the outbox row of a message one that cannot be read, as a bug or a foreign writer would.
func (w *world) spoil(t *testing.T, id string) {
	t.Helper()
	row := schema.RowID(id)
	if w.pool != nil {
		tag, err := w.pool.Exec(t.Context(), "UPDATE millbridge.outbox SET header = 'not a header' WHERE id = $1", row.String())
		if err != nil || tag.RowsAffected() != 1 {
			t.Fatal(tag, err)
		}
		return
	}
	res, err := w.db.ExecContext(t.Context(), "UPDATE millbridge_outbox SET header = CAST('not a header' AS BLOB) WHERE id = ?", row[:])
	if err != nil {
		t.Fatal(err)
	}
	if n, err := res.RowsAffected(); n != 1 {
		t.Fatal(n, err)
	}
}
