package postgres_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	wmsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/millbridge/millbridge/schema"
	"github.com/millbridge/millbridge/schema/postgres"
)

const stockTopic = "forwarder_topic"

// A stock is a stock Watermill outbox in a test's database.
type stock struct {
	t      testing.TB
	store  *postgres.Store
	pool   *pgxpool.Pool
	db     *sql.DB
	schema wmsql.DefaultPostgreSQLSchema
}

// newStock makes the tables as the stock subscriber does, with payloads of this type.
func newStock(t testing.TB, payload string) *stock {
	t.Helper()
	store, pool := setup(t)
	st := &stock{t: t, store: store, pool: pool, db: stdlib.OpenDBFromPool(pool)}
	t.Cleanup(func() { _ = st.db.Close() })
	st.schema = wmsql.DefaultPostgreSQLSchema{GeneratePayloadType: func(string) string { return payload }}
	sub, err := wmsql.NewSubscriber(st.db, wmsql.SubscriberConfig{
		SchemaAdapter: st.schema, OffsetsAdapter: wmsql.DefaultPostgreSQLOffsetsAdapter{},
	}, watermill.NopLogger{})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(sub.SubscribeInitialize(stockTopic), sub.Close()); err != nil {
		t.Fatal(err)
	}
	return st
}

// begin begins a business transaction.
func (st *stock) begin() *sql.Tx {
	st.t.Helper()
	tx, err := st.db.BeginTx(st.t.Context(), nil)
	if err != nil {
		st.t.Fatal(err)
	}
	st.t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

// publish publishes as a stock user does: through the forwarder's publisher, in the transaction.
func (st *stock) publish(tx *sql.Tx, topic string, msgs ...*message.Message) {
	st.t.Helper()
	if err := publishStock(tx, st.schema, topic, msgs...); err != nil {
		st.t.Fatal(err)
	}
}

func publishStock(tx *sql.Tx, adapter wmsql.SchemaAdapter, topic string, msgs ...*message.Message) error {
	pub, err := wmsql.NewPublisher(tx, wmsql.PublisherConfig{SchemaAdapter: adapter}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	return forwarder.NewPublisher(pub, forwarder.PublisherConfig{ForwarderTopic: stockTopic}).Publish(topic, msgs...)
}

// commit publishes messages with these payloads in a transaction of its own and returns them.
func (st *stock) commit(topic string, payloads ...string) []*message.Message {
	st.t.Helper()
	tx := st.begin()
	msgs := make([]*message.Message, len(payloads))
	for i, p := range payloads {
		msgs[i] = message.NewMessage(watermill.NewUUID(), []byte(p))
	}
	st.publish(tx, topic, msgs...)
	st.end(tx)
	return msgs
}

func (st *stock) end(tx *sql.Tx) {
	st.t.Helper()
	if err := tx.Commit(); err != nil {
		st.t.Fatal(err)
	}
}

func (st *stock) exec(query string, args ...any) {
	st.t.Helper()
	if _, err := st.pool.Exec(st.t.Context(), query, args...); err != nil {
		st.t.Fatal(err)
	}
}

func (st *stock) count(query string, args ...any) (n int) {
	st.t.Helper()
	if err := st.pool.QueryRow(st.t.Context(), query, args...).Scan(&n); err != nil {
		st.t.Fatal(err)
	}
	return n
}

func (st *stock) rows() int { return st.count(`SELECT count(*) FROM "watermill_forwarder_topic"`) }

// mover returns a mover of its own, as another process has.
func (st *stock) mover(rules schema.StockRules) *postgres.Stock {
	st.t.Helper()
	m, err := st.store.NewStock(postgres.StockTable{Topic: stockTopic, Rules: rules})
	if err != nil {
		st.t.Fatal(err)
	}
	return m
}

// feed moves until there is no more.
func feed(t testing.TB, m *postgres.Stock) (sum schema.FeedResult) {
	t.Helper()
	for {
		res, err := m.Feed(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		sum.Moved, sum.Left, sum.Waits = sum.Moved+res.Moved, sum.Left+res.Left, res.Waits
		if !res.More {
			return sum
		}
	}
}

// moved returns what the outbox has, in order.
func (st *stock) moved() []schema.Envelope {
	st.t.Helper()
	rows, err := st.store.ListOutbox(st.t.Context(), schema.RowFilter{Limit: 1 << 20})
	if err != nil {
		st.t.Fatal(err)
	}
	envs := make([]schema.Envelope, len(rows))
	for i, r := range rows {
		if envs[i], err = r.Envelope(); err != nil {
			st.t.Fatal(err)
		}
	}
	return envs
}

func payloads(envs []schema.Envelope) []string {
	out := make([]string, len(envs))
	for i, e := range envs {
		out[i] = string(e.Payload)
	}
	return out
}

func wantPayloads(t testing.TB, envs []schema.Envelope, want ...string) {
	t.Helper()
	if got := payloads(envs); !slices.Equal(got, want) {
		t.Errorf("the outbox has %q, want %q", got, want)
	}
}

func TestStock_moves_messages_as_they_are(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"JSON", "JSONB", "BYTEA"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			st := newStock(t, kind)
			m := st.mover(schema.StockRules{OrderingKey: "order"})
			tx := st.begin()
			job := message.NewMessage(watermill.NewUUID(), []byte{0, 0xff, '"'})
			job.Metadata = message.Metadata{"order": "a 1", "who": " Zoë\n", "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}
			event := message.NewMessage("01J9Z6PB7M4Y0QK8W5N3T2R1XA", nil) // not a UUID, but an id
			odd := message.NewMessage("order/7 ☃", []byte("odd"))
			st.publish(tx, "jobs.mail.send", job)
			st.publish(tx, "events.public.order.placed", event)
			st.publish(tx, "events.order.placed", odd)
			st.end(tx)
			if res := feed(t, m); res != (schema.FeedResult{Moved: 3}) {
				t.Fatalf("feed: %+v", res)
			}
			if n := st.rows(); n != 0 {
				t.Errorf("%d rows are left", n)
			}
			envs := st.moved()
			if len(envs) != 3 {
				t.Fatalf("%d rows in the outbox, want 3", len(envs))
			}
			e := envs[0]
			if e.ID != job.UUID || e.Kind != schema.KindJob || e.Target != "mail" || e.Name != "send" || string(e.Payload) != "\x00\xff\"" ||
				e.OrderingKey != "a 1" || e.Metadata["who"] != " Zoë\n" || e.Metadata["order"] != "a 1" || len(e.Metadata) != 2 ||
				e.TraceParent != job.Metadata["traceparent"] || e.Time.IsZero() {
				t.Errorf("the job came as %+v", e)
			}
			if e := envs[1]; e.ID != event.UUID || e.Kind != schema.KindEvent || e.Visibility != schema.Public || e.Name != "order.placed" || len(e.Payload) != 0 {
				t.Errorf("the event came as %+v", e)
			}
			if e := envs[2]; e.ID != schema.RowID(odd.UUID).String() || e.Visibility != schema.Internal || e.Key != "" {
				t.Errorf("the event with an odd id came as %+v", e)
			}
		})
	}
}

// Transactions take their ids early and write late: by transaction id, as the stock query goes, the second message of an
// order would come first. And one that stays open does not hold back those that have ended.
func TestStock_keeps_the_order_in_which_publishers_saw_each_other(t *testing.T) {
	t.Parallel()
	st := newStock(t, "JSON")
	m := st.mover(schema.StockRules{})
	open := st.begin()
	st.publish(open, "jobs.mail.send", message.NewMessage(watermill.NewUUID(), []byte("open")))
	early := st.begin()
	if _, err := early.Exec(`SELECT pg_current_xact_id()`); err != nil {
		t.Fatal(err)
	}
	st.commit("jobs.mail.send", "1")
	st.publish(early, "jobs.mail.send", message.NewMessage(watermill.NewUUID(), []byte("2"))) // after it has seen 1
	st.end(early)
	back := st.begin()
	st.publish(back, "jobs.mail.send", message.NewMessage(watermill.NewUUID(), []byte("rolled back")))
	if err := back.Rollback(); err != nil {
		t.Fatal(err)
	}
	st.commit("jobs.mail.send", "3")
	feed(t, m)
	wantPayloads(t, st.moved(), "1", "2", "3")
	st.end(open)
	st.commit("jobs.mail.send", "4")
	feed(t, m)
	wantPayloads(t, st.moved(), "1", "2", "3", "open", "4")
}

func TestStock_what_cannot_be_moved_stays_and_holds_nothing_back(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"JSON", "BYTEA"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			st := newStock(t, kind)
			const insert = `INSERT INTO "watermill_forwarder_topic" (uuid, created_at, payload, metadata, transaction_id)
				VALUES ($1, $2::text::timestamp, convert_from($3, 'UTF8')::`
			put := func(at, payload string) {
				if kind == "BYTEA" {
					st.exec(strings.Replace(insert, `convert_from($3, 'UTF8')::`, `$3::bytea, '[not metadata]', pg_current_xact_id())`, 1), "x", at, []byte(payload))
				} else {
					st.exec(insert+`json, '{"not": ["metadata"]}', pg_current_xact_id())`, "x", at, []byte(payload))
				}
			}
			if kind == "BYTEA" {
				st.exec(`ALTER TABLE "watermill_forwarder_topic" ALTER metadata TYPE text`)
				put("now", "\x00\xff")
				put("now", "")
			}
			bad := []string{
				`"text"`, `[1]`, `{}`, `{"destination_topic": 7}`, `{"destination_topic": "orders.created", "payload": "AAAA"}`,
				`{"destination_topic": "jobs.mail.send", "payload": "not base64!"}`,
				`{"destination_topic": "jobs.mail.send", "metadata": {"ce-id": "x"}}`, `{"destination_topic": "jobs.Mail.send"}`,
			}
			for _, b := range bad {
				put("now", b)
			}
			st.exec(`INSERT INTO "watermill_forwarder_topic" (uuid, payload, transaction_id) VALUES ('', NULL, pg_current_xact_id())`)
			st.commit("jobs.mail.send", strings.Repeat("x", schema.DefaultPayload+1))
			left := st.rows()
			put("infinity", `{"destination_topic": "jobs.mail.send", "payload": "Z29vZA==", "uuid": "", "unknown": 1}`)
			m := st.mover(schema.StockRules{})
			for range 2 {
				if res := feed(t, m); res.Moved+res.Left > 0 && res != (schema.FeedResult{Moved: 1, Left: left}) {
					t.Fatalf("feed: %+v, want 1 moved and %d left", res, left)
				}
			}
			wantPayloads(t, st.moved(), "good")
			if n := st.rows(); n != left {
				t.Errorf("%d rows are left, want %d", n, left)
			}
			state, err := m.State(t.Context())
			if err != nil || state.Rows != 0 || state.Left != int64(left) || len(state.Sample) == 0 {
				t.Fatalf("state: %+v, %v", state, err)
			}
			// Another process that knows the topic takes its row, and only that.
			res := feed(t, st.mover(schema.StockRules{Topics: map[string]string{"orders.created": "events.orders.created"}}))
			if res != (schema.FeedResult{Moved: 1, Left: left - 1}) {
				t.Errorf("with a rule for the topic: %+v", res)
			}
		})
	}
}

