package schematest

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millbridge/millbridge/schema"
)

// A suite is one test's migrated store with helpers that end the test when they fail.
type suite[Tx any] struct {
	Harness[Tx]
	t   *testing.T
	ctx context.Context
}

func start[Tx any](t *testing.T, open Opener[Tx]) *suite[Tx] {
	t.Helper()
	t.Parallel()
	return start2(t, open)
}

// A peeking reader shows with each read that a look says so if there are rows: those that were read are still there. Every
// other read takes what a look has seen.
type peeking[Tx any] struct {
	Reader
	s     *suite[Tx]
	reads *atomic.Int64
}

func (r peeking[Tx]) Read(ctx context.Context, p schema.ReadParams) ([]schema.Row, error) {
	look := r.Look(p)
	if r.reads.Add(1)%2 == 0 {
		if sights, err := r.s.Store.Peek(ctx, []schema.Look{look}); err == nil {
			p.Seen = sights[0].Seen
		}
	}
	rows, err := r.Reader.Read(ctx, p)
	if len(rows) > 0 {
		r.s.wantPeek(true, look)
	}
	return rows, err
}

// wantPeek ends the test unless a look finds something, or nothing.
func (s *suite[Tx]) wantPeek(want bool, looks ...schema.Look) {
	s.t.Helper()
	sights, err := s.Store.Peek(s.ctx, looks)
	s.must(err)
	if len(sights) != len(looks) || slices.ContainsFunc(sights, func(got schema.Sight) bool { return got.Found != want }) {
		s.t.Fatalf("the looks %+v find %+v, want all of them %v", looks, sights, want)
	}
}

func (s *suite[Tx]) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// wants ends the test unless err wraps want.
func (s *suite[Tx]) wants(err, want error) {
	s.t.Helper()
	if !errors.Is(err, want) {
		s.t.Fatalf("error %v, want %v", err, want)
	}
}

// publish commits envelopes.
func (s *suite[Tx]) publish(envs ...schema.Envelope) []schema.Receipt {
	s.t.Helper()
	receipts, err := s.tryPublish(envs...)
	s.must(err)
	return receipts
}

// tryPublish commits even if Append has refused, so that whatever it has written would be seen.
func (s *suite[Tx]) tryPublish(envs ...schema.Envelope) (receipts []schema.Receipt, err error) {
	s.t.Helper()
	s.must(s.Store.InTx(s.ctx, func(tx Tx) error {
		receipts, err = s.Store.Append(s.ctx, tx, envs)
		return nil
	}))
	return receipts, err
}

// ref names a shard of the first generation.
func ref(stream schema.Stream, shard int) schema.ShardRef {
	return schema.ShardRef{Stream: stream, Generation: 1, Shard: shard}
}

// shards returns how many shards a stream has.
func (s *suite[Tx]) shards(stream schema.Stream) int {
	s.t.Helper()
	info, err := s.Store.Info(s.ctx)
	s.must(err)
	return info.Shards[stream]
}

// waiting returns what new readers of all shards of a stream see, by sequence.
func (s *suite[Tx]) waiting(stream schema.Stream) []schema.Row {
	s.t.Helper()
	var all []schema.Row
	n := s.shards(stream)
	for i := range n {
		rows, err := s.Reader(ref(stream, i), n).Read(s.ctx, schema.ReadParams{MaxRows: 1 << 20, MaxBytes: 1 << 30})
		s.must(err)
		all = append(all, rows...)
	}
	slices.SortFunc(all, func(a, b schema.Row) int { return cmp.Compare(a.Seq, b.Seq) })
	return all
}

// ids returns the message ids of rows.
func (s *suite[Tx]) ids(rows []schema.Row) []string {
	s.t.Helper()
	ids := make([]string, len(rows))
	for i, r := range rows {
		e, err := r.Envelope()
		s.must(err)
		ids[i] = e.ID
	}
	return ids
}

// wantWaiting ends the test unless exactly these messages wait in a stream, in this order.
func (s *suite[Tx]) wantWaiting(stream schema.Stream, ids ...string) {
	s.t.Helper()
	if got := s.ids(s.waiting(stream)); !slices.Equal(got, ids) {
		s.t.Fatalf("%s waiting: %v, want %v", stream, got, ids)
	}
}

func (s *suite[Tx]) tend() schema.TendResult {
	s.t.Helper()
	res, err := s.Store.Tend(s.ctx, 1000)
	s.must(err)
	return res
}

func (s *suite[Tx]) age(d time.Duration) {
	s.t.Helper()
	s.must(s.Age(s.ctx, d))
}

// acquire makes token the owner of a shard.
func (s *suite[Tx]) acquire(r schema.ShardRef, token string) schema.Shard {
	s.t.Helper()
	sh, ok, err := s.Store.Acquire(s.ctx, r, token, time.Minute)
	s.must(err)
	if !ok {
		s.t.Fatalf("shard %v was not acquired by %s", r, token)
	}
	return sh
}

// shardOf returns the shard that a row belongs to.
func (s *suite[Tx]) shardOf(r schema.Row) schema.ShardRef {
	s.t.Helper()
	return ref(r.Stream, int(r.Slot)*s.shards(r.Stream)>>16)
}

func idsOf(envs []schema.Envelope) []string {
	ids := make([]string, len(envs))
	for i, e := range envs {
		ids[i] = e.ID
	}
	return ids
}

// start2 returns another store within a test.
func start2[Tx any](t *testing.T, open Opener[Tx]) *suite[Tx] {
	t.Helper()
	s := &suite[Tx]{open(t), t, t.Context()}
	reader := s.Reader
	s.Reader = func(ref schema.ShardRef, shards int) Reader {
		return peeking[Tx]{reader(ref, shards), s, new(atomic.Int64)}
	}
	_, _, err := s.Store.MigrateUp(s.ctx)
	s.must(err)
	return s
}

// tryPublishAnyway publishes in a transaction that ends with Append's error.
func (s *suite[Tx]) tryPublishAnyway(envs ...schema.Envelope) (receipts []schema.Receipt, err error) {
	err = s.Store.InTx(s.ctx, func(tx Tx) error {
		receipts, err = s.Store.Append(s.ctx, tx, envs)
		return err
	})
	return receipts, err
}

// pause lets a moment pass, longer than a reader waits between two looks at what is still open.
func (s *suite[Tx]) pause() {
	select {
	case <-s.ctx.Done():
	case <-time.After(120 * time.Millisecond):
	}
}
