package jetstream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/millbridge/millbridge/schema"
)

// A rule of the protocol, and how it is switched off. That the floor waits for transactions that no snapshot names is
// shown in schema/postgres.
type rule struct {
	faults faults
	store  func(s *shop) Store // with a removal that breaks it
	sees   string              // what the checker then finds
}

// A game is played with a rule as it is, and with the rule off.
type game struct {
	*shop
	b      *broker
	store  Store
	faults faults
	off    bool
	envs   []schema.Envelope // published, with one ordering key
}

// hand makes an owner whose steps the test takes one by one.
func (g *game) hand(t *testing.T) *hand {
	t.Helper()
	return takeHand(t, g.store, g.b, g.envs[0], g.faults)
}

// publish commits messages.
func (g *game) publish(t *testing.T, envs ...schema.Envelope) {
	t.Helper()
	if err := g.deal(t.Context(), envs, 0, true); err != nil {
		t.Fatal(err)
	}
}

// needed shows that messages go wrong without a rule, and only then.
func (r rule) needed(t *testing.T, play func(t *testing.T, g *game), shops ...string) {
	t.Helper()
	for name, open := range map[string]func(testing.TB) *shop{"postgres": openShop, "sqlite": openSQLiteShop} {
		if len(shops) > 0 && !slices.Contains(shops, name) {
			continue
		}
		for way, off := range map[string]bool{"as it is": false, "rule off": true} {
			t.Run(name+"/"+way, func(t *testing.T) {
				t.Parallel()
				g := &game{shop: open(t), b: openBroker(t), envs: jobs(0, 12, schema.WithOrderingKey("one")), off: off}
				g.store = g.Store
				if off {
					g.faults = r.faults
					if r.store != nil {
						g.store = r.store(g.shop)
					}
				}
				g.publish(t, g.envs...)
				play(t, g)
				g.judge(t, r.sees)
			})
		}
	}
}

// judge lets an owner finish and asks the checker.
func (g *game) judge(t *testing.T, sees string) {
	t.Helper()
	cfg := quick(t)
	cfg.faults = g.faults
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	_, err := newForwarder(t, anyone{g.store}, g.b.nc, cfg).Drain(ctx)
	report, failed := g.book.Check(t.Context(), g.b.js, schema.Subjects{})
	if failed != nil {
		t.Fatal(failed)
	}
	if !g.off {
		if found := report.Faults(true); err != nil || len(found) > 0 || report.Waiting > 0 {
			t.Errorf("%s: %v (%v)", report, found, err)
		}
		return
	}
	seen := map[string]int{"lost": len(report.Lost), "doubled": len(report.Doubled), "reordered": len(report.Reordered)}
	if seen[sees] == 0 {
		t.Errorf("%s (%v); want some %s", report, err, sees)
	}
	t.Log(report)
}

func TestTakeover_names_are_carried_forward(t *testing.T) {
	t.Parallel()
	rule{faults: faults{forgetNames: true}, sees: "doubled"}.needed(t, func(t *testing.T, g *game) {
		g.hand(t).take().send(5) // and crashes before it removes them
		second := takeHand(t, &failing{Store: g.store, remove: errors.New("crashed")}, g.b, g.envs[0], g.faults)
		if err := second.takeOver(t.Context(), second.ledger); err == nil { // crashes as well
			t.Fatal("the second owner removed rows")
		}
	})
}

func TestTakeover_the_cursor_names_all_rows_that_wait_for_removal(t *testing.T) {
	t.Parallel()
	rule{faults: faults{nameOwnBatchOnly: true}, sees: "doubled"}.needed(t, func(t *testing.T, g *game) {
		g.hand(t).take().send(3).send(3).send(3)
	})
}

