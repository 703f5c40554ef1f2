package ops

import (
	"strings"
	"testing"
	"time"

	"github.com/millbridge/millbridge/publishers/jetstream"
	"github.com/millbridge/millbridge/schema"
)

// good is a status without anything wrong.
func good() Status {
	return Status{
		Database: Database{Reachable: true, Outbox: "a", Bound: true},
		NATS:     NATS{Reachable: true},
		Shards:   []Shard{{Stream: schema.Jobs, LeaseSeconds: 5}, {Stream: schema.Events, LeaseSeconds: 5}},
		Streams:  []Stream{{Name: "MB_JOBS", Role: "jobs", Replicas: 3}, {Name: "MB_EVENTS", Role: "events", Replicas: 3}, {Name: "MB_DEAD", Role: "dead", Replicas: 3}},
	}
}

func TestJudge(t *testing.T) {
	t.Parallel()
	now := time.Now()
	consumer := func(waiting uint64, inFlight int, pulling bool, idle time.Duration) func(*Status) {
		return func(st *Status) {
			st.Consumers = []Consumer{{
				Name: "crm", role: schema.Jobs, Handlers: []string{"crm"}, filters: []string{"x"},
				Waiting: waiting, InFlight: inFlight, Pulling: pulling, LastActive: now.Add(-idle),
			}}
		}
	}
	for name, c := range map[string]struct {
		change func(*Status)
		reason string // empty: ok
		note   string
	}{
		"nothing":        {func(*Status) {}, "", ""},
		"unknown part":   {func(st *Status) { st.Reasons = []string{"backlogs unknown: no answer"} }, "backlogs unknown", ""},
		"copy":           {func(st *Status) { st.Database.Bound = false }, "is a copy or was restored elsewhere", ""},
		"unknown outbox": {func(st *Status) { st.Database = Database{} }, "", ""},
		"stop": {func(st *Status) {
			st.Stops = []Stop{{Stream: schema.Jobs, Stop: jetstream.StopClone, Detail: "d", Hint: "h"}}
		}, "shard 0 of jobs is stopped (clone): d. h", ""},
		"overdue":          {func(st *Status) { st.Backlogs = []Backlog{{InOutbox, schema.Events, "e", 3, 61}} }, "rows of e in the outbox: 3, the oldest for 1m1s", ""},
		"not yet":          {func(st *Status) { st.Backlogs = []Backlog{{InOutbox, schema.Events, "e", 3, 59}} }, "", ""},
		"scheduled is old": {func(st *Status) { st.Backlogs = []Backlog{{InScheduled, schema.Events, "e", 3, 9999}} }, "", ""},
		"parked":           {func(st *Status) { st.Backlogs = []Backlog{{InParked, schema.Events, "e", 3, 9999}} }, "", "parked rows of e: 3"},
		"nobody forwards": {func(st *Status) {
			st.Shards[1].LeaseSeconds = -3
			st.Backlogs = []Backlog{{InOutbox, schema.Events, "e", 3, 1}}
		}, "nobody forwards shard 0 of events", ""},
		"nothing to do":     {func(st *Status) { st.Shards[1].LeaseSeconds = -3 }, "", ""},
		"missing stream":    {func(st *Status) { st.Streams[0].Missing = true }, "stream MB_JOBS is missing: messages of mb.jobs.> have nowhere to go, rows waiting in the outbox: 0; `millbridge run` makes it", ""},
		"no letters yet":    {func(st *Status) { st.Streams[2].Missing = true }, "stream MB_DEAD is missing: messages that are given up stay where they are; `millbridge run` makes it", ""},
		"letters are lost":  {func(st *Status) { st.Streams[2].Missing, st.Shards[0].Sent = true, 1 }, "stay where they are; `millbridge repair --stream-recreated` makes it anew", ""},
		"two copies":        {func(st *Status) { st.Streams[1].Replicas = 2 }, "", "stream MB_EVENTS has 2 of 3 copies"},
		"idle with nothing": {consumer(0, 0, false, time.Hour), "", ""},
		"just started":      {consumer(5, 0, false, 9*time.Second), "", ""},
		"not consuming":     {consumer(5, 0, false, 11*time.Second), "not consuming: nobody has asked for messages of crm", ""},
		"pulling":           {consumer(5, 0, true, time.Hour), "", ""},
		"all busy":          {consumer(5, 2, false, 40*time.Second), "", ""},
		"died while busy":   {consumer(5, 2, false, 46*time.Second), "waiting: 7", ""},
		"letters":           {func(st *Status) { st.Dead = Dead{Letters: 4, AtLeast: true} }, "", "dead letters: at least 4"},
		"no consumer":       {func(st *Status) { st.Streams[0].waits = map[string]int64{"mb.jobs.erp.>": 2} }, "target erp has no consumer, messages waiting (stream): 2", ""},
		"only a subscription has that name": {func(st *Status) {
			st.Consumers = []Consumer{{Name: "audit", role: schema.Jobs, Handlers: []string{"audit"}, filters: []string{"mb.replay.audit.>"}, Pulling: true}}
			st.Backlogs = []Backlog{{InScheduled, schema.Jobs, "audit", 1, 0}}
			st.Streams[0].waits = map[string]int64{"mb.jobs.audit.>": 2, "mb.replay.audit.>": 3}
		}, "target audit has no consumer, messages waiting (scheduled): 1; start a process that knows the target\ntarget audit has no consumer, messages waiting (stream): 2", ""},
		"a catch-all takes everything": {func(st *Status) {
			st.Consumers = []Consumer{{Name: "all", role: schema.Jobs, filters: []string{"mb.jobs.>"}, Pulling: true}}
			st.Backlogs = []Backlog{{InOutbox, schema.Jobs, "audit", 1, 0}}
			st.Streams[0].waits = map[string]int64{"mb.jobs.audit.>": 2}
		}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st := good()
			c.change(&st)
			New(nil, nil, Config{Leases: true}).judge(&st, now)
			reasons, notes := strings.Join(st.Reasons, "\n"), strings.Join(st.Notes, "\n")
			if st.OK != (c.reason == "") || !strings.Contains(reasons, c.reason) {
				t.Errorf("ok is %v, reasons %q, want %q", st.OK, reasons, c.reason)
			}
			if !strings.Contains(notes, c.note) || c.note == "" && notes != "" {
				t.Errorf("notes %q, want %q", notes, c.note)
			}
		})
	}
}