func TestStock_rows_that_cannot_be_moved_are_many(t *testing.T) {
	t.Parallel()
	st := newStock(t, "JSON")
	const many = 2_500
	st.exec(`INSERT INTO "watermill_forwarder_topic" (uuid, payload, transaction_id) SELECT 'x', '{}', pg_current_xact_id() FROM generate_series(1, $1::integer)`, many)
	st.commit("jobs.mail.send", "behind")
	m := st.mover(schema.StockRules{})
	m.LookAt(1_200)
	if res := feed(t, m); res != (schema.FeedResult{Moved: 1, Left: many}) {
		t.Errorf("feed: %+v", res)
	}
}

func TestStock_large_messages_share_a_transaction_up_to_a_size(t *testing.T) {
	t.Parallel()
	st := newStock(t, "JSON")
	var want []string
	for i := range 6 {
		want = append(want, strings.Repeat(string(rune('a'+i)), 900_000))
	}
	st.commit("jobs.mail.send", want...)
	m := st.mover(schema.StockRules{})
	res, err := m.Feed(t.Context())
	if err != nil || res.Moved < 1 || res.Moved > 4 || !res.More {
		t.Fatalf("first step: %+v, %v; want at most 4 MiB of envelopes", res, err)
	}
	feed(t, m)
	if got := payloads(st.moved()); !slices.Equal(got, want) {
		t.Errorf("%d messages came, want %d in their order", len(got), len(want))
	}
}

