package router

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/schema"
)

// groupInbox notes what it is asked, and answers when it is let.
type groupInbox struct {
	Inbox
	gate chan struct{} // one value for each call that may go on
	fail error         // of groups
	out  string        // the key that groups leave out

	mu    sync.Mutex
	calls []string
}

func (in *groupInbox) note(format string, args ...any) {
	<-in.gate
	in.mu.Lock()
	defer in.mu.Unlock()
	in.calls = append(in.calls, fmt.Sprintf(format, args...))
}

func (in *groupInbox) seen() []string {
	in.mu.Lock()
	defer in.mu.Unlock()
	return slices.Clone(in.calls)
}

func (in *groupInbox) Claim(_ context.Context, run schema.Run) (schema.ClaimResult, error) {
	in.note("claim %s", run.Key.Key)
	if run.Key.Key == "bad" {
		return schema.ClaimResult{}, errBad
	}
	return schema.ClaimResult{Claim: schema.ClaimBusy}, nil
}

func (in *groupInbox) Done(_ context.Context, run schema.Run) error {
	in.note("done %s", run.Key.Key)
	return schema.ErrLeaseLost
}

func (in *groupInbox) Group(_ context.Context, claims, done []schema.Run) (claimed []*schema.InboxRecord, noted []bool, err error) {
	in.note("group of %d and %d", len(claims), len(done))
	if in.fail != nil {
		return nil, nil, in.fail
	}
	for _, r := range claims {
		var rec *schema.InboxRecord
		if r.Key.Key != in.out {
			rec = &schema.InboxRecord{Key: r.Key, LeaseOwner: r.Owner}
		}
		claimed = append(claimed, rec)
	}
	for _, r := range done {
		noted = append(noted, r.Key.Key != in.out)
	}
	return claimed, noted, nil
}

var errBad = errors.New("bad key")

type groupTest struct {
	*testing.T
	in *groupInbox
	g  *gathered
	wg sync.WaitGroup
}

// startGroup begins with one who claims the key "first" and is not answered yet.
func startGroup(t *testing.T, in *groupInbox) *groupTest {
	t.Parallel()
	in.gate = make(chan struct{})
	g := &groupTest{T: t, in: in, g: gather(in).(*gathered)}
	g.claim("first", schema.ClaimBusy, nil)
	testkit.Eventually(t, time.Minute, func() error {
		if g.waiting() != 0 || !g.led() {
			return errors.New("the first is not being served")
		}
		return nil
	})
	return g
}

func (g *groupTest) led() bool {
	g.g.mu.Lock()
	defer g.g.mu.Unlock()
	return g.g.named || g.g.under > 0
}

func (g *groupTest) waiting() int {
	g.g.mu.Lock()
	defer g.g.mu.Unlock()
	return len(g.g.queue)
}

func (g *groupTest) claim(key string, want schema.Claim, wantErr error) {
	g.wg.Go(func() {
		res, err := g.g.Claim(g.Context(), schema.Run{Key: schema.InboxKey{Key: key}, Owner: "o"})
		if res.Claim != want || !errors.Is(err, wantErr) || err == nil && want == schema.ClaimRun && res.Record.Key.Key != key {
			g.Errorf("claim of %s: %+v, %v; want %v, %v", key, res, err, want, wantErr)
		}
	})
}

func (g *groupTest) done(key string, want error) {
	g.wg.Go(func() {
		if err := g.g.Done(g.Context(), schema.Run{Key: schema.InboxKey{Key: key}, Owner: "o"}); !errors.Is(err, want) {
			g.Errorf("end of %s: %v, want %v", key, err, want)
		}
	})
}

// line waits until n wait.
func (g *groupTest) line(n int) {
	g.Helper()
	testkit.Eventually(g, time.Minute, func() error {
		if got := g.waiting(); got != n {
			return fmt.Errorf("%d wait, want %d", got, n)
		}
		return nil
	})
}

