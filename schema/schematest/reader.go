package schematest

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/millbridge/millbridge/schema"
)

func testReader[Tx any](t *testing.T, open Opener[Tx]) {
	t.Run("each row is in one shard, by sequence", func(t *testing.T) {
		s := start(t, open)
		var jobs, events []schema.Envelope
		for i := range 300 {
			jobs = append(jobs, schema.NewJob("crm", "a", nil))
			events = append(events, schema.NewEvent("paid", nil, schema.WithOrderingKey(fmt.Sprint(i%50))))
		}
		s.publish(append(slices.Clone(jobs), events...)...)
		s.wantWaiting(schema.Jobs, idsOf(jobs)...)
		s.wantWaiting(schema.Events, idsOf(events)...)
		for _, shards := range []int{1, 2, 3, 7, 32} {
			seen := make(map[int64]int)
			for shard := range shards {
				rows, err := s.Reader(ref(schema.Jobs, shard), shards).Read(s.ctx, schema.ReadParams{MaxRows: 1000, MaxBytes: 1 << 20})
				s.must(err)
				if !slices.IsSortedFunc(rows, func(a, b schema.Row) int { return int(a.Seq - b.Seq) }) {
					t.Errorf("shard %d of %d is not sorted", shard, shards)
				}
				for _, r := range rows {
					seen[r.Seq]++
					if int(r.Slot)*shards>>16 != shard {
						t.Errorf("slot %d is in shard %d of %d", r.Slot, shard, shards)
					}
				}
			}
			if len(seen) != len(jobs) {
				t.Errorf("%d shards have %d rows, want %d", shards, len(seen), len(jobs))
			}
		}
	})

	t.Run("limits", func(t *testing.T) {
		s := start(t, open)
		var envs []schema.Envelope
		for i := range 10 {
			envs = append(envs, schema.NewJob("crm", "a", bytes.Repeat([]byte("x"), 1000*(i+1))))
		}
		s.publish(envs...)
		r := s.Reader(ref(schema.Jobs, 0), 1)
		size := func(rows []schema.Row) (n int) {
			for _, r := range rows {
				n += len(r.Header) + len(r.Payload)
			}
			return n
		}
		all, err := r.Read(s.ctx, schema.ReadParams{MaxRows: 100, MaxBytes: 1 << 20})
		s.must(err)
		for _, c := range []struct {
			p    schema.ReadParams
			want int
		}{
			{schema.ReadParams{MaxRows: 3, MaxBytes: 1 << 20}, 3},
			{schema.ReadParams{MaxRows: 100, MaxBytes: size(all[:4])}, 4},
			{schema.ReadParams{MaxRows: 100, MaxBytes: size(all[:4]) - 1}, 3},
			{schema.ReadParams{MaxRows: 100, MaxBytes: 1}, 1},
			{schema.ReadParams{MaxRows: 2, MaxBytes: 1 << 20, Exclude: []int64{all[0].Seq, all[2].Seq}}, 2},
		} {
			rows, err := r.Read(s.ctx, c.p)
			s.must(err)
			if len(rows) != c.want {
				t.Errorf("%+v gave %d rows, want %d", c.p, len(rows), c.want)
			}
		}
		rows, err := r.Read(s.ctx, schema.ReadParams{MaxRows: 2, MaxBytes: 1 << 20, Exclude: []int64{all[0].Seq, all[2].Seq}})
		s.must(err)
		if got, want := s.ids(rows), []string{envs[1].ID, envs[3].ID}; !slices.Equal(got, want) {
			t.Errorf("read %v, want %v", got, want)
		}
	})

	t.Run("a look finds what a read would", func(t *testing.T) {
		s := start(t, open)
		var readers []Reader
		look := func(exclude ...int64) (looks []schema.Look) {
			for _, r := range readers {
				looks = append(looks, r.Look(schema.ReadParams{Exclude: exclude}))
			}
			return looks
		}
		found := func(exclude ...int64) (all []bool) {
			t.Helper()
			sights, err := s.Store.Peek(s.ctx, look(exclude...))
			s.must(err)
			for _, got := range sights {
				all = append(all, got.Found)
			}
			return all
		}
		for _, stream := range schema.Streams {
			for shard := range 3 {
				r := s.Reader(ref(stream, shard), 3)
				rows, err := r.Read(s.ctx, schema.ReadParams{})
				s.must(err)
				if len(rows) != 0 {
					t.Fatalf("%d rows in an empty outbox", len(rows))
				}
				readers = append(readers, r)
			}
		}
		s.wantPeek(false, look()...)
		s.wantPeek(false) // no looks at all
		s.publish(schema.NewJob("crm", "a", nil))
		row := s.waiting(schema.Jobs)[0]
		for i, got := range found() {
			if want := i == int(row.Slot)*3>>16; got != want {
				t.Errorf("with a row in slot %d look %d of 6 finds %v, want %v", row.Slot, i, got, want)
			}
		}
		s.wantPeek(false, look(row.Seq)...)
		s.publish(schema.NewJob("crm", "a", nil), schema.NewEvent("paid", nil))
		if all := found(row.Seq); !slices.Contains(all[:3], true) || !slices.Contains(all[3:], true) {
			t.Errorf("with one row more in each stream the looks find %v", all)
		}
	})

	t.Run("what is not removed comes back", func(t *testing.T) {
		s := start(t, open)
		n := s.shards(schema.Jobs)
		readers := make([]Reader, n)
		for i := range readers {
			readers[i] = s.Reader(ref(schema.Jobs, i), n)
			s.acquire(ref(schema.Jobs, i), "me")
		}
		want := make(map[int64]bool)
		excluded := make([]map[int64]schema.Row, n)
		batch := make([]int64, n)
		for round := range 36 {
			for range 5 {
				s.publish(schema.NewJob("crm", "a", nil))
			}
			for _, row := range s.waiting(schema.Jobs) {
				want[row.Seq] = true
			}
			for i, r := range readers {
				if excluded[i] == nil {
					excluded[i] = make(map[int64]schema.Row)
				}
				var exclude []int64
				for seq := range excluded[i] {
					exclude = append(exclude, seq)
				}
				rows, err := r.Read(s.ctx, schema.ReadParams{MaxRows: 1000, MaxBytes: 1 << 20, Exclude: exclude})
				s.must(err)
				got := make(map[int64]bool)
				for _, row := range rows {
					got[row.Seq] = true
				}
				for _, row := range s.waiting(schema.Jobs) {
					_, out := excluded[i][row.Seq]
					if s.shardOf(row).Shard == i && got[row.Seq] == out {
						t.Fatalf("round %d: row %d: excluded %v, read %v", round, row.Seq, out, got[row.Seq])
					}
				}
				// Some go to the stream, of which some are removed at once and some later; some sendings fail.
				for k, row := range rows {
					switch (k + round) % 4 {
					case 0, 1:
						excluded[i][row.Seq] = row
					}
				}
				if round%3 == 0 {
					var names []schema.RowName
					for seq, row := range excluded[i] {
						if seq%2 == 0 || round%9 == 0 {
							names = append(names, row.Name())
							delete(excluded[i], seq)
							delete(want, seq)
						}
					}
					batch[i]++
					_, err := s.Store.Remove(s.ctx, schema.RemoveParams{ShardRef: ref(schema.Jobs, i), Owner: "me", Batch: batch[i], Names: names})
					s.must(err)
				} else if round%3 == 1 {
					clear(excluded[i]) // the outcome was "not there": all are to be sent again
				}
			}
		}
		for i, r := range readers {
			r.Reset()
			rows, err := r.Read(s.ctx, schema.ReadParams{MaxRows: 1000, MaxBytes: 1 << 20})
			s.must(err)
			for _, row := range rows {
				if !want[row.Seq] {
					t.Errorf("shard %d: row %d was removed", i, row.Seq)
				}
				delete(want, row.Seq)
			}
		}
		if len(want) > 0 {
			t.Errorf("%d rows are gone that nobody removed", len(want))
		}
	})
}
