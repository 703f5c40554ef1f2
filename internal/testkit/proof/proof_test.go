package proof_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/internal/testkit/proof"
	"github.com/millbridge/millbridge/publishers/jetstream"
	"github.com/millbridge/millbridge/schema"
	"github.com/millbridge/millbridge/schema/postgres"
)

// Everything that goes wrong is found, and nothing else.
func TestCheck(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	pool, server := testkit.Postgres(t), testkit.NATS(t)
	store, js := postgres.New(pool, postgres.Options{}), server.JetStream(t)
	t.Cleanup(store.Close)
	book := proof.OnPostgres(pool)
	if err := book.Create(ctx); err != nil {
		t.Fatal(err)
	}
	if err := jetstream.EnsureStreams(ctx, js, jetstream.StreamsConfig{}); err != nil {
		t.Fatal(err)
	}
	forwarder, err := jetstream.NewForwarder(jetstream.StoreOf(store), server.Conn(t), jetstream.ForwarderConfig{Logger: testkit.Logger(t)})
	if err != nil {
		t.Fatal(err)
	}
	drain := func() {
		t.Helper()
		if _, err := forwarder.Drain(ctx); err != nil {
			t.Fatal(err)
		}
	}
	publish := func(enter bool, envs ...schema.Envelope) {
		t.Helper()
		err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := store.Append(ctx, tx, envs); err != nil || !enter {
				return err
			}
			return book.EnterPostgres(ctx, tx, envs...)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	check := func(want proof.Report) {
		t.Helper()
		got, err := book.Check(ctx, js, schema.Subjects{})
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(got.Lost)
		slices.Sort(got.Invented)
		if fmt.Sprint(got) != fmt.Sprint(want) || !slices.Equal(got.Lost, want.Lost) || !slices.Equal(got.Doubled, want.Doubled) ||
			!slices.Equal(got.Reordered, want.Reordered) || !slices.Equal(got.Invented, want.Invented) || !slices.Equal(got.Both, want.Both) || !slices.Equal(got.Unacked, want.Unacked) {
			t.Errorf("the check finds %+v, want %+v", got, want)
		}
	}
	var envs []schema.Envelope
	for i := range 6 {
		job := schema.NewJob("crm", "x", i, schema.WithOrderingKey("a"))
		event := schema.NewEvent("x", i, schema.WithOrderingKey("a"))
		envs = append(envs, job, event)
	}
	publish(true, envs...)
	check(proof.Report{Committed: 12, Waiting: 12})
	drain()
	check(proof.Report{Committed: 12, Stored: 12})

	// Jobs that are handled leave the stream.
	if err := purge(ctx, js, "MB_JOBS", "mb.jobs.>"); err != nil {
		t.Fatal(err)
	}
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		for i := 2; i < len(envs); i += 2 {
			if err := book.EffectPostgres(ctx, tx, "crm", envs[i].Key, envs[i].ID); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	check(proof.Report{Committed: 12, Stored: 6, Handled: 5, Lost: []string{envs[0].ID}})
	publish(false, envs[0])
	drain()
	check(proof.Report{Committed: 12, Stored: 7, Handled: 5})

	invented := schema.NewEvent("y", 0)
	publish(false, invented)
	drain()
	check(proof.Report{Committed: 12, Stored: 7, Handled: 5, Invented: []string{invented.ID}})
	if err := purge(ctx, js, "MB_EVENTS", "mb.events.internal.y"); err != nil {
		t.Fatal(err)
	}

	// Entered in another order than published.
	first, second := schema.NewEvent("z", 1, schema.WithOrderingKey("b")), schema.NewEvent("z", 2, schema.WithOrderingKey("b"))
	publish(false, second)
	drain()
	publish(true, first)
	drain()
	if err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return book.EnterPostgres(ctx, tx, second) }); err != nil {
		t.Fatal(err)
	}
	check(proof.Report{Committed: 14, Stored: 9, Handled: 5, Reordered: []string{second.ID}})

	// Handled in another order than entered.
	effect := func(e schema.Envelope, handler string) {
		t.Helper()
		if err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return book.EffectPostgres(ctx, tx, handler, e.Key, e.ID) }); err != nil {
			t.Fatal(err)
		}
	}
	effect(first, "in order")
	effect(second, "in order")
	effect(second, "line")
	effect(first, "line")
	for handler, want := range map[string][]string{"line": {first.ID}, "in order": nil} {
		if late, err := book.EffectsInOrder(ctx, handler); err != nil || !slices.Equal(late, want) {
			t.Errorf("%s: %v came late, want %v (%v)", handler, late, want, err)
		}
	}

	// The same message again: it is stored and waits, then it is stored twice.
	publish(false, envs[1])
	check(proof.Report{Committed: 14, Stored: 9, Handled: 5, Reordered: []string{second.ID}, Both: []string{envs[1].ID}})
	drain()
	check(proof.Report{Committed: 14, Stored: 9, Handled: 5, Reordered: []string{second.ID}, Doubled: []string{envs[1].ID}})

	// A job that has had its effect and is still stored.
	effect(envs[0], "crm")
	check(proof.Report{Committed: 14, Stored: 9, Handled: 5, Reordered: []string{second.ID}, Doubled: []string{envs[1].ID}, Unacked: []string{envs[0].ID}})

	if err := purge(ctx, js, "MB_EVENTS", "mb.events.>"); err != nil {
		t.Fatal(err)
	}
	lost := []string{first.ID, second.ID}
	for _, e := range envs {
		if e.Stream() == schema.Events {
			lost = append(lost, e.ID)
		}
	}
	slices.Sort(lost)
	check(proof.Report{Committed: 14, Stored: 1, Handled: 5, Lost: lost, Unacked: []string{envs[0].ID}})
}

func purge(ctx context.Context, js natsjs.JetStream, stream, subject string) error {
	s, err := js.Stream(ctx, stream)
	if err != nil {
		return err
	}
	return s.Purge(ctx, natsjs.WithPurgeSubject(subject))
}

func TestEffectsOnce(t *testing.T) {
	t.Parallel()
	effects := []proof.Effect{{"crm", "a", "1"}, {"crm", "b", "2"}, {"erp", "a", "1"}, {"crm", "b", "3"}, {"crm", "b", "4"}}
	doubled, missing := proof.EffectsOnce(effects, "crm", []string{"a", "b", "c"})
	if !slices.Equal(doubled, []string{"b"}) || !slices.Equal(missing, []string{"c"}) {
		t.Errorf("doubled %v, missing %v", doubled, missing)
	}
}