// twoUnder waits until a second group is on its way, with all who wait.
func (g *groupTest) twoUnder() {
	g.Helper()
	testkit.Eventually(g, time.Minute, func() error {
		g.g.mu.Lock()
		defer g.g.mu.Unlock()
		if g.g.under != 2 || len(g.g.queue) != 0 {
			return fmt.Errorf("%d groups are on their way and %d wait", g.g.under, len(g.g.queue))
		}
		return nil
	})
}

// finish lets all go on and compares the calls.
func (g *groupTest) finish(want ...string) {
	g.Helper()
	close(g.in.gate)
	g.wg.Wait()
	if got := g.in.seen(); !slices.Equal(got, want) {
		g.Errorf("calls %q, want %q", got, want)
	}
	if g.led() || g.waiting() != 0 {
		g.Error("somebody still leads or waits")
	}
}

func TestGather_those_who_come_meanwhile_are_a_group(t *testing.T) {
	g := startGroup(t, &groupInbox{})
	for i := range enough { // the second group
		g.claim(fmt.Sprint("b", i), schema.ClaimRun, nil)
	}
	g.twoUnder()
	for i := range maxGroup {
		g.claim(fmt.Sprint("c", i), schema.ClaimRun, nil)
		g.line(i + 1)
	}
	g.done("d1", nil)
	g.line(maxGroup + 1)
	g.done("d2", nil)
	g.line(maxGroup + 2)
	g.in.gate <- struct{}{} // the first, or the second
	g.line(2)
	close(g.in.gate)
	g.wg.Wait()
	got := g.in.seen()
	slices.Sort(got)
	want := []string{"claim first", "group of 0 and 2", fmt.Sprintf("group of %d and 0", enough), fmt.Sprintf("group of %d and 0", maxGroup)}
	if !slices.Equal(got, want) {
		t.Errorf("calls %q, want %q", got, want)
	}
}

// Enough of them do not wait for the group that is on its way, but a third group does.
func TestGather_two_groups_at_once(t *testing.T) {
	g := startGroup(t, &groupInbox{})
	for i := range enough - 1 {
		g.claim(fmt.Sprint("a", i), schema.ClaimRun, nil)
	}
	g.line(enough - 1)
	g.done("last", nil)
	g.twoUnder()
	for i := range enough {
		g.claim(fmt.Sprint("b", i), schema.ClaimRun, nil)
	}
	g.line(enough)
	close(g.in.gate)
	g.wg.Wait()
	got := g.in.seen()
	slices.Sort(got)
	want := []string{"claim first", fmt.Sprintf("group of %d and 0", enough), fmt.Sprintf("group of %d and 1", enough-1)}
	if slices.Sort(want); !slices.Equal(got, want) {
		t.Errorf("calls %q, want %q", got, want)
	}
}

func TestGather_a_key_is_once_in_a_group(t *testing.T) {
	g := startGroup(t, &groupInbox{})
	for i, key := range []string{"a", "b", "c"} {
		g.claim(key, schema.ClaimRun, nil)
		g.line(i + 1)
	}
	g.claim("a", schema.ClaimBusy, nil)
	g.line(4)
	g.in.gate <- struct{}{}
	g.in.gate <- struct{}{}
	// Who is left is alone again and gets the inbox's own answer.
	testkit.Eventually(t, time.Minute, func() error {
		if n := len(g.in.seen()); n != 2 {
			return fmt.Errorf("%d calls", n)
		}
		return nil
	})
	close(g.in.gate)
	g.wg.Wait()
	if got, want := g.in.seen(), []string{"claim first", "group of 3 and 0", "claim a"}; !slices.Equal(got, want) {
		t.Errorf("calls %q, want %q", got, want)
	}
}

func TestGather_who_is_left_out_is_asked_for_alone(t *testing.T) {
	g := startGroup(t, &groupInbox{out: "a"})
	g.claim("a", schema.ClaimBusy, nil)
	g.claim("b", schema.ClaimRun, nil)
	g.done("c", nil)
	g.line(3)
	g.finish("claim first", "group of 2 and 1", "claim a")
}

