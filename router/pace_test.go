package router_test

import (
	"context"
	"testing"
	"time"

	"github.com/millbridge/millbridge/schema"
)

// Two bridges on one database keep the rate together.
func TestRate_holds_over_all_processes(t *testing.T) {
	t.Parallel()
	b := onPostgres(t)
	const jobs, rate = 50, 20
	var seen [2]calls
	policy := quick(3)
	policy.Rate = rate
	first, second := b.open(), b.open(noForward)
	b.target(first, "billing", policy, func(_ context.Context, env schema.Envelope) error { seen[0].add(env); return nil })
	b.target(second, "billing", policy, func(_ context.Context, env schema.Envelope) error { seen[1].add(env); return nil })
	var batch []schema.Envelope
	for range jobs {
		batch = append(batch, schema.NewJob("billing", "charge", nil))
	}
	b.publish(first, batch...)
	b.run(first)
	b.run(second)
	b.eventually(func() error { return seen[0].reaches(jobs - seen[1].count())() })
	times := append(seen[0].times(), seen[1].times()...)
	from, to := times[0], times[0]
	for _, at := range times {
		if at.Before(from) {
			from = at
		}
		if at.After(to) {
			to = at
		}
	}
	if took := to.Sub(from); took < (jobs-1)*time.Second/rate*8/10 {
		t.Errorf("%d starts in %v are more than %d a second", jobs, took, rate)
	}
	if seen[0].count() == 0 || seen[1].count() == 0 {
		t.Errorf("one process has had all: %d and %d", seen[0].count(), seen[1].count())
	}
}

// A stop does not wait for the turn of what has not begun.
func TestRate_holds_up_no_stop(t *testing.T) {
	t.Parallel()
	b := onSQLite(t)
	bridge := b.open()
	policy := quick(3)
	policy.Rate = 0.01
	var seen calls
	b.target(bridge, "billing", policy, func(_ context.Context, env schema.Envelope) error { seen.add(env); return nil })
	for range 4 {
		b.publish(bridge, schema.NewJob("billing", "charge", nil))
	}
	stop := b.run(bridge)
	b.eventually(seen.reaches(1))
	start := time.Now()
	if err := stop(); err != nil || time.Since(start) > 9*time.Second {
		t.Errorf("the stop took %v, error %v", time.Since(start), err)
	}
	if n := b.waiting(schema.Jobs, "jobs.>"); n != 3 || seen.count() != 1 {
		t.Errorf("%d messages wait, %d calls", n, seen.count())
	}
}
