package schematest

import (
	"slices"
	"testing"
	"time"

	"github.com/millbridge/millbridge/schema"
)

func testShards[Tx any](t *testing.T, open Opener[Tx]) {
	t.Run("new shards", func(t *testing.T) {
		s := start(t, open)
		for _, stream := range schema.Streams {
			shards, err := s.Store.Shards(s.ctx, stream)
			s.must(err)
			if len(shards) != s.shards(stream) {
				t.Fatalf("%s: %d shards, want %d", stream, len(shards), s.shards(stream))
			}
			for i, sh := range shards {
				sh.UpdatedAt = time.Time{}
				if want := (schema.Shard{ShardRef: ref(stream, i)}); sh != want {
					t.Errorf("shard %+v, want %+v", sh, want)
				}
			}
		}
	})

	t.Run("owners are remembered", func(t *testing.T) {
		s := start(t, open)
		r := ref(schema.Jobs, 0)
		for i, token := range []string{"one", "two", "three"} {
			if known, err := s.Store.KnownOwner(s.ctx, r, token); known || err != nil {
				t.Fatalf("%s is known, %v, before it was handed out", token, err)
			}
			sh := s.acquire(r, token)
			if sh.Owner != token || sh.ShardRef != r || (sh.LedgerOwner == "two") != (i == 2) {
				t.Fatalf("acquired %+v", sh)
			}
			if again := s.acquire(r, token); again.Owner != token {
				t.Fatalf("acquired again %+v", again)
			}
			if i == 1 {
				_, err := s.Store.Remove(s.ctx, schema.RemoveParams{ShardRef: r, Owner: token, Batch: 1, Total: 0, CursorSeq: 9})
				s.must(err)
			}
			s.must(s.Store.Release(s.ctx, token))
		}
		s.age(24 * time.Hour)
		s.tend()
		// Tokens since the one that the ledger names may stand in the cursor.
		for token, want := range map[string]bool{"one": false, "two": true, "three": true, "four": false} {
			if known, err := s.Store.KnownOwner(s.ctx, r, token); known != want || err != nil {
				t.Errorf("%s is known: %v, %v; want %v", token, known, err, want)
			}
		}
		if known, err := s.Store.KnownOwner(s.ctx, ref(schema.Events, 0), "two"); known || err != nil {
			t.Errorf("an owner of another shard is known: %v, %v", known, err)
		}
	})

	t.Run("a ledger that is behind", func(t *testing.T) {
		s := start(t, open)
		r := ref(schema.Events, 0)
		s.acquire(r, "me")
		for i := range 20 { // in all shards
			s.publish(schema.NewEvent("x", i))
		}
		row := s.waiting(schema.Events)[0]
		r = s.shardOf(row)
		s.acquire(r, "me")
		_, err := s.Store.Remove(s.ctx, schema.RemoveParams{ShardRef: r, Owner: "me", Batch: 3, Total: 9})
		s.must(err)
		reader := s.Reader(r, s.shards(schema.Events))
		for _, known := range []int64{0, 2, 3} {
			if rows, err := reader.Read(s.ctx, schema.ReadParams{Removed: known}); err != nil || len(rows) == 0 {
				t.Errorf("who knows of batch %d reads %d rows, %v", known, len(rows), err)
			}
		}
		// The owner knows that batch 4 was removed: the database has lost that, and its rows have come back.
		rows, err := reader.Read(s.ctx, schema.ReadParams{Removed: 4})
		s.wants(err, schema.ErrRecovered)
		if len(rows) > 0 {
			t.Errorf("%d rows are handed out that may have been sent", len(rows))
		}
		_, err = s.Store.Remove(s.ctx, schema.RemoveParams{ShardRef: r, Owner: "me", Batch: 5, Total: 10, Removed: 4, Names: []schema.RowName{row.Name()}})
		s.wants(err, schema.ErrRecovered)
		shards, err := s.Store.Shards(s.ctx, schema.Events)
		s.must(err)
		if got := shards[r.Shard].Batch; got != 3 {
			t.Errorf("the ledger says batch %d, want 3", got)
		}
		if _, err = s.Store.Remove(s.ctx, schema.RemoveParams{ShardRef: r, Owner: "me", Batch: 5, Total: 10, Removed: 3}); err != nil {
			t.Error(err)
		}
	})

	t.Run("an unknown shard", func(t *testing.T) {
		s := start(t, open)
		for _, r := range []schema.ShardRef{ref(schema.Jobs, 99), {Stream: schema.Jobs, Generation: 2}, {Stream: "x", Generation: 1}} {
			_, ok, err := s.Store.Acquire(s.ctx, r, "me", time.Minute)
			s.wants(err, schema.ErrNotFound)
			if ok {
				t.Errorf("%+v was acquired", r)
			}
			_, err = s.Store.Remove(s.ctx, schema.RemoveParams{ShardRef: r, Owner: "me", Batch: 1})
			s.wants(err, schema.ErrNotFound)
		}
	})

	t.Run("leases", func(t *testing.T) {
		s := start(t, open)
		if !s.Leases {
			return // one process forwards, which a lock beside the database sees to
		}
		r, events := ref(schema.Jobs, 0), ref(schema.Events, 0)
		if sh := s.acquire(r, "one"); sh.LeaseLeft <= 55*time.Second || sh.LeaseLeft > time.Minute {
			t.Fatalf("%v are left of a minute", sh.LeaseLeft)
		}
		s.acquire(events, "other")
		sh, ok, err := s.Store.Acquire(s.ctx, r, "two", time.Minute)
		s.must(err)
		if ok || sh.Owner != "one" || sh.LeaseLeft <= 0 {
			t.Fatalf("acquired %v: %+v, want it to be one's", ok, sh)
		}
		s.age(40 * time.Second)
		held, err := s.Store.Renew(s.ctx, []string{"one", "other", "unknown"}, time.Minute)
		s.must(err)
		slices.Sort(held)
		if !slices.Equal(held, []string{"one", "other"}) {
			t.Fatalf("renewed %v", held)
		}
		s.age(40 * time.Second)
		if _, ok, err := s.Store.Acquire(s.ctx, r, "two", time.Minute); ok || err != nil {
			t.Fatalf("a renewed lease was taken: %v, %v", ok, err)
		}
		s.age(21 * time.Second)
		s.acquire(r, "two")
		if held, err := s.Store.Renew(s.ctx, []string{"one"}, time.Minute); len(held) != 0 || err != nil {
			t.Fatalf("one renewed what two has: %v, %v", held, err)
		}
		s.must(s.Store.Release(s.ctx, "one"))
		if _, ok, err := s.Store.Acquire(s.ctx, r, "three", time.Minute); ok || err != nil {
			t.Fatalf("one has released what two has: %v, %v", ok, err)
		}
		s.must(s.Store.Release(s.ctx, "two"))
		s.acquire(r, "three")
		for range 2 { // once as it was taken, once as it was renewed
			s.age(-month) // the clock is set back
			if sh, ok, err := s.Store.Acquire(s.ctx, r, "two", time.Second); ok || err != nil || !near(sh.LeaseLeft, time.Minute) {
				t.Fatalf("after the clock was set back: acquired %v, %v left of a minute, %v", ok, sh.LeaseLeft, err)
			}
			if held, err := s.Store.Renew(s.ctx, []string{"three"}, time.Minute); len(held) != 1 || err != nil {
				t.Fatalf("renewed %v, %v", held, err)
			}
		}
		s.age(61 * time.Second)
		s.acquire(r, "two")
		s.must(s.Store.Release(s.ctx, "two"))
		s.age(-month)
		s.acquire(r, "three")
		if held, err := s.Store.Renew(s.ctx, nil, time.Minute); len(held) != 0 || err != nil {
			t.Fatalf("renewed %v, %v of nothing", held, err)
		}
	})
}

