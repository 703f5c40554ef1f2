package schema_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/millbridge/millbridge/schema"
)

type chargeArgs struct {
	Cents int `json:"cents"`
}

func TestJobType_makes_jobs_and_says_how_to_treat_them(t *testing.T) {
	t.Parallel()
	charge := schema.JobType[chargeArgs]{Target: "billing", Action: "charge", Timeout: time.Minute, Needs: schema.OnPostgres}
	e := charge.New(chargeArgs{Cents: 5}, schema.WithKey("k"))
	if e.Kind != schema.KindJob || e.Subject() != "jobs.billing.charge" || e.Key != "k" || string(e.Payload) != `{"cents":5}` || e.ContentType != "application/json" {
		t.Errorf("job %+v", e)
	}
	if e := (schema.JobType[[]byte]{Target: "a", Action: "b"}).New([]byte("raw")); string(e.Payload) != "raw" || e.ContentType != "" {
		t.Errorf("job of bytes %+v", e)
	}
	spec := charge.Spec()
	if spec != (schema.JobSpec{Target: "billing", Action: "charge", Timeout: time.Minute, Needs: schema.OnPostgres}) || spec.Validate() != nil {
		t.Errorf("spec %+v: %v", spec, spec.Validate())
	}
	err := schema.JobSpec{Target: "B", Action: ".", Retry: schema.RetryPolicy{MaxAttempts: -1}, Timeout: -1, Needs: 99}.Validate()
	for _, want := range []string{"target", "action", "retry", "timeout", "needs"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v leaves out %s", err, want)
		}
	}
	if schema.KindOf(err) != schema.Permanent {
		t.Errorf("kind %v", schema.KindOf(err))
	}
}

func TestEventType_makes_events(t *testing.T) {
	t.Parallel()
	placed := schema.EventType[chargeArgs]{Name: "order.placed"}
	if e := placed.New(chargeArgs{}); e.Subject() != "events.internal.order.placed" {
		t.Errorf("event on %s", e.Subject())
	}
	placed.Visibility = schema.Public
	if e := placed.New(chargeArgs{}, schema.WithKey("k")); e.Subject() != "events.public.order.placed" || e.Key != "k" {
		t.Errorf("event on %s with key %q", e.Subject(), e.Key)
	}
}

func TestDurability_grows_and_has_names(t *testing.T) {
	t.Parallel()
	levels := []schema.Durability{schema.AnyDurability, schema.InMemory, schema.OnSQLite, schema.OnPostgresAsync, schema.OnPostgres, schema.OnPostgresR3}
	text, err := json.Marshal(levels)
	if want := `["any","memory","sqlite","postgres_async","postgres","postgres_r3"]`; err != nil || string(text) != want {
		t.Errorf("%s, %v; want %s", text, err, want)
	}
	var back []schema.Durability
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	for i, level := range levels {
		if back[i] != level || i > 0 && level <= levels[i-1] {
			t.Errorf("%v came back as %v", level, back[i])
		}
	}
	if err := json.Unmarshal([]byte(`["disk"]`), &back); err == nil || !strings.Contains(err.Error(), "postgres_r3") {
		t.Errorf("an unknown name: %v, want the known ones named", err)
	}
	if _, err := schema.Durability(99).MarshalText(); err == nil || schema.Durability(99).String() != "Durability(99)" {
		t.Errorf("an unknown level: %v", err)
	}
}
