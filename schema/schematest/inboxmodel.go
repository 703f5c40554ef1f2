package schematest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/millbridge/millbridge/schema"
	"pgregory.net/rapid"
)

// A model is what the inbox should know about one key, on a clock that only [Harness].Age moves. Leases and waits are
// hours, steps of the clock 80 minutes: the moments of real time that a test takes never decide.
type model struct {
	now    time.Duration
	exists bool
	schema.InboxRecord
	leaseUntil, nextTry time.Duration
}

const clockStep = 80 * time.Minute

func (m *model) running() bool { return m.State == schema.InboxRunning }

// claim answers a run without changing anything.
func (m *model) claim(run schema.Run) schema.Claim {
	switch {
	case !m.exists:
		return schema.ClaimRun
	case m.BodyHash != [32]byte{} && m.BodyHash != run.BodyHash:
		return schema.ClaimReused
	case run.Replay < m.Replay:
		return schema.ClaimSuperseded
	case m.running() && m.LeaseOwner != "" && m.LeaseOwner != run.Owner && m.leaseUntil > m.now:
		return schema.ClaimBusy
	case m.running() && m.nextTry > m.now:
		return schema.ClaimBusy
	case run.Replay > m.Replay || m.running():
		return schema.ClaimRun
	case m.State == schema.InboxDead && (m.MessageID == run.MessageID || m.MessageID == ""):
		return schema.ClaimDead
	}
	return schema.ClaimDone
}

// take is what a run that may go ahead makes of the record.
func (m *model) take(run schema.Run) {
	if run.Replay > m.Replay || !m.exists {
		m.Attempts, m.Deliveries = 0, 0
	}
	if m.MessageID != run.MessageID {
		m.Deliveries = 0
	}
	m.exists, m.MessageID, m.BodyHash, m.Replay = true, run.MessageID, run.BodyHash, run.Replay
	m.Cause, m.nextTry, m.LeaseOwner, m.leaseUntil = "", 0, "", 0
}

func (m *model) fail(run schema.Run, f schema.Failure) (ok bool) {
	after := f.Attempts
	if f.Attempted {
		after++
	}
	if m.exists && m.running() && !f.Dead && !f.Cancelled && m.LeaseOwner == "" && m.Deliveries == f.Deliveries && m.nextTry != 0 && m.Attempts >= after &&
		m.MessageID == run.MessageID && m.Replay == run.Replay {
		return true // noted before
	}
	if m.claim(run) != schema.ClaimRun {
		return false
	}
	m.take(run)
	if f.Attempted {
		m.Attempts++
	}
	m.Deliveries, m.LastError = f.Deliveries, f.Reason
	m.State, m.nextTry = schema.InboxRunning, m.now+f.RetryIn
	if f.Dead {
		m.State, m.Cause, m.nextTry = schema.InboxDead, f.Cause, 0
	} else if f.Cancelled {
		m.State, m.Cause, m.nextTry = schema.InboxDone, schema.CauseCancelled, 0
	}
	return true
}

func (m *model) leaveDead(from int, state schema.InboxState, replay int) bool {
	if !m.exists {
		m.exists, m.State, m.Replay = true, state, replay
		return true
	}
	if m.State != schema.InboxDead || m.Replay != from {
		return false
	}
	m.State, m.Replay = state, replay
	if state == schema.InboxRunning {
		m.Attempts, m.Deliveries, m.Cause = 0, 0, ""
	}
	return true
}

// A history is what has happened to one key in one run of the model.
type history struct {
	*rapid.T
	m    *model
	key  schema.InboxKey
	n    int
	runs []schema.Run
}

func (h *history) newRun() schema.Run {
	n := rapid.IntRange(0, 3).Draw(h.T, "message")
	run := schema.Run{
		Key: h.key, Owner: fmt.Sprintf("%d/%d", h.n, len(h.runs)), MessageID: fmt.Sprint("m", n/2),
		BodyHash: [32]byte{1}, Lease: time.Duration(rapid.IntRange(1, 3).Draw(h.T, "lease")) * time.Hour,
		Replay: max(0, h.m.Replay+rapid.SampledFrom([]int{0, 0, 0, 0, -1, 1}).Draw(h.T, "replay")),
	}
	if n == 3 {
		run.MessageID, run.BodyHash = "m3", [32]byte{2}
	}
	h.runs = append(h.runs, run)
	return run
}