func TestGather_an_end_that_is_left_out_gets_its_own_answer(t *testing.T) {
	g := startGroup(t, &groupInbox{out: "a"})
	g.done("a", schema.ErrLeaseLost)
	g.done("b", nil)
	g.line(2)
	g.finish("claim first", "group of 0 and 2", "done a")
}

func TestGather_a_database_that_is_away_is_away_for_all(t *testing.T) {
	g := startGroup(t, &groupInbox{fail: schema.ErrUnreachable})
	g.claim("a", schema.ClaimRun, schema.ErrUnreachable)
	g.done("b", schema.ErrUnreachable)
	g.line(2)
	g.finish("claim first", "group of 1 and 1")
}

func TestGather_who_is_alone_gets_the_inboxs_answer(t *testing.T) {
	t.Parallel()
	in := &groupInbox{gate: make(chan struct{})}
	close(in.gate)
	g := &groupTest{T: t, in: in, g: gather(in).(*gathered)}
	g.claim("bad", schema.ClaimRun, errBad)
	g.wg.Wait()
	g.done("bad", schema.ErrLeaseLost)
	g.wg.Wait()
	if got, want := in.seen(), []string{"claim bad", "done bad"}; !slices.Equal(got, want) {
		t.Errorf("calls %q, want %q", got, want)
	}
}

func TestGather_who_is_to_lead_and_goes_hands_it_on(t *testing.T) {
	t.Parallel()
	in := &groupInbox{gate: make(chan struct{})}
	close(in.gate)
	g := gather(in)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for range 50 { // each leads or goes, as it happens
		if _, err := g.Claim(gone, schema.Run{}); err != nil && !errors.Is(err, schema.ErrNoAnswer) {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if res, err := g.Claim(ctx, schema.Run{}); err != nil || res.Claim != schema.ClaimBusy {
		t.Errorf("after them: %+v, %v", res, err)
	}
}

func TestGather_who_waits_leads_in_place_of_who_goes(t *testing.T) {
	t.Parallel()
	in := &groupInbox{gate: make(chan struct{})}
	close(in.gate)
	g := &groupTest{T: t, in: in, g: gather(in).(*gathered)}
	gone := &asker{answer: make(chan answer, 1)}
	g.g.mu.Lock()
	g.g.queue = append(g.g.queue, gone)
	g.g.pass()
	g.g.mu.Unlock()
	g.claim("a", schema.ClaimBusy, nil)
	g.line(2)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := g.g.leave(ctx, gone); !errors.Is(err, schema.ErrNoAnswer) {
		t.Error(err)
	}
	g.line(0)
	g.wg.Wait()
}

func TestGather_no_run_fails_for_another(t *testing.T) {
	g := startGroup(t, &groupInbox{fail: errors.New("invalid byte sequence")})
	g.claim("a", schema.ClaimBusy, nil)
	g.line(1)
	g.claim("b", schema.ClaimBusy, nil)
	g.line(2)
	close(g.in.gate)
	g.wg.Wait()
	got := g.in.seen()
	slices.Sort(got[2:])
	if want := []string{"claim first", "group of 2 and 0", "claim a", "claim b"}; !slices.Equal(got, want) {
		t.Errorf("calls %q, want %q", got, want)
	}
}

func TestGather_who_waits_no_longer_holds_up_nobody(t *testing.T) {
	g := startGroup(t, &groupInbox{})
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := g.g.Claim(ctx, schema.Run{Key: schema.InboxKey{Key: "gone"}}); !errors.Is(err, schema.ErrUnavailable) {
			t.Errorf("error %v, want one of a database that does not answer", err)
		}
	})
	g.line(1)
	g.claim("a", schema.ClaimRun, nil)
	g.line(2)
	g.claim("b", schema.ClaimRun, nil)
	g.line(3)
	cancel()
	wg.Wait()
	g.line(2)
	g.finish("claim first", "group of 2 and 0")
}
