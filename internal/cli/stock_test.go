package cli_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wmsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/stdlib"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/schema"
)

// blocksOf returns the blocks of code of a language in docs/from-stock-watermill.md.
func blocksOf(t *testing.T, language string) []string {
	t.Helper()
	doc, err := os.ReadFile("../../docs/from-stock-watermill.md")
	if err != nil {
		t.Fatal(err)
	}
	var blocks []string
	for _, m := range regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllStringSubmatch(string(doc), -1) {
		blocks = append(blocks, m[1])
	}
	return blocks
}

// stockShop is a program that publishes as stock Watermill's documentation says.
type stockShop struct {
	t   *testing.T
	db  *sql.DB
	ids []string // of committed messages
}

func (s *stockShop) publish(topic string, metadata message.Metadata) {
	s.t.Helper()
	tx, err := s.db.BeginTx(s.t.Context(), nil)
	if err != nil {
		s.t.Fatal(err)
	}
	defer tx.Rollback() //nolint:errcheck // it is committed
	pub, err := wmsql.NewPublisher(tx, wmsql.PublisherConfig{SchemaAdapter: wmsql.DefaultPostgreSQLSchema{}}, watermill.NopLogger{})
	if err != nil {
		s.t.Fatal(err)
	}
	msg := message.NewMessage(watermill.NewUUID(), []byte(`{"n": 1}`))
	msg.Metadata = metadata
	if err := forwarder.NewPublisher(pub, forwarder.PublisherConfig{}).Publish(topic, msg); err != nil {
		s.t.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		s.t.Fatal(err)
	}
	s.ids = append(s.ids, msg.UUID)
}

// stockSent is where the stock forwarder sends to.
type stockSent struct {
	mu  sync.Mutex
	ids []string
}

func (s *stockSent) Publish(_ string, msgs ...*message.Message) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range msgs {
		s.ids = append(s.ids, m.UUID)
	}
	return nil
}

func (*stockSent) Close() error { return nil }

func (s *stockSent) all() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string{}, s.ids...)
}

