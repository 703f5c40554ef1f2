package ops

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/millbridge/millbridge/schema"
)

// A Verification accounts for every message that the outbox of a database has sent or holds.
type Verification struct {
	OK          bool             `json:"ok"`          // everything is accounted for
	Unaccounted int64            `json:"unaccounted"` // messages, all streams together
	At          time.Time        `json:"at"`
	Seconds     float64          `json:"seconds"`
	Looks       int              `json:"looks"` // a difference counts when every look finds it
	Outbox      string           `json:"outbox"`
	Streams     []StreamAccount  `json:"streams"`
	Handlers    []HandlerAccount `json:"handlers"`
	Dead        Dead             `json:"dead"`
	Findings    []Finding        `json:"findings"`
	Notes       []string         `json:"notes"` // what cannot be told, and why
}

// A StreamAccount says where the messages for one stream are. Those that were sent are in the stream, settled, handled
// without a record, expired, or a difference that an operator has accepted; the rest is unaccounted for.
type StreamAccount struct {
	Stream      schema.Stream `json:"stream"`
	Pending     int64         `json:"pending"` // in the outbox
	Scheduled   int64         `json:"scheduled"`
	Parked      int64         `json:"parked"`
	Dropped     int64         `json:"dropped"` // parked rows that an operator dropped
	Sent        int64         `json:"sent"`    // up to the cut, by the cursors in the stream
	Cut         uint64        `json:"cut"`     // sequence in the stream up to which messages are counted
	InStream    int64         `json:"in_stream"`
	Settled     int64         `json:"settled"`    // jobs that are done, dead, replayed or dropped and have left the stream
	Unrecorded  int64         `json:"unrecorded"` // jobs handled where this database does not hear of it
	Expired     int64         `json:"expired"`    // events
	Accepted    int64         `json:"accepted"`   // differences
	Foreign     int64         `json:"foreign"`    // in the stream, from others
	Unaccounted int64         `json:"unaccounted"`
}

// A HandlerAccount says what one handler has done with its messages.
type HandlerAccount struct {
	Name         string `json:"name"`
	Subscription bool   `json:"subscription"`
	Waiting      int64  `json:"waiting"`   // in the streams, not handed out
	InFlight     int64  `json:"in_flight"` // handed out, or waiting for the next attempt
	Done         int64  `json:"done"`
	Dead         int64  `json:"dead"`
	Replayed     int64  `json:"replayed"` // letters that were put back, as long as their marks are kept
	Dropped      int64  `json:"dropped"`
	Forgotten    int64  `json:"forgotten"` // settled so long ago that they are only counted
	Unaccounted  int64  `json:"unaccounted"`
}

// The kinds of a [Finding].
const (
	FindTotal      = "total"        // the numbers differ
	FindMissing    = "missing"      // this message is nowhere
	FindDoubled    = "doubled"      // this message is there twice
	FindOutOfOrder = "out_of_order" // this message overtook another of its ordering key
	FindUnhandled  = "unhandled"    // an event that its subscription has passed by
	FindNoLetter   = "no_letter"    // given up, and not among the dead letters
	FindNoRecord   = "no_record"    // a dead letter that the inbox does not know
)

// A Finding is something that is not as it should be.
type Finding struct {
	Kind     string        `json:"kind"`
	Stream   schema.Stream `json:"stream"`
	ID       string        `json:"id,omitempty"`
	Handler  string        `json:"handler,omitempty"`
	Sequence uint64        `json:"sequence,omitempty"` // in the stream
	Count    int64         `json:"count"`              // messages; negative if there are more than there should be
	Detail   string        `json:"detail"`

	explains bool   // names what a total may have counted
	guess    bool   // names what a total has counted, or what was accepted before
	scope    string // of a total that is not a whole stream's
}

func (f Finding) key() string {
	return fmt.Sprintf("%s %s %s %s %d %s %t", f.Kind, f.Stream, f.ID, f.Handler, f.Sequence, f.scope, f.Count < 0)
}

// VerifyOptions say how thorough a verification is.
type VerifyOptions struct {
	// Quick leaves out what takes time in proportion to the history: explicit idempotency keys and each event's handling.
	Quick bool
	// Progress, if set, hears of long steps.
	Progress func(step string, done int64)
}

// verifyPauses are the waits between looks: a difference must be there before and after all of them.
var verifyPauses = []time.Duration{500 * time.Millisecond, 2 * time.Second}

// maxFindings of one kind are listed; all are counted.
const maxFindings = 100

