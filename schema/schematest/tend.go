package schematest

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/millbridge/millbridge/schema"
)

const month = 31 * 24 * time.Hour

func testTend[Tx any](t *testing.T, open Opener[Tx]) {
	t.Run("history goes in bounded steps", func(t *testing.T) {
		s := start(t, open)
		for i := range 25 {
			id := fmt.Sprint("m", i)
			s.publish(schema.NewJob("crm", "a", nil, schema.WithKey(id), schema.WithID(id)))
			run := schema.Run{Key: schema.InboxKey{Handler: "h", Key: id}, Owner: id, MessageID: id, Lease: time.Minute}
			_, err := s.Store.Claim(s.ctx, run)
			s.must(err)
			if i < 20 {
				s.must(s.Store.Done(s.ctx, run))
			} else {
				_, err := s.Store.Fail(s.ctx, run, schema.Failure{Reason: "r", Attempted: true, Dead: true, Cause: schema.CausePermanent})
				s.must(err)
			}
		}
		counts := func() (done, dead int64) {
			c, err := s.Store.InboxCounts(s.ctx)
			s.must(err)
			return c["h"][schema.InboxDone], c["h"][schema.InboxDead]
		}
		s.tend()
		if done, dead := counts(); done != 20 || dead != 5 {
			t.Fatalf("%d done and %d dead, want 20 and 5", done, dead)
		}
		if r := s.publish(schema.NewJob("crm", "a", nil, schema.WithKey("m3"))); !r[0].Existing || r[0].ID != "m3" {
			t.Errorf("a key that is to be kept gives %+v, want message m3", r[0])
		}
		s.age(month)
		for i, want := range []int64{10, 0, 0} {
			res, err := s.Store.Tend(s.ctx, 10)
			s.must(err)
			if more := i < 2; res.More != more {
				t.Errorf("step %d says %v, want %v: there may be more to do", i, res.More, more)
			}
			// Dead ones stay as long as their dead letter can be replayed.
			if done, dead := counts(); done != want || dead != 5 {
				t.Fatalf("%d done and %d dead, want %d and 5", done, dead, want)
			}
		}
		// What waits is not history, however old it is.
		if n := len(s.waiting(schema.Jobs)); n != 25 {
			t.Errorf("%d rows wait, want 25", n)
		}
		if r := s.publish(schema.NewJob("crm", "a", nil, schema.WithKey("m3"))); r[0].Existing {
			t.Errorf("a key that has expired gives %+v, want a new message", r[0])
		}
	})
}

// C30 shows that upkeep deletes history only, in whatever number of processes it runs.
func C30[Tx any](t *testing.T, open Opener[Tx]) {
	s := start(t, open)
	shard := ref(schema.Jobs, 0)
	waiting, poison := 10, 3
	var names []schema.RowName
	publish := func(n int) []schema.Row {
		for i := 0; i < n; {
			e := schema.NewJob("crm", "a", nil, schema.WithKey(schema.NewID()))
			if int(e.Slot())*s.shards(schema.Jobs)>>16 == 0 {
				s.publish(e)
				i++
			}
		}
		return s.waiting(schema.Jobs)
	}
	s.acquire(shard, "me")
	for _, r := range publish(poison) {
		s.must(s.Store.Park(s.ctx, schema.ParkParams{ShardRef: shard, Owner: "me", Name: r.Name(), Reason: "r"}))
	}
	const sent = 300
	for _, r := range publish(sent) {
		names = append(names, r.Name())
	}
	res, err := s.Store.Remove(s.ctx, schema.RemoveParams{ShardRef: shard, Owner: "me", Batch: 1, Total: sent, Names: names})
	s.must(err)
	publish(waiting)
	s.publish(schema.NewJob("crm", "later", nil, schema.WithDueAt(time.Now().Add(10*month))))
	s.age(2 * month)
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for range 50 {
				if _, err := s.Store.Tend(s.ctx, 10); err != nil {
					t.Errorf("tend: %v", err)
				}
			}
		})
	}
	wg.Wait()
	shards, err := s.Store.Shards(s.ctx, schema.Jobs)
	s.must(err)
	if res.Removed != sent || shards[0].Total != sent {
		t.Errorf("%d rows removed, the ledger says %d; want %d", res.Removed, shards[0].Total, sent)
	}
	backlog := make(map[string]int64)
	list, err := s.Store.Backlogs(s.ctx)
	s.must(err)
	for _, b := range list {
		backlog[b.Where] += b.Rows
	}
	if backlog["outbox"] != int64(waiting) || backlog["parked"] != int64(poison) || backlog["scheduled"] != 1 {
		t.Errorf("backlog %v, want %d in the outbox, %d parked and 1 scheduled", backlog, waiting, poison)
	}
}
