//go:build linux

package crash

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/millbridge/millbridge/internal/testkit/proof"
	"github.com/millbridge/millbridge/schema"
)

// Times for a machine that has a lot else to do.
const (
	restLimit = 15 * time.Minute // to come to rest
	stuck     = time.Minute      // without any progress
)

// rest waits until nothing moves any more and compares everything. With handled, all jobs must have come to their end.
func (w *world) rest(handled bool) {
	ctx, cancel := context.WithTimeout(context.Background(), restLimit)
	defer cancel()
	_, err := w.book.Committed(ctx, schema.Jobs) // waits for those who are about to commit
	if err == nil {
		err = w.awaitServer(ctx)
	}
	if err == nil {
		err = w.awaitEmpty(ctx, "the outbox", func(ctx context.Context) (int64, error) {
			return w.count(ctx, `SELECT count(*) FROM `+w.table("outbox"))
		})
	}
	filters := []string{"jobs.hook.>", "replay.hook.>"} // are handled where rows are forwarded
	if handled {
		filters = []string{"jobs.>", "replay.>"}
	}
	if err == nil { // what handles jobs may publish others: neither counts as empty before both are
		err = w.awaitEmpty(ctx, "the stream of jobs and the outbox", func(ctx context.Context) (n int64, err error) {
			for range 2 {
				jobs, jobsErr := w.unhandled(ctx, filters)
				rows, rowsErr := w.count(ctx, `SELECT count(*) FROM `+w.table("outbox"))
				n, err = n+jobs+rows, errors.Join(err, jobsErr, rowsErr)
			}
			return n, err
		})
	}
	if handled {
		w.awaitAudit(ctx)
	}
	if err != nil {
		w.fault("it does not come to rest: %v", err)
	}
	w.watches.Wait()
	jobs, err := w.book.Committed(ctx, schema.Jobs)
	if err == nil {
		err = w.enterCalls(ctx)
	}
	if err == nil {
		err = w.compare(ctx, jobs, handled)
	}
	if err != nil {
		w.fault("check: %v", err)
	}
}

func (w *world) awaitEmpty(ctx context.Context, what string, count func(context.Context) (int64, error)) error {
	before, limit := int64(-1), time.Now().Add(stuck)
	for {
		ask, cancel := context.WithTimeout(ctx, stuck/3) // a server that goes down takes the question along
		n, err := count(ask)
		cancel()
		switch {
		case n == 0 && err == nil:
			return nil
		case n != before && err == nil:
			before, limit = n, time.Now().Add(stuck)
		case time.Now().After(limit), ctx.Err() != nil:
			return errors.Join(fmt.Errorf("%d are in %s and do not become fewer", n, what), err)
		}
		<-time.After(50 * time.Millisecond)
	}
}

// awaitServer waits until the server answers.
func (w *world) awaitServer(ctx context.Context) error {
	for {
		ask, cancel := context.WithTimeout(ctx, 2*time.Second)
		_, err := w.js.AccountInfo(ask)
		cancel()
		if err == nil || ctx.Err() != nil {
			return err
		}
		<-time.After(50 * time.Millisecond)
	}
}

// answered asks until the server does not go away meanwhile: a process that ends hands its data directory over to another,
// also when nobody harms it.
func answered[T any](ctx context.Context, w *world, ask func() (T, error)) (T, error) {
	for {
		answer, err := ask()
		away := errors.Is(err, nats.ErrReconnectBufExceeded) || errors.Is(err, nats.ErrNoResponders) || errors.Is(err, nats.ErrTimeout)
		if !away || w.awaitServer(ctx) != nil {
			return answer, err
		}
	}
}

// unhandled counts the jobs and replays in the stream.
func (w *world) unhandled(ctx context.Context, filters []string) (n int64, err error) {
	stream, err := w.js.Stream(ctx, subjects.StreamName(schema.Jobs))
	if err != nil {
		return 0, err
	}
	for _, filter := range filters {
		info, err := stream.Info(ctx, natsjs.WithSubjectFilter(subjects.Full(filter)))
		if err != nil {
			return 0, err
		}
		for _, count := range info.State.Subjects {
			n += int64(count)
		}
	}
	return n, nil
}

const (
	orders  = `SELECT count(*) FROM shop_orders`
	audited = `SELECT count(DISTINCT id) FROM proof_effects WHERE handler = 'audit'`
)

