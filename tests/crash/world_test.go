//go:build linux

package crash

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/millbridge/millbridge/internal/embedded"
	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/internal/testkit/natsproc"
	"github.com/millbridge/millbridge/internal/testkit/proof"
	"github.com/millbridge/millbridge/publishers/jetstream"
	"github.com/millbridge/millbridge/schema"
)

// settings of a world. Zombies sleep for longer than every lease and ack wait.
type settings struct {
	lease, ackWait, zombieTime time.Duration
	rate, most, jobs           int // of each producer; see the shop
}

// A world is a database and a server with processes around them.
type world struct {
	t        *testing.T
	tally    *tally
	settings settings
	rand     *rand.Rand // for one goroutine
	dir      string
	receiver *receiver
	flags    []string // of millbridge and of the shop alike

	pool   *pgxpool.Pool // PostgreSQL
	server *natsproc.Process
	in     *embedded.Instance // the embedded default

	conn *nats.Conn
	js   natsjs.JetStream
	book *proof.Book

	zombieTime time.Duration
	lives      atomic.Int64 // that ended with work in flight
	started    atomic.Uint64
	before     counted // at the last check

	watches  sync.WaitGroup // of recoveries
	mu       sync.Mutex
	faulty   bool
	watching bool
	over     chan struct{} // closed at the end of the traffic
}

// counted is what has been added to the tally.
type counted struct{ committed, rolledBack, handled, replays, repeats int64 }

func newWorld(t *testing.T, tally *tally, s settings, seed uint64) *world {
	w := &world{
		t: t, tally: tally, settings: s, zombieTime: s.zombieTime, dir: t.TempDir(), receiver: newReceiver(t),
		rand: rand.New(rand.NewPCG(seed, 1)),
	}
	if _, err := programs(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.keepLogs)
	return w
}

func newPostgres(t *testing.T, tally *tally, s settings, seed uint64) *world {
	w := newWorld(t, tally, s, seed)
	w.pool, w.server = testkit.Postgres(t), natsproc.Start(t)
	w.flags = []string{"--database-url", testkit.PostgresURL(w.pool), "--nats-url", w.server.URL()}
	conn, err := nats.Connect(w.server.URL(), append(jetstream.ConnectOptions(), nats.ReconnectWait(100*time.Millisecond))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	w.conn, w.book = conn, proof.OnPostgres(w.pool)
	w.prepare(func(query string) error {
		_, err := w.pool.Exec(t.Context(), query)
		return err
	})
	return w
}

func newEmbedded(t *testing.T, tally *tally, s settings, seed uint64) *world {
	w := newWorld(t, tally, s, seed)
	data := filepath.Join(w.dir, "data")
	w.flags = []string{"--data-dir", data}
	p, err := w.start(forwarder, "first", nil) // makes the directory
	if err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, time.Minute, func() (err error) {
		w.in, err = embedded.Attach(t.Context(), data, embedded.Options{})
		return err
	})
	t.Cleanup(func() { w.in.Close() })
	w.conn, w.book = w.in.Conn(), proof.OnSQLite(w.in.DB.Write, w.in.DB.Read)
	w.prepare(func(query string) error {
		_, err := w.in.DB.Write.ExecContext(t.Context(), query)
		return err
	})
	p.kill()
	return w
}

