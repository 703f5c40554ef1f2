package schematest

import (
	"testing"
	"time"

	"github.com/millbridge/millbridge/schema"
)

// testTimes looks at every time that a store gives: they are printed as they are, on machines in many zones.
func testTimes[Tx any](t *testing.T, open Opener[Tx]) {
	s := start(t, open)
	utc := func(what string, at time.Time) {
		t.Helper()
		if at.IsZero() || at.Location() != time.UTC {
			t.Errorf("%s: %v in %v, want a time in UTC", what, at, at.Location())
		}
	}
	record := func(what string, r schema.InboxRecord, err error) {
		t.Helper()
		s.must(err)
		utc(what, r.UpdatedAt)
	}

	s.publish(schema.NewJob("crm", "first", nil, schema.WithKey("k")), schema.NewJob("crm", "second", nil),
		schema.NewJob("crm", "later", nil, schema.WithDueAt(time.Now().Add(time.Hour))))
	rows := s.waiting(schema.Jobs)
	for _, r := range rows {
		utc("row that is read", r.CreatedAt)
	}
	listed, err := s.Store.ListOutbox(s.ctx, schema.RowFilter{})
	s.must(err)
	utc("outbox", listed[0].CreatedAt)
	scheduled, err := s.Store.ListScheduled(s.ctx, schema.RowFilter{})
	s.must(err)
	utc("scheduled", scheduled[0].CreatedAt)
	utc("scheduled, due", scheduled[0].DueAt)
	shard := s.shardOf(rows[0])
	utc("shard that is acquired", s.acquire(shard, "me").UpdatedAt)
	s.must(s.Store.Park(s.ctx, schema.ParkParams{ShardRef: shard, Owner: "me", Name: rows[0].Name(), Reason: "r"}))
	parked, err := s.Store.ListParked(s.ctx, schema.RowFilter{})
	s.must(err)
	utc("parked", parked[0].CreatedAt)
	utc("parked, since", parked[0].ParkedAt)
	shards, err := s.Store.Shards(s.ctx, schema.Jobs)
	s.must(err)
	utc("shard", shards[0].UpdatedAt)
	keys, err := s.Store.PublishedKeys(s.ctx, nil, 10)
	s.must(err)
	utc("key", keys[0].At)
	accounts, err := s.Store.Accounts(s.ctx, schema.AccountsParams{})
	s.must(err)
	utc("accounts", accounts.Created)

	run := schema.Run{Key: schema.InboxKey{Handler: "crm", Key: "k"}, Owner: "o", MessageID: "m", Lease: time.Minute}
	for _, again := range []string{"claim", "another claim"} {
		res, err := s.Store.Claim(s.ctx, run)
		record(again, res.Record, err)
		run.Owner += "o"
	}
	run.Owner = "o"
	failed, err := s.Store.Fail(s.ctx, run, schema.Failure{Reason: "r", Attempted: true, RetryIn: time.Minute})
	record("failure", failed, err)
	utc("next try", failed.NextTry)
	found, _, err := s.Store.LookupInbox(s.ctx, run.Key)
	record("inbox", found, err)
	utc("next try in the inbox", found.NextTry)
	byMessage, err := s.Store.InboxByMessage(s.ctx, "m")
	record("inbox by message", byMessage[0], err)
	run.Key.Key = "other"
	for _, again := range []string{"claim in a transaction", "another in a transaction"} {
		s.must(s.Store.InTx(s.ctx, func(tx Tx) error {
			res, err := s.Store.ClaimTx(s.ctx, tx, run)
			record(again, res.Record, err)
			return nil
		}))
	}

	circuit, err := s.Store.CircuitFailed(s.ctx, "crm", "r", 1, time.Minute)
	s.must(err)
	utc("circuit", circuit.Since)
	_, _, err = s.Store.DisableHandler(s.ctx, "crm", "r", 0)
	s.must(err)
	circuits, err := s.Store.Circuits(s.ctx)
	s.must(err)
	utc("circuits", circuits[0].Since)

	s.must(s.Store.Unit(s.ctx, func(u schema.Unit) error {
		return u.SaveSaga(s.ctx, schema.SagaRecord{Saga: "loan", ID: "a", Status: schema.SagaRunning, Version: 1}, schema.SagaEvent{})
	}))
	sagas, err := s.Store.Sagas(s.ctx, schema.SagaFilter{})
	s.must(err)
	utc("saga", sagas[0].CreatedAt)
	utc("saga, updated", sagas[0].UpdatedAt)
	history, err := s.Store.SagaHistory(s.ctx, "loan", "a")
	s.must(err)
	utc("event of a saga", history[0].At)
}