// awaitAudit waits for the subscription; what is missing then is a fault of the comparison.
func (w *world) awaitAudit(ctx context.Context) {
	_ = w.awaitEmpty(ctx, "the subscription", func(ctx context.Context) (int64, error) {
		want, err := w.count(ctx, orders)
		if err != nil {
			return 0, err
		}
		have, err := w.count(ctx, audited)
		return max(0, want-have), err
	})
}

// enterCalls enters what the receiver has seen into the book, where the effects of handlers with transactions are.
func (w *world) enterCalls(ctx context.Context) error {
	news := w.receiver.news()
	if w.pool != nil {
		return pgx.BeginFunc(ctx, w.pool, func(tx pgx.Tx) error {
			for _, e := range news {
				if err := w.book.EffectPostgres(ctx, tx, e.Handler, e.Key, e.ID); err != nil {
					return err
				}
			}
			return nil
		})
	}
	tx, err := w.in.DB.Write.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // after a commit there is nothing to roll back
	for _, e := range news {
		if err := w.book.EffectSQLite(ctx, tx, e.Handler, e.Key, e.ID); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// compare holds everything against the book.
func (w *world) compare(ctx context.Context, jobs int64, handled bool) error {
	report, err := answered(ctx, w, func() (proof.Report, error) { return w.book.Check(ctx, w.js, subjects) })
	if err != nil {
		return err
	}
	for _, fault := range report.Faults(true) {
		w.fault("%s", fault)
	}
	if handled && (len(report.Unacked) > 0 || report.Stored-len(report.Doubled) > 0 && report.Waiting > 0) {
		w.fault("at rest there are %d jobs with an effect in the stream and %d rows in the database", len(report.Unacked), report.Waiting)
	}
	inbox, err := w.book.Inbox(ctx)
	if err != nil {
		return err
	}
	replays := int64(0)
	for _, r := range inbox {
		replays += int64(r.Replay)
	}
	sent, err := answered(ctx, w, func() (int64, error) { return proof.SentJobs(ctx, w.js, subjects) })
	if err != nil {
		return err
	}
	if sent != jobs+replays {
		w.fault("the cursors say that %d jobs were stored; %d were committed and %d replayed", sent, jobs, replays)
	}
	parked, err := w.count(ctx, `SELECT count(*) FROM `+w.table("parked"))
	if err != nil || parked > 0 {
		w.fault("%d rows are parked, error %v", parked, err)
	}
	story, err := w.readJournal()
	if err != nil {
		return err
	}
	if err := w.compareEffects(ctx, handled); err != nil {
		return err
	}
	if err := w.compareAttempts(ctx, inbox, story, handled); err != nil {
		return err
	}
	repeats := w.compareCalls()
	w.publish(report, counted{
		committed: int64(report.Committed), rolledBack: story.rolledBack, handled: int64(report.Handled), replays: replays, repeats: repeats,
	})
	return nil
}

// publish adds what is new since the last check to the tally.
func (w *world) publish(r proof.Report, now counted) {
	was := w.before
	w.before = now
	w.tally.add(func(t *totals) {
		t.Checks++
		t.Committed += now.committed - was.committed
		t.RolledBack += now.rolledBack - was.rolledBack
		t.Handled += now.handled - was.handled
		t.Replays += now.replays - was.replays
		t.Repeats += now.repeats - was.repeats
		t.Lost, t.Doubled = t.Lost+len(r.Lost), t.Doubled+len(r.Doubled)
		t.Reordered, t.Invented = t.Reordered+len(r.Reordered), t.Invented+len(r.Invented)
	})
}

// compareEffects looks for effects that came twice, out of order or not at all.
func (w *world) compareEffects(ctx context.Context, handled bool) error {
	effects, err := w.book.Effects(ctx)
	if err != nil {
		return err
	}
	var placed []string
	if handled {
		err := w.query(ctx, `SELECT id FROM shop_orders`, func(scan func(...any) error) error {
			placed = append(placed, "")
			return scan(&placed[len(placed)-1])
		})
		if err != nil {
			return err
		}
	}
	for _, handler := range []string{"till", "line", "audit", "mail", "hook"} {
		var want []string
		if handler == "audit" {
			want = placed
		}
		doubled, missing := proof.EffectsOnce(effects, handler, want)
		if len(doubled)+len(missing) > 0 {
			w.fault("%s: %d keys had their effect twice %q, %d never %q", handler, len(doubled), few(doubled), len(missing), few(missing))
		}
	}
	reordered, err := w.book.EffectsInOrder(ctx, "line")
	if err != nil || len(reordered) > 0 {
		w.fault("line: %d effects were out of order %q, error %v", len(reordered), few(reordered), err)
	}
	return nil
}

// few is enough of a list for a person.
func few(all []string) []string { return all[:min(5, len(all))] }

// compareAttempts looks for attempts that no handler has failed, and for letters of messages that nobody told to fail.
func (w *world) compareAttempts(ctx context.Context, inbox []proof.InboxRow, story story, handled bool) error {
	var running []string
	for _, r := range inbox {
		if failed := story.failed[fmt.Sprint(r.Handler, " ", r.MessageID, " ", r.Replay)]; r.Attempts > failed {
			w.fault("%s: message %s (replay %d) has used up %d attempts, its handler has failed %d times", r.Handler, r.MessageID, r.Replay, r.Attempts, failed)
		}
		if handled && r.State == string(schema.InboxRunning) {
			running = append(running, r.Handler+" "+r.MessageID)
		}
	}
	if len(running) > 0 {
		w.fault("%d messages are running, and nobody runs: %q", len(running), few(running))
	}
	letters, err := answered(ctx, w, func() ([]proof.Letter, error) { return proof.Letters(ctx, w.js, subjects) })
	if err != nil {
		return err
	}
	for _, l := range letters {
		told, least := "", 0
		switch action := l.Subject[strings.LastIndexByte(l.Subject, '.')+1:]; action {
		case "always":
			told, least = "exhausted", 3
		case "never":
			told, least = "permanent", 1
		}
		// A run that was stopped while it failed, and whose message came again meanwhile, is one attempt more.
		attempts, err := strconv.Atoi(l.Attempts)
		failed := story.failed[fmt.Sprint(l.Handler, " ", l.ID, " ", l.Replay)]
		if err != nil || l.Cause != told || attempts < least || attempts > failed || l.Replay != "0" {
			w.fault("%s: there is a letter of %s %s: %s, %s attempts, replay %s; it was told to be %q, its handler has failed %d times",
				l.Handler, l.Subject, l.ID, l.Cause, l.Attempts, l.Replay, told, failed)
		}
	}
	return nil
}

// replayAll lets an operator replay what was given up, and waits until that is handled too. No letter is left then, also
// none that an operator before had replayed and not marked.
func (w *world) replayAll() {
	for try := 1; ; try++ {
		p, err := w.start(operator, "operator-calm", nil)
		if err != nil {
			w.fault("the operator does not start: %v", err)
			return
		}
		if p.endsWithin(5*time.Minute) && p.cmd.ProcessState.Success() {
			break
		}
		p.kill()
		if try == 5 {
			w.fault("the operator cannot replay: %v\n%s", p.cmd.ProcessState, p.output())
			return
		}
		<-time.After(time.Second)
	}
	w.rest(true)
	ctx, cancel := context.WithTimeout(context.Background(), restLimit)
	defer cancel()
	letters, err := answered(ctx, w, func() ([]proof.Letter, error) { return proof.Letters(ctx, w.js, subjects) })
	if err != nil {
		w.fault("read the letters: %v", err)
	}
	for _, l := range letters {
		if l.Open {
			w.fault("%s: the letter of %s, %s, is open, and all were replayed: replay %s, %s, %s attempts", l.Handler, l.ID, l.Subject, l.Replay, l.Cause, l.Attempts)
		}
	}
}

// compareCalls returns how often the outside systems were called again; a process that dies can leave no more than what
// its handlers had in hand.
func (w *world) compareCalls() (repeats int64) {
	for handler, hands := range map[string]int{"hook": 10, "mail": 6} {
		n, mixed := w.receiver.extra(handler)
		if len(mixed) > 0 {
			w.fault("%s: %d keys came with several messages %q", handler, len(mixed), few(mixed))
		}
		if most := hands * int(w.lives.Load()); n > most {
			w.fault("%s: %d calls were repeated, at most %d can be", handler, n, most)
		}
		repeats += int64(n)
	}
	return repeats
}

// A story is what the processes have noted.
type story struct {
	failed     map[string]int // "handler id replay"
	rolledBack int64
}

func (w *world) readJournal() (story, error) {
	s := story{failed: make(map[string]int)}
	text, err := os.ReadFile(w.journal())
	if err != nil {
		return s, err
	}
	for line := range strings.SplitSeq(string(text), "\n") {
		if what, ok := strings.CutPrefix(line, "failed "); ok {
			s.failed[what]++
		}
		var n int64
		if _, err := fmt.Sscanf(line, "rolledback %d", &n); err == nil {
			s.rolledBack += n
		}
	}
	return s, nil
}
