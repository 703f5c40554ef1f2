package inprocess_test

import (
	"context"
	"database/sql"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/handlers/handlertest"
	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/publishers"
	"github.com/millbridge/millbridge/router/inprocess"
	"github.com/millbridge/millbridge/schema"
)

// placeOrder is an application: it knows what it publishes through only by its interface.
func placeOrder(ctx context.Context, out publishers.Publisher[*sql.Tx], tx *sql.Tx) error {
	_, err := out.Publish(ctx, tx,
		schema.NewJob("mailer", "confirm", map[string]int{"order": 7}, schema.WithID("confirm-7"), schema.WithKey("o/7"), schema.WithTenant("t"),
			schema.WithMetadata(map[string]string{"line": "a\nb"}), schema.WithTime(time.Date(2031, 1, 2, 3, 4, 5, 0, time.UTC))),
		schema.NewEvent("order.placed", nil, schema.WithID("placed-7"), schema.WithTime(time.Date(2031, 1, 2, 3, 4, 5, 0, time.UTC))))
	out.Nudge()
	return err
}

// Moving to the outbox changes the line that makes the publisher, and no call.
func TestQueue_is_called_as_the_outbox_is(t *testing.T) {
	t.Parallel()
	write, store := openSQLite(t)
	inTx := func(out publishers.Publisher[*sql.Tx]) {
		t.Helper()
		tx, err := write.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback() //nolint:errcheck // after the commit it does nothing
		if err := placeOrder(t.Context(), out, tx); err != nil {
			t.Fatal(err)
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
	}
	queue := inprocess.New[*sql.Tx](inprocess.Config{})
	for _, out := range []publishers.Publisher[*sql.Tx]{
		queue,
		publishers.NewOutbox(store, publishers.Config{}),
	} {
		inTx(out)
	}
	var got seen
	if err := errors.Join(
		queue.Target(handlers.Target{Name: "mailer", Handler: &got, Policy: handlers.Policy{Concurrency: 1}}),
		queue.Subscribe(handlers.Subscription{Name: "stats", Events: []string{"order.>"}, Handler: &got})); err != nil {
		t.Fatal(err)
	}
	if n := handlertest.DrainUntilEmpty(t, queue).Handled; n != 2 {
		t.Fatalf("%d handled, want 2", n)
	}
	slices.SortFunc(got.envs, func(a, b schema.Envelope) int { return strings.Compare(a.ID, b.ID) })
	rows, err := store.ListOutbox(t.Context(), schema.RowFilter{})
	if err != nil || len(rows) != 2 {
		t.Fatalf("%d rows in the outbox, error %v", len(rows), err)
	}
	for i, r := range rows {
		want, err := r.Envelope()
		if err != nil {
			t.Fatal(err)
		}
		have := got.envs[i]
		if have.Source == "" {
			t.Error("a message has no source")
		}
		if have.Source = ""; !equal(have, want) {
			t.Errorf("in process the message is\n%+v, through the outbox\n%+v", have, want)
		}
	}
}

func equal(a, b schema.Envelope) bool {
	return string(schema.EncodeHeader(a)) == string(schema.EncodeHeader(b)) && string(a.Payload) == string(b.Payload) &&
		a.Subject() == b.Subject() && reflect.DeepEqual(a.Metadata, b.Metadata)
}

// What the documentation says in capitals: a rollback takes nothing back.
func TestQueue_ignores_the_transaction(t *testing.T) {
	t.Parallel()
	write, _ := testkit.SQLite(t)
	var got seen
	queue := inprocess.New[*sql.Tx](inprocess.Config{})
	if err := queue.Target(handlers.Target{Name: "mailer", Handler: &got}); err != nil {
		t.Fatal(err)
	}
	tx, err := write.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := placeOrder(t.Context(), queue, tx); err != nil {
		t.Fatal(err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if n := handlertest.DrainUntilEmpty(t, queue).Handled; n != 1 {
		t.Errorf("%d handled, want 1 although its transaction was rolled back", n)
	}
}

func TestPublish_refuses_what_the_outbox_refuses(t *testing.T) {
	t.Parallel()
	q, _ := newQueue(t, inprocess.Config{MaxPayload: 10})
	receipts, err := q.PublishAlone(t.Context(), job("send"), schema.NewJob("Mailer", "send", []byte("longer than ten")), schema.NewEvent("X", nil))
	if receipts != nil || !errors.Is(err, schema.ErrInvalid) || schema.KindOf(err) != schema.Permanent {
		t.Fatalf("receipts %v, error %v", receipts, err)
	}
	for _, want := range []string{"target: ", "payload: too large (length 15, limit 10)", `"X" must be`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %v lacks %q", err, want)
		}
	}
	if receipts, err := q.PublishAlone(t.Context()); receipts != nil || err != nil {
		t.Errorf("nothing: %v, %v", receipts, err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := q.Publish(ended, struct{}{}, job("send")); !errors.Is(err, context.Canceled) {
		t.Errorf("ended context: %v", err)
	}
	if tally := handlertest.DrainUntilEmpty(t, q); tally.Parked != 0 || tally.Waiting != 0 {
		t.Errorf("something of a refused batch is there: %+v", tally)
	}
}

func TestPublish_keys_stand_for_the_first_message(t *testing.T) {
	t.Parallel()
	q, clock := newQueue(t, inprocess.Config{KeepKeys: time.Minute})
	var got seen
	target(t, q, "mailer", handlers.Policy{}, got.Handle)
	keyed := func(id, body string) schema.Envelope {
		return schema.NewJob("mailer", "send", []byte(body), schema.WithID(id), schema.WithKey("k"))
	}
	want := []schema.Receipt{{ID: "1"}, {ID: "1", Existing: true}}
	if r := publish(t, q, keyed("1", "a"), keyed("2", "a")); !slices.Equal(r, want) {
		t.Errorf("receipts %v, want %v", r, want)
	}
	for _, other := range []string{"published", "handled"} {
		_, err := q.PublishAlone(t.Context(), job("send"), keyed("3", "b"))
		var invalid *schema.ValidationError
		if !errors.Is(err, schema.ErrKeyReused) || !errors.As(err, &invalid) || invalid.Faults[0].Field != "key" {
			t.Errorf("%s, another body: %v", other, err)
		}
		if r := publish(t, q, keyed("4", "a")); !r[0].Existing || r[0].ID != "1" {
			t.Errorf("%s, the same body: %v", other, r)
		}
		handlertest.DrainUntilEmpty(t, q)
	}
	if len(got.envs) != 1 || got.calls[0].Key != "k" {
		t.Errorf("handled %+v", got.envs)
	}
	clock.Advance(time.Minute)
	if r := publish(t, q, keyed("5", "b")); r[0].ID != "5" || r[0].Existing {
		t.Errorf("after the time of keeping: %v", r)
	}
	if n := handlertest.DrainUntilEmpty(t, q).Handled; n != 1 {
		t.Errorf("%d handled after the time of keeping, want 1", n)
	}
}

// Keys are handled once per handler, as with an inbox, whatever published them.
func TestHandler_gets_a_key_once(t *testing.T) {
	t.Parallel()
	q, clock := newQueue(t, inprocess.Config{})
	var got seen
	fails := 2
	target(t, q, "mailer", handlers.Policy{Concurrency: 4}, func(ctx context.Context, env schema.Envelope) error {
		got.add(ctx, env)
		if fails--; fails >= 0 {
			return errDown
		}
		return nil
	})
	same := func(body string) schema.Envelope {
		return schema.NewJob("mailer", "send", []byte(body), schema.WithID("same"))
	}
	publish(t, q, same("a"), same("a"), same("b"))
	wantTally(t, handlertest.DrainUntilEmpty(t, q), inprocess.Tally{Handled: 1, Retried: 2, Dead: 1})
	if len(got.envs) != 3 {
		t.Errorf("%d runs, want 3", len(got.envs))
	}
	if d := q.DeadLetters(); len(d) != 1 || d[0].Cause != schema.CauseKeyReused || string(d[0].Payload) != "b" {
		t.Errorf("dead letters %+v", d)
	}
	publish(t, q, same("a"))
	wantTally(t, handlertest.DrainUntilEmpty(t, q), inprocess.Tally{})
	clock.Advance(2 * time.Hour)
	publish(t, q, same("a"))
	wantTally(t, handlertest.DrainUntilEmpty(t, q), inprocess.Tally{Handled: 1})
}

func TestPublish_holds_back_until_due(t *testing.T) {
	t.Parallel()
	q, clock := newQueue(t, inprocess.Config{})
	var got seen
	target(t, q, "mailer", handlers.Policy{Concurrency: 1}, got.Handle)
	start := clock.Now()
	publish(t, q, job("delayed", schema.WithDelay(time.Hour)), job("due", schema.WithDueAt(start.Add(time.Minute))),
		job("past", schema.WithDueAt(start.Add(-time.Hour))), job("same", schema.WithDelay(time.Minute)))
	tally, err := q.Drain(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	wantTally(t, tally, inprocess.Tally{Handled: 1, Waiting: 3})
	handlertest.DrainUntilEmpty(t, q)
	if names := got.names(); !slices.Equal(names, []string{"past", "due", "same", "delayed"}) {
		t.Errorf("order %v", names)
	}
	if d := clock.Now().Sub(start); d != time.Hour {
		t.Errorf("the clock has moved by %v", d)
	}
	if e := got.envs[3]; e.Delay != 0 || !e.DueAt.IsZero() {
		t.Errorf("the handler sees when it was due: %+v", e)
	}
}

func TestPublish_refuses_more_than_it_can_keep(t *testing.T) {
	t.Parallel()
	q, _ := newQueue(t, inprocess.Config{MaxMessages: 2})
	publish(t, q, job("a"))
	if _, err := q.PublishAlone(t.Context(), job("b"), job("c")); !errors.Is(err, inprocess.ErrFull) || schema.KindOf(err) != schema.Temporary {
		t.Errorf("error %v", err)
	}
	publish(t, q, job("b", schema.WithID("b")))
	handlertest.DrainUntilEmpty(t, q) // parks both
	if _, err := q.PublishAlone(t.Context(), job("c")); !errors.Is(err, inprocess.ErrFull) {
		t.Errorf("parked messages do not count: %v", err)
	}
	if err := q.Drop("", "b"); err != nil {
		t.Error(err)
	}
	publish(t, q, job("c"))
}

// What a handler or the caller does to its bytes changes nothing for others.
func TestPublish_copies(t *testing.T) {
	t.Parallel()
	q, _ := newQueue(t, inprocess.Config{})
	var got seen
	for _, name := range []string{"one", "two"} {
		if err := q.Subscribe(handlers.Subscription{Name: name, Events: []string{"a"}, Handler: handlers.HandlerFunc(func(ctx context.Context, env schema.Envelope) error {
			if string(env.Payload) != "x" || env.Metadata["k"] != "v" {
				t.Errorf("%s got %+v", name, env)
			}
			env.Payload[0], env.Metadata["k"] = 'y', "w"
			got.add(ctx, env)
			return nil
		})}); err != nil {
			t.Fatal(err)
		}
	}
	payload := []byte("x")
	publish(t, q, schema.NewEvent("a", payload, schema.WithMetadata(map[string]string{"k": "v"})))
	payload[0] = 'z'
	handlertest.DrainUntilEmpty(t, q)
	if len(got.envs) != 2 {
		t.Errorf("%d deliveries, want 2", len(got.envs))
	}
}