func (w *world) prepare(exec func(query string) error) {
	w.t.Helper()
	var err error
	if w.js, err = natsjs.New(w.conn); err != nil {
		w.t.Fatal(err)
	}
	if err := w.book.Create(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	if err := exec(`CREATE TABLE shop_orders (id text NOT NULL)`); err != nil {
		w.t.Fatal(err)
	}
}

// start starts a process of that role.
func (w *world) start(r role, name string, env []string) (*process, error) {
	programs, err := programs()
	if err != nil {
		return nil, err
	}
	s := w.settings
	env = append([]string{fmt.Sprintf("MILLBRIDGE_KILL_LEASE=%v", s.lease), fmt.Sprintf("MILLBRIDGE_KILL_ACK_WAIT=%v", s.ackWait)}, env...)
	var args []string
	switch r {
	case forwarder:
		args = append([]string{
			"run", "--set", "stop_timeout=1s", "--set", "targets.hook.type=webhook", "--set", "targets.hook.url=" + w.receiver.URL + "/hook",
			"--set", "targets.hook.allow_private=true", "--set", "targets.hook.retry.base=50ms",
			"--set", "targets.hook.retry.max_attempts=10000", // a webhook is given up as crashing after so many deliveries
		}, w.bridgeFlags()...)
	case operator:
		args = append([]string{"poison", "replay", "--all", "--yes"}, w.bridgeFlags()...)
	case worker:
		args = append([]string{
			"work", "-lease", s.lease.String(), "-ack-wait", s.ackWait.String(), "-close-timeout", "1s", "-receiver", w.receiver.URL,
		}, w.shopFlags()...)
	case producer:
		args = append([]string{
			"produce", "-seed", fmt.Sprint(w.started.Add(1)), "-rate", fmt.Sprint(s.rate), "-most", fmt.Sprint(s.most), "-jobs", fmt.Sprint(s.jobs),
		}, w.shopFlags()...)
	}
	return start(programs[r], filepath.Join(w.dir, name+".log"), env, args)
}

func (w *world) bridgeFlags() []string {
	if w.pool == nil {
		return w.flags
	}
	return append([]string{"--set", "nats.replicas=1"}, w.flags...)
}

func (w *world) shopFlags() []string { return append([]string{"-journal", w.journal()}, w.flags...) }

func (w *world) journal() string { return filepath.Join(w.dir, "journal") }

// fault notes that something is wrong. The test goes on: what comes then may explain it.
func (w *world) fault(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	w.t.Errorf("%s: %s", w.t.Name(), text)
	w.mu.Lock()
	w.faulty = true
	w.mu.Unlock()
	w.tally.add(func(t *totals) { t.Faults = append(t.Faults, w.t.Name()+": "+text) })
}

// keepLogs saves what the processes of a world with a fault said.
func (w *world) keepLogs() {
	if *keep == "" || !w.faulty {
		return
	}
	to := filepath.Join(*keep, strings.NewReplacer("/", "-").Replace(w.t.Name()))
	if err := os.MkdirAll(to, 0o700); err != nil {
		w.t.Error(err)
	}
	files, _ := filepath.Glob(filepath.Join(w.dir, "*.log"))
	for _, f := range append(files, w.journal()) {
		text, err := os.ReadFile(f)
		if err == nil {
			err = os.WriteFile(filepath.Join(to, filepath.Base(f)), text, 0o600)
		}
		if err != nil {
			w.t.Log(err)
		}
	}
	if w.in != nil {
		if err := os.CopyFS(filepath.Join(to, "data"), os.DirFS(w.in.Dir)); err != nil {
			w.t.Log(err)
		}
	}
}

// traffic lets slots live until none has a fate left, or for that long if it is given.
func (w *world) traffic(d time.Duration, slots ...*slot) {
	over := make(chan struct{})
	w.mu.Lock()
	w.over = over
	w.mu.Unlock()
	var living, fated sync.WaitGroup
	fated.Add(len(slots))
	for _, s := range slots {
		living.Go(func() { s.run(over, fated.Done) })
	}
	if d > 0 {
		<-time.After(d)
	} else {
		fated.Wait()
	}
	close(over)
	living.Wait()
}

// calm runs processes that nobody harms while f runs, and then stops them.
func (w *world) calm(roles []role, f func()) {
	var processes []*process
	defer func() {
		for _, p := range processes {
			p.kill()
		}
	}()
	for _, r := range roles {
		p, err := w.start(r, string(r)+"-calm", nil)
		if err != nil {
			w.fault("%s does not start: %v", r, err)
			return
		}
		processes = append(processes, p)
	}
	f()
	for i, p := range processes {
		w.slot(roles[i], 0, 0, nil).stop(p)
	}
}

// died watches, after a forwarder has died, how long the rows that waited then stay in the outbox. When all forwarders are
// stopped before, there is nothing to tell.
func (w *world) died(r role) {
	w.lives.Add(1)
	w.mu.Lock()
	busy, over := w.watching, w.over
	w.watching = w.watching || r == forwarder
	w.mu.Unlock()
	if r != forwarder || busy {
		return
	}
	w.watches.Go(func() {
		defer func() {
			w.mu.Lock()
			w.watching = false
			w.mu.Unlock()
		}()
		began := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
		defer cancel()
		rows, err := w.waiting(ctx)
		for err == nil && len(rows) > 0 {
			select {
			case <-over:
				return
			case <-time.After(20 * time.Millisecond):
			}
			rows, err = w.stillWaiting(ctx, rows)
		}
		if err != nil {
			w.fault("rows that waited when a forwarder died: %v", err)
			return
		}
		w.tally.recover(time.Since(began))
	})
}

// waiting returns the numbers of the rows in the outbox, some thousands at most.
func (w *world) waiting(ctx context.Context) (rows map[int64]bool, err error) {
	query := `SELECT seq FROM ` + w.table("outbox") + ` ORDER BY seq LIMIT 5000`
	rows = make(map[int64]bool)
	err = w.query(ctx, query, func(scan func(...any) error) error {
		var seq int64
		err := scan(&seq)
		rows[seq] = true
		return err
	})
	return rows, err
}

func (w *world) stillWaiting(ctx context.Context, before map[int64]bool) (map[int64]bool, error) {
	now, err := w.waiting(ctx)
	for seq := range now {
		if !before[seq] {
			delete(now, seq)
		}
	}
	return now, err
}

func (w *world) table(name string) string {
	if w.pool == nil {
		return "millbridge_" + name
	}
	return "millbridge." + name
}

func (w *world) query(ctx context.Context, query string, row func(scan func(...any) error) error) error {
	if w.pool != nil {
		rows, err := w.pool.Query(ctx, query)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			if err := row(rows.Scan); err != nil {
				return err
			}
		}
		return rows.Err()
	}
	rows, err := w.in.DB.Read.QueryContext(ctx, query)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := row(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

// count returns the number that a query gives.
func (w *world) count(ctx context.Context, query string) (n int64, err error) {
	err = w.query(ctx, query, func(scan func(...any) error) error { return scan(&n) })
	return n, err
}

// restartServer kills the NATS server and starts it again.
func (w *world) restartServer() {
	cmd := w.server.RestartCommand()
	p, err := start(cmd[0], filepath.Join(w.dir, "server.log"), nil, cmd[1:])
	if err != nil {
		w.fault("restart the server: %v", err)
		return
	}
	<-p.ended
	if !p.cmd.ProcessState.Success() {
		w.fault("restart the server: %s", p.output())
	}
	w.tally.add(func(t *totals) { t.Cycles++; t.Servers++ })
}

var subjects = schema.Subjects{}