// Rows are counted for a stream, so they are named once, and not for shards that are stopped.
func TestJudge_names_the_rows_that_nobody_forwards_once(t *testing.T) {
	t.Parallel()
	st := good()
	st.Shards = nil
	for _, stream := range schema.Streams {
		for n := range 4 {
			st.Shards = append(st.Shards, Shard{Stream: stream, Shard: n})
		}
	}
	st.Shards[2].LeaseSeconds = 5
	st.Stops = []Stop{{Stream: schema.Jobs, Shard: 1, Stop: jetstream.StopClone}}
	for n := range 4 {
		st.Stops = append(st.Stops, Stop{Stream: schema.Events, Shard: n, Stop: jetstream.StopClone})
	}
	st.Backlogs = []Backlog{{InOutbox, schema.Jobs, "crm", 3, 1}, {InOutbox, schema.Events, "e", 4, 1}}
	st.Consumers = []Consumer{{Name: "crm", role: schema.Jobs, Handlers: []string{"crm"}, filters: []string{"mb.jobs.crm.>"}}}
	New(nil, nil, Config{Leases: true}).judge(&st, time.Now())
	var said []string
	for _, r := range st.Reasons {
		if strings.Contains(r, "nobody forwards") {
			said = append(said, r)
		}
	}
	if want := "nobody forwards shard 0, 3 of jobs, rows of jobs waiting: 3; start `millbridge run`"; strings.Join(said, "\n") != want {
		t.Errorf("got %q, want %q", said, want)
	}
}

func TestMatches(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		filter, name string
		want         bool
	}{
		{"order.placed", "order.placed", true},
		{"order.placed", "order", false},
		{"order", "order.placed", false},
		{"order.>", "order.placed.now", true},
		{"order.>", "order", false},
		{">", "order", true},
		{"*.placed", "order.placed", true},
		{"*.placed", "order.paid", false},
		{"*", "order.placed", false},
	} {
		if got := matches(c.filter, c.name); got != c.want {
			t.Errorf("matches(%q, %q) = %v", c.filter, c.name, got)
		}
	}
}

func TestPoison_refuses_a_page_that_never_was(t *testing.T) {
	t.Parallel()
	for _, after := range []string{"x", "handler", "handler:", "handler:x", "forwarder:-1", "other:1"} {
		if _, _, err := New(nil, nil, Config{}).Poison(t.Context(), PoisonQuery{After: after}); err == nil {
			t.Errorf("%q was accepted", after)
		}
	}
}
