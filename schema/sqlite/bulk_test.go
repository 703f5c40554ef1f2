package sqlite_test

import (
	"database/sql"
	"fmt"
	"slices"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	wmsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millbridge/millbridge/schema"
	"github.com/millbridge/millbridge/schema/sqlite"
)

// order returns the message ids of all rows of a shard, as a forwarder gets them.
func order(t *testing.T, s *sqlite.Store, ref schema.ShardRef) []string {
	t.Helper()
	rows, err := s.NewReader(ref, 1).Read(t.Context(), schema.ReadParams{MaxRows: 1 << 20, MaxBytes: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	ids := make([]string, len(rows))
	for i, r := range rows {
		e, err := r.Envelope()
		if err != nil {
			t.Fatal(err)
		}
		ids[i] = e.ID
	}
	return ids
}

func TestManyInOneCall(t *testing.T) {
	t.Parallel()
	s, _ := newStore(t, sqlite.Options{})
	const n = 5_000 // rows of 9 columns: more variables than a statement may have
	envs := make([]schema.Envelope, n)
	want := make([]string, n)
	for i := range envs {
		envs[i] = schema.NewJob("shop", "count", fmt.Appendf(nil, "%d", i))
		if i%10 == 0 {
			envs[i].Key = fmt.Sprint(i)
		}
		want[i] = envs[i].ID
	}
	receipts := appendTo(t, s, envs...)
	for i, r := range receipts {
		if r != (schema.Receipt{ID: want[i]}) {
			t.Fatalf("receipt %d is %+v", i, r)
		}
	}
	if got := order(t, s, jobsShard); !slices.Equal(got, want) {
		t.Fatalf("%d messages in another order than the %d given", len(got), n)
	}
	for i, r := range appendTo(t, s, envs[:20]...) {
		if r.ID != want[i] || r.Existing != (i%10 == 0) {
			t.Errorf("receipt %d of the repeated call is %+v", i, r)
		}
	}
}

func TestSchemaAdapter(t *testing.T) {
	t.Parallel()
	s, write := newStore(t, sqlite.Options{})
	publish := func(topic string, msgs ...*message.Message) error {
		return inTx(t.Context(), write, func(tx *sql.Tx) error {
			p, err := wmsql.NewPublisher(tx, wmsql.PublisherConfig{SchemaAdapter: s.SchemaAdapter()}, watermill.NopLogger{})
			if err != nil {
				return err
			}
			return p.Publish(topic, msgs...)
		})
	}

	const n = 4_200 // rows of 8 columns: more variables than a statement may have
	msgs := make([]*message.Message, n)
	want := make([]string, n)
	for i := range msgs {
		msgs[i] = message.NewMessage(watermill.NewULID(), []byte{0, byte(i), 255})
		msgs[i].Metadata.Set("n", fmt.Sprint(i))
		want[i] = msgs[i].UUID
	}
	msgs[1].Payload = nil
	msgs[2].SetContext(schema.ContextWithOptions(t.Context(), schema.WithOrderingKey("o"), schema.WithTenant("T")))
	if err := publish("jobs.shop.count", msgs...); err != nil {
		t.Fatal(err)
	}
	if got := order(t, s, jobsShard); !slices.Equal(got, want) {
		t.Fatalf("%d messages in another order than the %d given", len(got), n)
	}
	rows, err := s.ListOutbox(t.Context(), schema.RowFilter{Limit: 3})
	if err != nil || len(rows) != 3 {
		t.Fatal(len(rows), err)
	}
	for i, r := range rows {
		e, err := r.Envelope()
		if err != nil {
			t.Fatal(err)
		}
		if string(e.Payload) != string(msgs[i].Payload) || e.Metadata["n"] != fmt.Sprint(i) || e.Target != "shop" || e.Time.IsZero() {
			t.Errorf("message %d came back as %+v", i, e)
		}
		ordered := schema.NewJob("shop", "count", nil, schema.WithOrderingKey("o"), schema.WithTenant("T"))
		wantLock := int64(0)
		if i == 2 {
			wantLock = schema.NewRow(ordered).OrderLock
		}
		if r.OrderLock != wantLock || r.Slot != e.Slot() || r.ID != schema.RowID(msgs[i].UUID) || r.CreatedAt.IsZero() {
			t.Errorf("row %d is %+v", i, r)
		}
	}

	for name, opt := range map[string]schema.Option{"key": schema.WithKey("k"), "due_at": schema.WithDueAt(rows[0].CreatedAt)} {
		msg := message.NewMessage(watermill.NewULID(), nil)
		msg.SetContext(schema.ContextWithOptions(t.Context(), opt))
		if err := publish("jobs.shop.count", msg); schema.KindOf(err) != schema.Permanent {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := publish("shop", message.NewMessage(watermill.NewULID(), nil)); schema.KindOf(err) != schema.Permanent {
		t.Errorf("a topic without kind: %v", err)
	}
	if err := s.SetMaxPayload(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	if err := publish("jobs.shop.count", message.NewMessage("x", []byte("abc"))); schema.KindOf(err) != schema.Permanent {
		t.Errorf("a payload above the limit: %v", err)
	}
	if after := order(t, s, jobsShard); len(after) != n {
		t.Errorf("%d rows after refusals, want %d", len(after), n)
	}
}