func (h *history) oldRun() schema.Run {
	if len(h.runs) == 0 {
		return h.newRun()
	}
	return h.runs[rapid.IntRange(max(0, len(h.runs)-3), len(h.runs)-1).Draw(h.T, "run")]
}

func (h *history) check(err error) {
	h.Helper()
	if err != nil {
		h.Fatal(err)
	}
}

// RunInboxModel compares an inbox with the model over a few random histories of one key. It is the part of the suite's
// model that is about runs under a lease.
func RunInboxModel(t *testing.T, open func(t *testing.T) InboxHarness) {
	t.Parallel()
	const few = 25 // each step asks a server several times
	modelInbox(t, open(t), few, func(*history) map[string]func(*rapid.T) { return nil })
}

// modelInbox does so with at most that many histories (0: as many as rapid wants), and more that can happen.
func modelInbox(t *testing.T, in InboxHarness, most int, more func(h *history) map[string]func(*rapid.T)) {
	ctx, histories := t.Context(), 0
	rapid.Check(t, func(rt *rapid.T) {
		if histories++; most > 0 && histories > most {
			return
		}
		h := &history{T: rt, m: &model{now: time.Minute}, key: schema.InboxKey{Handler: "h", Key: fmt.Sprint(histories)}, n: histories}
		actions := modelActions(ctx, in, h)
		maps.Copy(actions, more(h))
		rt.Repeat(actions)
	})
}

// modelActions are what can happen to any inbox.
func modelActions(ctx context.Context, in InboxHarness, h *history) map[string]func(*rapid.T) {
	m := h.m
	return map[string]func(*rapid.T){
		"claim": func(rt *rapid.T) {
			run := h.newRun()
			want := m.claim(run)
			res, err := in.Inbox.Claim(ctx, run)
			h.check(err)
			if res.Claim != want {
				rt.Fatalf("claim %v on %+v, want %v", res.Claim, res.Record, want)
			}
			if (res.Wait > 0) != (want == schema.ClaimBusy) {
				rt.Fatalf("claim %v with wait %v", want, res.Wait)
			}
			if want == schema.ClaimRun {
				m.take(run)
				m.State, m.LeaseOwner, m.leaseUntil = schema.InboxRunning, run.Owner, m.now+run.Lease
			}
		},
		"done": func(rt *rapid.T) {
			run := h.oldRun()
			ok := m.exists && m.running() && m.LeaseOwner == run.Owner && m.Replay == run.Replay
			if err := in.Inbox.Done(ctx, run); (err == nil) != ok {
				rt.Fatalf("done %+v: %v, want %v", run, err, ok)
			}
			if ok {
				m.State, m.LeaseOwner, m.leaseUntil, m.nextTry = schema.InboxDone, "", 0, 0
			}
		},
		"fail": func(rt *rapid.T) {
			run := h.oldRun()
			f := schema.Failure{
				Reason: rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "reason"), Attempted: rapid.Bool().Draw(rt, "attempted"),
				Deliveries: uint64(rapid.IntRange(1, 3).Draw(rt, "deliveries")), RetryIn: time.Duration(rapid.IntRange(1, 3).Draw(rt, "retry")) * time.Hour,
				Attempts: max(0, m.Attempts-rapid.IntRange(0, 1).Draw(rt, "attempts since")),
			}
			switch rapid.IntRange(0, 5).Draw(rt, "verdict") {
			case 0, 1:
				f.Dead, f.Cause = true, schema.CausePermanent
			case 2:
				f.Cancelled = true
			}
			ok := m.fail(run, f)
			if rec, err := in.Inbox.Fail(ctx, run, f); (err == nil) != ok {
				rt.Fatalf("fail %+v: %+v, %v, want %v", run, rec, err, ok)
			}
		},
		"free": func(rt *rapid.T) {
			run := h.oldRun()
			h.check(in.Inbox.Free(ctx, run))
			if m.exists && m.running() && m.LeaseOwner == run.Owner {
				m.LeaseOwner, m.leaseUntil = "", 0
			}
		},
		"extend": func(rt *rapid.T) {
			run := h.oldRun()
			ok := m.exists && m.running() && m.LeaseOwner == run.Owner
			nobody := run
			nobody.Owner = "nobody"
			held, err := in.Inbox.Extend(ctx, []schema.Run{run, nobody}, run.Lease)
			h.check(err)
			if slices.Contains(held, run.Owner) != ok || len(held) > 1 {
				rt.Fatalf("extended %v, want it to have %s: %v", held, run.Owner, ok)
			}
			if ok {
				m.leaseUntil = m.now + run.Lease
			}
		},
		"time passes": func(*rapid.T) {
			h.check(in.Age(ctx, clockStep))
			m.now += clockStep
		},
		"": func(rt *rapid.T) { // after each step
			rec, ok, err := in.Inbox.LookupInbox(ctx, h.key)
			h.check(err)
			if ok != m.exists {
				rt.Fatalf("a record: %v, want %v", ok, m.exists)
			}
			if !ok {
				return
			}
			want := m.InboxRecord
			want.Key, want.UpdatedAt, want.NextTry = h.key, rec.UpdatedAt, rec.NextTry
			if m.leaseUntil <= m.now {
				want.LeaseOwner = ""
			}
			if rec != want || rec.NextTry.IsZero() != (m.nextTry == 0) {
				rt.Fatalf("record\n%+v, want\n%+v with the next try at %v", rec, want, m.nextTry)
			}
		},
	}
}