// A batch that the server has forgotten was not stored, however certain its owner is.
func TestTakeover_only_the_cursor_says_what_is_stored(t *testing.T) {
	t.Parallel()
	rule{faults: faults{trustMemory: true}, sees: "lost"}.needed(t, func(t *testing.T, g *game) {
		h := g.hand(t).take()
		s := h.stageRows(4)
		s.batch.forget()
		failure := h.commit(t.Context(), s)
		if codeOf(failure) != codeIncomplete {
			t.Fatalf("commit of a forgotten batch: %v", failure)
		}
		_ = h.findOut(t.Context(), failure)
		if err := h.removeNamed(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

// A number that is given out again names another row: only both parts of the name do.
func TestTakeover_numbers_come_back(t *testing.T) {
	t.Parallel()
	rule{store: func(s *shop) Store { return byNumber{s.Store, s} }, sees: "lost"}.needed(t, func(t *testing.T, g *game) {
		h := g.hand(t).take().send(20)
		first := h.m.named()[0].Seq
		if err := g.lose(first); err != nil {
			t.Fatal(err)
		}
		again := jobs(100, 3, schema.WithOrderingKey("one"))
		g.publish(t, again...)
		if err := h.removeNamed(t.Context()); err != nil {
			t.Fatal(err)
		}
		if s := h.f.Status(); !g.off && !slices.ContainsFunc(s, func(s ShardStatus) bool { return s.Vanished == len(g.envs) }) {
			t.Errorf("the rows that vanished are not counted: %+v", s)
		}
	})
}

// byNumber removes whatever has the number of a named row.
type byNumber struct {
	Store
	s *shop
}

func (b byNumber) Remove(ctx context.Context, p schema.RemoveParams) (schema.RemoveResult, error) {
	for _, n := range p.Names {
		if err := b.s.exec(fmt.Sprintf(`DELETE FROM %soutbox WHERE seq = %d`, b.s.table, n.Seq)); err != nil {
			return schema.RemoveResult{}, err
		}
	}
	return b.Store.Remove(ctx, p)
}

// Only PostgreSQL has transactions that write side by side, so that a row can appear among rows that were sent.
func TestTakeover_a_row_commits_late_among_others(t *testing.T) {
	t.Parallel()
	rule{store: func(s *shop) Store { return byRange{s.Store, s} }, sees: "lost"}.needed(t, func(t *testing.T, g *game) {
		late, err := g.pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer late.Rollback(t.Context()) //nolint:errcheck // after a commit it has nothing to do
		e := jobs(100, 1, schema.WithOrderingKey("one too"))[0]
		for i := 0; e.Slot()>>15 != g.envs[0].Slot()>>15; i++ { // of the same shard
			e = jobs(100, 1, schema.WithOrderingKey(fmt.Sprint("one too ", i)))[0]
		}
		if _, err := g.shop.store.Append(t.Context(), late, []schema.Envelope{e}); err != nil {
			t.Fatal(err)
		}
		if err := g.book.EnterPostgres(t.Context(), late, e); err != nil {
			t.Fatal(err)
		}
		g.publish(t, jobs(12, 2, schema.WithOrderingKey("one"))...)
		h := g.hand(t).take().send(20)
		if err := late.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := h.removeNamed(t.Context()); err != nil {
			t.Fatal(err)
		}
	}, "postgres")
}

// byRange removes whatever has a number between those of the named rows.
type byRange struct {
	Store
	s *shop
}

func (b byRange) Remove(ctx context.Context, p schema.RemoveParams) (schema.RemoveResult, error) {
	low, high := p.Names[0].Seq, p.Names[0].Seq
	for _, n := range p.Names {
		low, high = min(low, n.Seq), max(high, n.Seq)
	}
	if err := b.s.exec(`DELETE FROM millbridge.outbox WHERE stream = $1 AND slot * 2 >> 16 = $2 AND seq BETWEEN $3 AND $4`,
		string(p.Stream), p.Shard, low, high); err != nil {
		return schema.RemoveResult{}, err
	}
	return b.Store.Remove(ctx, p)
}

// Rows that go out on "there is no cursor" go out again when there is none once more.
func TestTakeover_no_row_is_sent_without_a_cursor_to_replace(t *testing.T) {
	t.Parallel()
	rule{faults: faults{dataOnZero: true}, sees: "doubled"}.needed(t, func(t *testing.T, g *game) {
		first := g.hand(t).take()
		held := first.stageRows(4) // and stands still
		if err := g.hand(t).take().send(20).removeNamed(t.Context()); err != nil {
			t.Fatal(err)
		}
		s, err := g.b.js.Stream(t.Context(), "MB_JOBS")
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Purge(t.Context(), natsjs.WithPurgeSubject("mb.cursor.>")); err != nil {
			t.Fatal(err)
		}
		if err := first.commit(t.Context(), held); (err == nil) != g.off {
			t.Errorf("the former owner's batch: %v", err)
		}
		if _, err := g.repairLost(t.Context(), g.b.nc, 1, g.faults); err != nil {
			t.Fatal(err)
		}
	})
}

// In a stream that counts from one again, a former owner's fence fits once more.
func TestTakeover_a_stream_made_anew_counts_from_above(t *testing.T) {
	t.Parallel()
	rule{faults: faults{lowSequences: true}, sees: "doubled"}.needed(t, func(t *testing.T, g *game) {
		first := g.hand(t).take().send(5)
		if err := first.removeNamed(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, e := range g.envs[:5] { // they were handled before their stream was lost
			if err := g.exec(`INSERT INTO proof_effects (handler, key, id) VALUES ($1, $2, $3)`, "shop", e.IdempotencyKey(), e.ID); err != nil {
				t.Fatal(err)
			}
		}
		if err := g.b.js.DeleteStream(t.Context(), "MB_JOBS"); err != nil {
			t.Fatal(err)
		}
		if _, err := g.repairLost(t.Context(), g.b.nc, 1, g.faults); err != nil {
			t.Fatal(err)
		}
		second := g.hand(t).take().send(4)
		if fits := second.m.seq == first.m.seq; fits != g.off {
			t.Fatalf("the cursor stands at %d, the former owner expects %d", second.m.seq, first.m.seq)
		}
		if err := first.commit(t.Context(), first.stageRows(4)); (err == nil) != g.off {
			t.Errorf("the former owner's batch: %v", err)
		}
	})
}