func TestStock_a_writer_that_holds_an_ordering_key_holds_back_only_that(t *testing.T) {
	t.Parallel()
	st := newStock(t, "JSON")
	holder := begin(t, st.pool, "")
	publish(t, st.store, holder, schema.NewJob("mail", "send", nil, schema.WithOrderingKey("held")))
	tx := st.begin()
	for _, p := range []string{"held 1", "free 1", "held 2", "free 2"} {
		msg := message.NewMessage(watermill.NewUUID(), []byte(p))
		msg.Metadata.Set("key", strings.Fields(p)[0])
		st.publish(tx, "jobs.mail.send", msg)
	}
	st.end(tx)
	m := st.mover(schema.StockRules{OrderingKey: "key"})
	if res := feed(t, m); res != (schema.FeedResult{Moved: 2}) {
		t.Fatalf("while the key is held: %+v", res)
	}
	wantPayloads(t, st.moved(), "free 1", "free 2")
	if err := holder.Rollback(context.Background()); err != nil {
		t.Fatal(err)
	}
	feed(t, m)
	wantPayloads(t, st.moved(), "free 1", "free 2", "held 1", "held 2")
}

func TestStock_refuses_what_could_send_twice_or_starve_others(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		make func(st *stock)
		want string
	}{
		"no table":      {func(st *stock) { st.exec(`DROP TABLE "watermill_forwarder_topic"`) }, "there is no table"},
		"another table": {func(st *stock) { st.exec(`ALTER TABLE "watermill_forwarder_topic" DROP COLUMN transaction_id`) }, `no column "transaction_id"`},
		"numbers":       {func(st *stock) { st.exec(`ALTER TABLE "watermill_forwarder_topic" ALTER payload TYPE integer USING 1`) }, "is integer"},
		"another group": {func(st *stock) {
			st.exec(`INSERT INTO "watermill_offsets_forwarder_topic" VALUES ('prod', 7, '700')`)
		}, `no consumer group "", but "prod"`},
		"two groups": {func(st *stock) {
			st.exec(`INSERT INTO "watermill_offsets_forwarder_topic" VALUES ('', 7, '7'), ('audit', 7, '7')`)
		}, `would miss what is moved: "audit"`},
		"another server": {func(st *stock) {
			st.exec(`INSERT INTO "watermill_offsets_forwarder_topic" VALUES ('', 7, '1000000000000')`)
		}, "another database server"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st := newStock(t, "JSON")
			st.commit("jobs.mail.send", "1")
			c.make(st)
			m := st.mover(schema.StockRules{})
			_, err := m.Feed(t.Context())
			_, looked := m.State(t.Context())
			for _, err := range []error{err, looked} {
				var fault *postgres.StockError
				if !errors.As(err, &fault) || !strings.Contains(err.Error(), c.want) || schema.KindOf(err) != schema.Permanent || fault.Hint == "" {
					t.Errorf("error %v, want a fault with %q", err, c.want)
				}
			}
			wantPayloads(t, st.moved())
		})
	}
}