// TestFromStockWatermill does what docs/from-stock-watermill.md says, with its configuration and its statements.
func TestFromStockWatermill(t *testing.T) {
	t.Parallel()
	w := postgresWorld(t)
	db := stdlib.OpenDBFromPool(w.pool)
	defer db.Close()
	sub, err := wmsql.NewSubscriber(db, wmsql.SubscriberConfig{
		SchemaAdapter: wmsql.DefaultPostgreSQLSchema{}, OffsetsAdapter: wmsql.DefaultPostgreSQLOffsetsAdapter{},
		ConsumerGroup: "shop", InitializeSchema: true, PollInterval: 5 * time.Millisecond, RetryInterval: 5 * time.Millisecond,
	}, watermill.NopLogger{})
	if err != nil {
		t.Fatal(err)
	}
	old := &stockSent{}
	fwd, err := forwarder.NewForwarder(sub, old, watermill.NopLogger{}, forwarder.Config{})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- fwd.Run(context.WithoutCancel(t.Context())) }()
	<-fwd.Running()
	shop := &stockShop{t: t, db: db}
	shop.publish("OrderPlaced", nil)
	testkit.Eventually(t, time.Minute, func() error {
		if len(old.all()) != 1 {
			return errors.New("the stock forwarder does not work")
		}
		return nil
	})

	// Before: the configuration, with the addresses of the test.
	file := filepath.Join(t.TempDir(), "millbridge.yaml")
	if err := os.WriteFile(file, []byte(blocksOf(t, "yaml")[0]), 0o600); err != nil {
		t.Fatal(err)
	}
	flags := append([]string{"--config", file, "--set", "nats.replicas=1"}, w.flags...)

	// 2. Both run.
	p := start(t, append([]string{"run"}, flags...)...)
	for i := range 30 {
		shop.publish("OrderPlaced", message.Metadata{"order_id": fmt.Sprint(i % 3)})
		shop.publish("mail.send", nil)
		shop.publish("invoice.paid", nil)
	}

	// 3. The stock forwarder is stopped while its position is locked.
	statements := strings.Split(blocksOf(t, "sql")[0], "\n")
	tx, err := w.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background()) //nolint:errcheck // it is committed
	for _, line := range statements {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "UPDATE") {
			if _, err := tx.Exec(t.Context(), line); err != nil {
				t.Fatal(err)
			}
		}
	}
	closed := make(chan error, 1)
	go func() { closed <- errors.Join(fwd.Close(), <-ended) }()
	testkit.Eventually(t, time.Minute, func() error { // what waits for the lock does not end by itself
		select {
		case err := <-closed:
			return err
		default:
		}
		_, err := w.pool.Exec(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE $1 = ANY(pg_blocking_pids(pid))`, tx.Conn().PgConn().PID())
		return errors.Join(errors.New("the stock forwarder has not ended"), err)
	})
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}

	shop.publish("Not A Name", nil)
	lost := shop.ids[len(shop.ids)-1]
	shop.publish("mail.send", nil)
	testkit.Eventually(t, time.Minute, func() error {
		st := call(t, "", nil, append([]string{"status", "--json"}, flags...)...).objects(t)[0]
		stock := st["stocks"].([]any)[0].(map[string]any)
		if stock["rows"] != 0.0 || stock["left"] != 1.0 || !strings.Contains(fmt.Sprint(stock["sample"]), "Not A Name") {
			return fmt.Errorf("status says %v", stock)
		}
		return nil
	})
	if r := call(t, "", nil, append([]string{"status"}, flags...)...); !strings.Contains(r.stdout, "stock, left") || !strings.Contains(r.stdout, "forwarder_topic") {
		t.Errorf("status: %s", r)
	}
	if code := p.end(); code != 0 {
		t.Errorf("run ended with %d", code)
	}

	// What came while nothing ran.
	shop.publish("mail.send", nil)
	if r := call(t, "", nil, append([]string{"run", "--drain"}, flags...)...); r.code != 0 || r.objects(t)[0]["forwarder"].(map[string]any)["sent"] != 1.0 {
		t.Errorf("run --drain: %s", r)
	}
	times := map[string]int{}
	for _, id := range old.all() {
		times[id]++
	}
	mailed := 0
	for _, stream := range schema.Streams {
		for id, subject := range storedMessages(t, w, stream) {
			times[id]++
			if strings.HasPrefix(subject, "mb.jobs.mail.send") {
				mailed++
			}
		}
	}
	for _, id := range shop.ids {
		if want := map[bool]int{true: 0, false: 1}[id == lost]; times[id] != want {
			t.Errorf("message %s came %d times, want %d", id, times[id], want)
		}
	}
	if mailed == 0 {
		t.Error("no job came for the target mail")
	}

	// 4. What was acknowledged is deleted, and what is left is not.
	if _, err := w.pool.Exec(t.Context(), blocksOf(t, "sql")[1]); err != nil {
		t.Fatal(err)
	}
	var left int
	if err := w.pool.QueryRow(t.Context(), `SELECT count(*) FROM "watermill_forwarder_topic"`).Scan(&left); err != nil || left != 1 {
		t.Errorf("%d rows are left, %v, want 1", left, err)
	}
	rows, err := w.pool.Query(t.Context(), blocksOf(t, "sql")[2])
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for left = 0; rows.Next(); left++ {
	}
	if left != 1 || rows.Err() != nil {
		t.Errorf("%d rows with a reason, %v, want 1", left, rows.Err())
	}
}

// storedMessages returns the subjects of a stream's messages by their id.
func storedMessages(t *testing.T, w *world, stream schema.Stream) map[string]string {
	t.Helper()
	s, err := w.js.Stream(t.Context(), w.subjects.StreamName(stream))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for seq := s.CachedInfo().State.FirstSeq; seq <= s.CachedInfo().State.LastSeq; seq++ {
		msg, err := s.GetMsg(t.Context(), seq)
		if errors.Is(err, natsjs.ErrMsgNotFound) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if id := msg.Header.Get(schema.HeaderID); id != "" {
			if all[id] != "" {
				t.Errorf("message %s is there twice", id)
			}
			all[id] = msg.Subject
		}
	}
	return all
}

func TestRun_says_why_a_stock_outbox_cannot_be_taken_over(t *testing.T) {
	t.Parallel()
	w := postgresWorld(t)
	r := w.run(t, "run", "--drain", "--set", "stock.tables=orders", "--set", "nats.replicas=1")
	if r.code != 1 || !strings.Contains(r.stderr, "there is no table") {
		t.Errorf("run --drain: %s", r)
	}
	r = w.run(t, "status", "--set", "stock.tables=orders", "--set", "nats.replicas=1")
	if r.code != 3 || !strings.Contains(r.stdout, `stock outbox orders unknown`) || !strings.Contains(r.stdout, "there is no table") {
		t.Errorf("status: %s", r)
	}
	for _, c := range []struct {
		set  []string
		want string
	}{
		{[]string{"--set", "stock.tables=a,a"}, "twice"},
		{[]string{"--set", "stock.tables=a b"}, "must be letters"},
		{[]string{"--set", "stock.tables=a", "--set", "stock.topics=x"}, "is not <destination topic>=<topic>"},
		{[]string{"--set", "stock.tables=a", "--set", "stock.topics=x=y"}, "must be jobs.<target>.<action>"},
		{[]string{"--set", "stock.ordering_key=x"}, "stock.tables: is empty"},
	} {
		if r := w.run(t, append([]string{"status"}, c.set...)...); r.code != 1 && r.code != 2 || !strings.Contains(r.stderr, c.want) {
			t.Errorf("%v: %s", c.set, r)
		}
	}
	if r := call(t, "", nil, "config", "print", "--set", "stock.tables=a"); !strings.Contains(r.stderr, "needs database.url") {
		t.Errorf("on the embedded default: %s", r)
	}
}
