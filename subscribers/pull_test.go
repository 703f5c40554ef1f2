package subscribers

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

type sink struct{ got int }

func (*sink) want(int) (n, bytes int, wait time.Duration) { return 0, 0, 0 }
func (*sink) more() <-chan struct{}                       { return nil }
func (s *sink) receive(*nats.Msg)                         { s.got++ }

// What is still to come is right in sum, whichever request the server serves.
func TestPuller_counts(t *testing.T) {
	t.Parallel()
	p, r := &puller{inbox: "in"}, &sink{}
	ask := func(reply string, n int, until time.Time) {
		p.open = append(p.open, request{reply: reply, left: n, until: until})
		p.asked += n
	}
	arrive := func(m *nats.Msg, asked int) {
		t.Helper()
		if err := p.arrived(m, r); err != nil || p.asked != asked {
			t.Fatalf("%d are to come, want %d; error %v", p.asked, asked, err)
		}
	}
	over := func(reply, left string) *nats.Msg {
		return &nats.Msg{Subject: reply, Header: nats.Header{"Status": {"408"}, "Description": {"Request Timeout"}, "Nats-Pending-Messages": {left}}}
	}
	later := time.Now().Add(time.Hour)
	ask("in.1", 3, later)
	ask("in.2", 4, later)
	for asked := range 4 {
		arrive(&nats.Msg{Subject: "x", Reply: "$JS.ACK"}, 6-asked)
	}
	arrive(&nats.Msg{Subject: "in.2", Header: nats.Header{"Status": {"100"}}}, 3)
	arrive(over("in.1", "1"), 2) // the server has taken two of the four for the second one
	arrive(over("in.2", "2"), 0)
	if r.got != 4 || len(p.open) != 0 {
		t.Errorf("%d messages have come, %d requests are open", r.got, len(p.open))
	}

	ask("in.3", 5, time.Now().Add(-time.Second))
	ask("in.4", 5, later)
	p.forget(time.Now())
	if p.asked != 5 || len(p.open) != 1 {
		t.Errorf("%d are to come of %d requests, want 5 of one: the server should have ended the other", p.asked, len(p.open))
	}
	if err := p.arrived(&nats.Msg{Subject: "in.4", Header: nats.Header{"Status": {"409"}, "Description": {"Consumer Deleted"}}}, r); err == nil {
		t.Error("a consumer that was deleted is no error")
	}
}
