package proof

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/millbridge/millbridge/schema"
)

// A Report says what became of all committed messages.
type Report struct {
	Committed int // messages in the book
	Stored    int // of these, how many are in their stream
	Handled   int // of these, how many jobs have had their effect and left their stream
	Waiting   int // of these, how many are in the database and not in the stream
	Dead      int // of these, how many jobs were given up and have a letter that nobody has replayed

	Lost      []string // ids that are nowhere
	Doubled   []string // ids that were stored more than once
	Both      []string // ids that are in two of these places: normal for a moment, wrong once all is quiet
	Unacked   []string // ids that have had their effect and are still stored: normal until a consumer has come to rest
	Reordered []string // ids that were stored before one that committed earlier with the same ordering key
	Invented  []string // ids that are stored and were never committed
}

// Check compares the book with database and streams. A job that a handler has taken out of the stream is found again by
// its effect or its dead letter; whether it was stored twice can only be told while it is in the stream. A replay counts
// as the job that it replays.
func (b *Book) Check(ctx context.Context, js natsjs.JetStream, subjects schema.Subjects) (Report, error) {
	var r Report
	// In the order of a message's way, so that one that moves meanwhile is seen at least once.
	records, err := b.committed(ctx)
	if err != nil {
		return r, err
	}
	waiting, err := b.waiting(ctx)
	if err != nil {
		return r, err
	}
	events, err := storedEvents(ctx, js, subjects)
	if err != nil {
		return r, err
	}
	jobs, err := storedJobs(ctx, js, subjects)
	if err != nil {
		return r, err
	}
	letters, err := Letters(ctx, js, subjects)
	if err != nil {
		return r, err
	}
	effects, err := b.Effects(ctx)
	if err != nil {
		return r, err
	}
	handled := make(map[string]bool)
	for _, e := range effects {
		handled[e.ID] = true
	}
	inbox, err := b.Inbox(ctx)
	if err != nil {
		return r, err
	}
	replays := make(map[string]int) // by handler and message
	for _, row := range inbox {
		replays[row.Handler+" "+row.MessageID] = row.Replay
	}
	dead := make(map[string]bool)
	for _, l := range letters {
		// An operator who dies between the two leaves a letter that is replayed, for the next one to find.
		if n, err := strconv.Atoi(l.Replay); l.Open && (err != nil || replays[l.Handler+" "+l.ID] <= n) {
			dead[l.ID] = true
		}
	}
	// What was committed meanwhile is not invented.
	known, err := b.committed(ctx)
	if err != nil {
		return r, err
	}
	r.Committed = len(records)
	places := make(map[string][]uint64)
	for _, p := range append(events, jobs...) {
		places[p.id] = append(places[p.id], p.seq)
	}
	last := make(map[string]uint64)
	for _, rec := range records {
		at := places[rec.id]
		_, waits := waiting[rec.id]
		job := rec.stream == string(schema.Jobs)
		done, given := job && handled[rec.id], job && dead[rec.id]
		switch n := count(len(at) > 0, waits, done, given); {
		case len(at) > 1:
			r.Doubled = append(r.Doubled, rec.id)
		case n == 2 && done && len(at) == 1:
			r.Unacked = append(r.Unacked, rec.id)
		case n > 1:
			r.Both = append(r.Both, rec.id)
		case n == 0:
			r.Lost = append(r.Lost, rec.id)
		case waits:
			r.Waiting++
		case done:
			r.Handled++
		case given:
			r.Dead++
		}
		if len(at) == 0 {
			continue
		}
		r.Stored++
		if rec.key != "" {
			if at[0] < last[rec.key] {
				r.Reordered = append(r.Reordered, rec.id)
			}
			last[rec.key] = max(last[rec.key], at[0])
		}
	}
	for _, rec := range known {
		delete(places, rec.id)
	}
	for id := range places {
		r.Invented = append(r.Invented, id)
	}
	return r, nil
}

func count(places ...bool) (n int) {
	for _, there := range places {
		if there {
			n++
		}
	}
	return n
}

// Faults lists what is wrong, in words; with quiet, when nothing is in motion any more, a message in two places is too.
func (r Report) Faults(quiet bool) []string {
	var faults []string
	fault := func(what string, ids []string) {
		if len(ids) > 0 {
			faults = append(faults, fmt.Sprintf("%d %s: %s", len(ids), what, strings.Join(ids[:min(len(ids), 5)], ", ")))
		}
	}
	fault("lost", r.Lost)
	fault("doubled", r.Doubled)
	fault("reordered", r.Reordered)
	fault("stored and never committed", r.Invented)
	if quiet {
		fault("in two places", r.Both)
	}
	return faults
}

func (r Report) String() string {
	return fmt.Sprintf("%d committed: %d stored, %d handled, %d waiting, %d dead, %d lost, %d doubled, %d reordered, %d invented",
		r.Committed, r.Stored, r.Handled, r.Waiting, r.Dead, len(r.Lost), len(r.Doubled), len(r.Reordered), len(r.Invented))
}

// EffectsOnce returns the keys for which a handler had its effect more than once, and those of want that it never had.
func EffectsOnce(effects []Effect, handler string, want []string) (doubled, missing []string) {
	times := make(map[string]int)
	for _, e := range effects {
		if e.Handler == handler {
			if times[e.Key]++; times[e.Key] == 2 {
				doubled = append(doubled, e.Key)
			}
		}
	}
	for _, key := range want {
		if times[key] == 0 {
			missing = append(missing, key)
		}
	}
	return doubled, missing
}