// Verify accounts for all messages while they move. Nothing is locked and nothing stands still: each step reads in the
// order in which messages go their way, up to a cut, and what still differs must differ again at later looks.
func (s *Service) Verify(ctx context.Context, o VerifyOptions) (Verification, error) {
	start := time.Now()
	v, err := s.look(ctx, o)
	for n := 0; err == nil && len(v.Findings) > 0 && n < len(verifyPauses); n++ {
		select {
		case <-time.After(verifyPauses[n]):
		case <-ctx.Done():
			return v, fmt.Errorf("verify: %w", ctx.Err())
		}
		before := v.Findings
		if v, err = s.look(ctx, o); err == nil {
			v.Findings = stayed(before, v.Findings)
			v.Looks = n + 2
		}
	}
	if err != nil {
		return v, fmt.Errorf("verify: %w", err)
	}
	v.conclude()
	v.At, v.Seconds = start.UTC(), seconds(time.Since(start))
	return v, nil
}

// stayed returns the findings of now that were there before. A number that has changed counts as far as it stayed.
func stayed(before, now []Finding) []Finding {
	old := make(map[string]int64, len(before))
	for _, f := range before {
		old[f.key()] = f.Count
	}
	var list []Finding
	for _, f := range now {
		n, found := old[f.key()]
		if !found {
			continue
		}
		if f.Count < 0 {
			f.Count = max(f.Count, n)
		} else {
			f.Count = min(f.Count, n)
		}
		list = append(list, f)
	}
	return list
}

// conclude adds up what was found. Messages that are named explain a total; those beyond it count by themselves.
func (v *Verification) conclude() {
	named, totals := map[schema.Stream]int64{}, map[schema.Stream]int64{}
	for _, f := range v.Findings {
		n := max(f.Count, -f.Count)
		switch {
		case f.Kind == FindTotal:
			totals[f.Stream] += n
		case f.guess:
		case f.explains:
			named[f.Stream] += n
		default:
			v.addUnaccounted(f.Stream, n)
		}
		if i := slices.IndexFunc(v.Handlers, func(h HandlerAccount) bool { return h.Name == f.Handler }); i >= 0 && f.Handler != "" {
			v.Handlers[i].Unaccounted += n
		}
	}
	for _, stream := range schema.Streams {
		v.addUnaccounted(stream, max(named[stream], totals[stream]))
	}
	v.OK = len(v.Findings) == 0
	v.Findings, v.Notes = orEmpty(cutFindings(v.Findings)), orEmpty(v.Notes)
	v.Handlers, v.Streams = orEmpty(v.Handlers), orEmpty(v.Streams)
}

func (v *Verification) addUnaccounted(stream schema.Stream, n int64) {
	v.Unaccounted += n
	for i := range v.Streams {
		if v.Streams[i].Stream == stream {
			v.Streams[i].Unaccounted += n
		}
	}
}

// cutFindings keeps the first of each kind.
func cutFindings(all []Finding) []Finding {
	kept, left := map[string]int{}, map[string]int64{}
	var list []Finding
	for _, f := range all {
		if kept[f.Kind]++; kept[f.Kind] > maxFindings {
			left[f.Kind] += max(f.Count, -f.Count)
			continue
		}
		list = append(list, f)
	}
	for _, kind := range []string{FindMissing, FindDoubled, FindOutOfOrder, FindUnhandled, FindNoLetter, FindNoRecord} {
		if n := left[kind]; n > 0 {
			list = append(list, Finding{Kind: kind, Count: n, Detail: fmt.Sprintf("and %d more", n)})
		}
	}
	return list
}

// acceptable reports whether Accept takes note of a finding.
func (f Finding) acceptable() bool {
	return f.Kind == FindTotal && f.scope == "" || f.Kind == FindMissing && f.ID != ""
}

// Stays reports whether something was found that [Service.Accept] leaves as it is.
func (v Verification) Stays() bool {
	return slices.ContainsFunc(v.Findings, func(f Finding) bool { return !f.acceptable() })
}

// Accept notes that the differences of totals that a verification has found, and the messages it has named as missing, are
// known: from now on they are not reported. It returns how many messages that were.
func (s *Service) Accept(ctx context.Context, v Verification) (int64, error) {
	totals, named := map[schema.Stream]int64{}, map[schema.Stream]int64{}
	for _, f := range v.Findings {
		var err error
		switch {
		case !f.acceptable():
		case f.Kind == FindTotal:
			totals[f.Stream] += max(f.Count, -f.Count)
			err = s.store.Accept(ctx, f.Stream, f.Count)
		default:
			named[f.Stream]++
			err = s.store.Settled(ctx, schema.Run{MessageID: f.ID, Key: schema.InboxKey{Handler: "accepted"}})
		}
		if err != nil {
			return 0, fmt.Errorf("accept difference: %w", err)
		}
	}
	var sum int64
	for _, stream := range schema.Streams {
		sum += max(totals[stream], named[stream])
	}
	return sum, nil
}