// testInboxModel compares the store with the model, what is done in transactions included.
func testInboxModel[Tx any](t *testing.T, open Opener[Tx]) {
	s := start(t, open)
	modelInbox(t, InboxHarness{Inbox: s.Store, Age: s.Age}, 0, func(h *history) map[string]func(*rapid.T) {
		// inTx runs f in a transaction, keeps the model's change only if it commits.
		inTx := func(f func(tx Tx) error) {
			before := *h.m
			end := rapid.SampledFrom([]error{nil, nil, errRollback}).Draw(h.T, "end")
			err := s.Store.InTx(s.ctx, func(tx Tx) error {
				h.check(f(tx))
				return end
			})
			if end == nil {
				h.check(err)
			} else {
				*h.m = before
			}
		}
		return map[string]func(*rapid.T){
			"claim in transaction": func(rt *rapid.T) {
				run := h.newRun()
				want := h.m.claim(run)
				inTx(func(tx Tx) error {
					res, err := s.Store.ClaimTx(s.ctx, tx, run)
					if err == nil && res.Claim != want {
						rt.Fatalf("claim %v on %+v, want %v", res.Claim, res.Record, want)
					}
					if want == schema.ClaimRun {
						h.m.take(run)
						h.m.State = schema.InboxDone
					}
					return err
				})
			},
			"reset": func(rt *rapid.T) {
				from := max(0, h.m.Replay+rapid.SampledFrom([]int{0, 0, 0, -1, 1}).Draw(rt, "from"))
				inTx(func(tx Tx) error {
					want := h.m.leaveDead(from, schema.InboxRunning, from+1)
					ok, err := s.Store.ResetForReplay(s.ctx, tx, h.key, from)
					if err == nil && ok != want {
						rt.Fatalf("reset from %d: %v, want %v", from, ok, want)
					}
					return err
				})
			},
			"drop": func(rt *rapid.T) {
				from := max(0, h.m.Replay+rapid.SampledFrom([]int{0, 0, 0, -1, 1}).Draw(rt, "from"))
				inTx(func(tx Tx) error {
					want := h.m.leaveDead(from, schema.InboxDropped, from)
					ok, err := s.Store.Drop(s.ctx, tx, h.key, from)
					if err == nil && ok != want {
						rt.Fatalf("drop at %d: %v, want %v", from, ok, want)
					}
					return err
				})
			},
			"a month passes": func(rt *rapid.T) {
				if rapid.IntRange(0, 3).Draw(rt, "month") > 0 {
					return // rarely: it forgets what came before
				}
				h.check(s.Age(s.ctx, month))
				h.m.now += month
				for more := true; more; {
					res, err := s.Store.Tend(s.ctx, 1000)
					h.check(err)
					more = res.More
				}
				if h.m.State != schema.InboxDead { // whose letter may still be replayed
					*h.m = model{now: h.m.now}
				}
			},
		}
	})
}