func TestStock_a_group_that_comes_later_stops_it(t *testing.T) {
	t.Parallel()
	st := newStock(t, "JSON")
	m := st.mover(schema.StockRules{})
	feed(t, m)
	st.exec(`INSERT INTO "watermill_offsets_forwarder_topic" VALUES ('audit', 0, '0')`)
	st.commit("jobs.mail.send", "1")
	if _, err := m.Feed(t.Context()); err == nil || !strings.Contains(err.Error(), "audit") {
		t.Errorf("error %v, want one that names the group", err)
	}
	wantPayloads(t, st.moved())
	st.exec(`DELETE FROM "watermill_offsets_forwarder_topic" WHERE consumer_group = 'audit'`)
	feed(t, m)
	wantPayloads(t, st.moved(), "1")
}

// Publishers alone make no table of offsets.
func TestStock_where_nobody_has_ever_read(t *testing.T) {
	t.Parallel()
	st := newStock(t, "JSON")
	st.exec(`DROP TABLE "watermill_offsets_forwarder_topic"`)
	st.commit("jobs.mail.send", "1", "2")
	m := st.mover(schema.StockRules{})
	if state, err := m.State(t.Context()); err != nil || state.Rows != 2 {
		t.Errorf("state: %+v, %v", state, err)
	}
	feed(t, m)
	wantPayloads(t, st.moved(), "1", "2")
	if n := st.count(`SELECT count(*) FROM "watermill_offsets_forwarder_topic" WHERE consumer_group = '' AND offset_acked = 0`); n != 1 {
		t.Errorf("%d positions of the group, want 1: a stock forwarder that comes later is kept out by it", n)
	}
}