func testRemove[Tx any](t *testing.T, open Opener[Tx]) {
	ledger := func(s *suite[Tx], r schema.ShardRef) schema.Shard {
		shards, err := s.Store.Shards(s.ctx, r.Stream)
		s.must(err)
		return shards[r.Shard]
	}
	// rows publishes n jobs of one shard.
	rows := func(s *suite[Tx], n int) (schema.ShardRef, []schema.Row) {
		for range n {
			s.publish(schema.NewJob("crm", "a", nil, schema.WithOrderingKey("k")))
		}
		all := s.waiting(schema.Jobs)
		return s.shardOf(all[0]), all
	}

	t.Run("removes what is named and keeps the ledger", func(t *testing.T) {
		s := start(t, open)
		r, all := rows(s, 5)
		s.acquire(r, "me")
		other := schema.NewUUID(time.Now())
		res, err := s.Store.Remove(s.ctx, schema.RemoveParams{
			ShardRef: r, Owner: "me", Batch: 3, Total: 4, CursorSeq: 77, Names: []schema.RowName{
				all[0].Name(), all[2].Name(),
				{Seq: all[1].Seq, ID: other}, // the number of a row, the id of another
				{Seq: all[4].Seq + 1000, ID: all[4].ID},
			},
		})
		s.must(err)
		if res != (schema.RemoveResult{Removed: 2, Vanished: 2}) {
			t.Fatalf("%+v, want 2 removed and 2 vanished", res)
		}
		left := s.waiting(schema.Jobs)
		if len(left) != 3 || left[0].Seq != all[1].Seq || left[1].Seq != all[3].Seq || left[2].Seq != all[4].Seq {
			t.Fatalf("left are %+v", left)
		}
		sh := ledger(s, r)
		if sh.Batch != 3 || sh.Total != 4 || sh.CursorSeq != 77 || sh.LedgerOwner != "me" {
			t.Fatalf("ledger %+v", sh)
		}
		// Again, as after an answer that was lost; and an older batch.
		for _, batch := range []int64{3, 2} {
			res, err = s.Store.Remove(s.ctx, schema.RemoveParams{ShardRef: r, Owner: "me", Batch: batch, Total: 9, Names: []schema.RowName{all[1].Name()}})
			s.must(err)
			if res != (schema.RemoveResult{Done: true}) || len(s.waiting(schema.Jobs)) != 3 {
				t.Fatalf("batch %d: %+v, want done and nothing removed", batch, res)
			}
		}
		res, err = s.Store.Remove(s.ctx, schema.RemoveParams{ShardRef: r, Owner: "me", Batch: 4, Total: 4})
		s.must(err)
		if res != (schema.RemoveResult{}) || ledger(s, r).Batch != 4 {
			t.Fatalf("a batch without rows: %+v", res)
		}
	})

	t.Run("a former owner removes nothing", func(t *testing.T) {
		s := start(t, open)
		r, all := rows(s, 1)
		s.acquire(r, "one")
		s.must(s.Store.Release(s.ctx, "one"))
		s.acquire(r, "two")
		_, err := s.Store.Remove(s.ctx, schema.RemoveParams{ShardRef: r, Owner: "one", Batch: 1, Total: 1, Names: []schema.RowName{all[0].Name()}})
		s.wants(err, schema.ErrLeaseLost)
		if schema.KindOf(err) != schema.NotMine {
			t.Errorf("kind %v, want not_mine", schema.KindOf(err))
		}
		if sh := ledger(s, r); len(s.waiting(schema.Jobs)) != 1 || sh.Batch != 0 || sh.LedgerOwner != "" {
			t.Errorf("ledger %+v, want it untouched", sh)
		}
	})

	t.Run("thousands of rows", func(t *testing.T) {
		s := start(t, open)
		envs := make([]schema.Envelope, schema.MaxCursorRows)
		for i := range envs {
			envs[i] = schema.NewJob("crm", "a", nil, schema.WithOrderingKey("k"))
		}
		s.publish(envs...)
		all := s.waiting(schema.Jobs)
		r := s.shardOf(all[0])
		s.acquire(r, "me")
		names := make([]schema.RowName, len(all))
		for i, row := range all {
			names[i] = row.Name()
		}
		res, err := s.Store.Remove(s.ctx, schema.RemoveParams{ShardRef: r, Owner: "me", Batch: 1, Total: int64(len(names)), Names: names})
		s.must(err)
		if res != (schema.RemoveResult{Removed: schema.MaxCursorRows}) {
			t.Fatalf("%+v, want all removed", res)
		}
		s.wantWaiting(schema.Jobs)
	})
}