func TestNewStock_refuses_names_and_rules(t *testing.T) {
	t.Parallel()
	s := postgres.New(nil, postgres.Options{})
	for _, table := range []postgres.StockTable{
		{Topic: ""},
		{Topic: `x"; DROP TABLE y; --`},
		{Topic: "x", Rules: schema.StockRules{Topics: map[string]string{"a": "orders"}}},
	} {
		if _, err := s.NewStock(table); err == nil {
			t.Errorf("%+v is taken", table)
		}
	}
	if _, err := s.NewStock(postgres.StockTable{Topic: "orders-2$:._"}); err != nil {
		t.Error(err)
	}
}

// What PostgreSQL makes of long names is what watermill-sql's tables are called.
func TestStock_long_names(t *testing.T) {
	t.Parallel()
	st := newStock(t, "JSON")
	topic := strings.Repeat("long", 20)
	sub, err := wmsql.NewSubscriber(st.db, wmsql.SubscriberConfig{
		SchemaAdapter: st.schema, OffsetsAdapter: wmsql.DefaultPostgreSQLOffsetsAdapter{},
	}, watermill.NopLogger{})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(sub.SubscribeInitialize(topic), sub.Close()); err != nil {
		t.Fatal(err)
	}
	m, err := st.store.NewStock(postgres.StockTable{Topic: topic})
	if err != nil {
		t.Fatal(err)
	}
	body, err := json.Marshal(map[string]string{"destination_topic": "jobs.mail.send"})
	if err != nil {
		t.Fatal(err)
	}
	st.exec(fmt.Sprintf(`INSERT INTO "watermill_%s" (uuid, payload, transaction_id) VALUES ('x', $1, pg_current_xact_id())`, topic), string(body))
	if res := feed(t, m); res != (schema.FeedResult{Moved: 1}) {
		t.Errorf("feed: %+v", res)
	}
}
