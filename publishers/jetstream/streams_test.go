package jetstream

import (
	"errors"
	"strings"
	"testing"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/schema"
)

func TestEnsureStreams_creates_what_is_needed_and_changes_nothing_later(t *testing.T) {
	t.Parallel()
	b := openBroker(t)
	for name, check := range map[string]func(c natsjs.StreamConfig) bool{
		"MB_JOBS": func(c natsjs.StreamConfig) bool {
			return c.Retention == natsjs.WorkQueuePolicy && !c.AllowMsgTTL && c.AllowAtomicPublish
		},
		"MB_EVENTS": func(c natsjs.StreamConfig) bool {
			return c.Retention == natsjs.LimitsPolicy && c.AllowMsgTTL && c.AllowAtomicPublish
		},
		"MB_DEAD": func(c natsjs.StreamConfig) bool { return c.Retention == natsjs.LimitsPolicy && c.AllowMsgTTL },
	} {
		s, err := b.js.Stream(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		c := s.CachedInfo().Config
		if !check(c) || c.MaxAge != 0 || c.Discard != natsjs.DiscardNew || !c.AllowRollup || c.Storage != natsjs.FileStorage {
			t.Errorf("%s was created as %+v", name, c)
		}
	}
	s, err := b.js.Stream(t.Context(), "MB_JOBS")
	if err != nil {
		t.Fatal(err)
	}
	own := s.CachedInfo().Config
	own.MaxBytes, own.Description, own.Duplicates = 1<<30, "ours", time.Minute
	if _, err := b.js.UpdateStream(t.Context(), own); err != nil {
		t.Fatal(err)
	}
	if err := EnsureStreams(t.Context(), b.js, StreamsConfig{MaxBytes: 5}); err != nil {
		t.Fatalf("second time: %v", err)
	}
	if s, err = b.js.Stream(t.Context(), "MB_JOBS"); err != nil {
		t.Fatal(err)
	}
	if c := s.CachedInfo().Config; c.MaxBytes != 1<<30 || c.Description != "ours" || c.Duplicates != time.Minute {
		t.Errorf("the operator's settings were reset: %+v", c)
	}
}

func TestEnsureStreams_many_processes_at_once(t *testing.T) {
	t.Parallel()
	srv := testkit.NATS(t)
	errs := make(chan error)
	for range 8 {
		js := srv.JetStream(t)
		go func() { errs <- EnsureStreams(t.Context(), js, StreamsConfig{}) }()
	}
	for range 8 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

func TestEnsureStreams_refuses_what_loses_messages(t *testing.T) {
	t.Parallel()
	base := wantedStreams(StreamsConfig{})
	for name, c := range map[string]struct {
		stream int
		change func(c *natsjs.StreamConfig)
		want   string
	}{
		"max age":        {1, func(c *natsjs.StreamConfig) { c.MaxAge = time.Hour }, "max_age is 1h0m0s"},
		"discard old":    {0, func(c *natsjs.StreamConfig) { c.Discard = natsjs.DiscardOld }, "discard is DiscardOld"},
		"retention":      {0, func(c *natsjs.StreamConfig) { c.Retention = natsjs.LimitsPolicy }, "retention is Limits, want WorkQueue"},
		"interest":       {1, func(c *natsjs.StreamConfig) { c.Retention = natsjs.InterestPolicy }, "retention is Interest, want Limits"},
		"memory":         {1, func(c *natsjs.StreamConfig) { c.Storage = natsjs.MemoryStorage }, "storage is Memory"},
		"no ack":         {0, func(c *natsjs.StreamConfig) { c.NoAck, c.AllowAtomicPublish = true, false }, "no_ack is set"},
		"per subject":    {1, func(c *natsjs.StreamConfig) { c.MaxMsgsPerSubject = 1 }, "max_msgs_per_subject is 1"},
		"new of subject": {1, func(c *natsjs.StreamConfig) { c.MaxMsgsPerSubject, c.DiscardNewPerSubject = 1, true }, "max_msgs_per_subject is 1"},
		"subjects":       {0, func(c *natsjs.StreamConfig) { c.Subjects = []string{"mb.jobs.>", "mb.cursor.jobs.>"} }, "subject mb.replay.> is missing"},
		"deny purge":     {2, func(c *natsjs.StreamConfig) { c.DenyPurge, c.AllowRollup = true, false }, "deny_purge is set"},
		"jobs with ttl":  {0, func(c *natsjs.StreamConfig) { c.AllowMsgTTL = true }, "allow_msg_ttl is set"},
		"sources":        {1, func(c *natsjs.StreamConfig) { c.Sources = []*natsjs.StreamSource{{Name: "OTHER"}} }, "it has sources"},
		"delete markers": {1, func(c *natsjs.StreamConfig) { c.SubjectDeleteMarkerTTL = time.Minute }, "subject_delete_marker_ttl is 1m0s"},
		"small letters":  {2, func(c *natsjs.StreamConfig) { c.MaxMsgSize = 100_000 }, "max_msg_size is 100000, want none: a dead letter"},
		"async":          {0, func(c *natsjs.StreamConfig) { c.PersistMode, c.AllowAtomicPublish = natsjs.AsyncPersistMode, false }, "persist_mode is async"},
		"transform": {1, func(c *natsjs.StreamConfig) {
			c.SubjectTransform = &natsjs.SubjectTransformConfig{Source: "mb.events.a", Destination: "mb.events.b"}
		}, "subject transform"},
		"idle consumers": {0, func(c *natsjs.StreamConfig) { c.ConsumerLimits.InactiveThreshold = time.Minute }, "inactive_threshold is 1m0s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			js := testkit.NATS(t).JetStream(t)
			cfg := base[c.stream]
			c.change(&cfg)
			if _, err := js.CreateStream(t.Context(), cfg); err != nil {
				t.Fatal(err)
			}
			err := EnsureStreams(t.Context(), js, StreamsConfig{})
			var refused *StreamError
			if !errors.Is(err, ErrStreams) || !errors.As(err, &refused) || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got %v, want a StreamError that says %q", err, c.want)
			}
			s, err := js.Stream(t.Context(), cfg.Name)
			if err != nil {
				t.Fatal(err)
			}
			if got := s.CachedInfo().Config; got.MaxAge != cfg.MaxAge || got.Discard != cfg.Discard || got.Retention != cfg.Retention {
				t.Errorf("the stream was changed to %+v", got)
			}
		})
	}
}

func TestEnsureStreams_switches_on_what_is_missing(t *testing.T) {
	t.Parallel()
	js := testkit.NATS(t).JetStream(t)
	cfg := wantedStreams(StreamsConfig{})[1]
	cfg.AllowAtomicPublish, cfg.AllowRollup, cfg.AllowMsgTTL, cfg.MaxMsgs = false, false, false, 12345
	if _, err := js.CreateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	if err := EnsureStreams(t.Context(), js, StreamsConfig{}); err != nil {
		t.Fatal(err)
	}
	s, err := js.Stream(t.Context(), cfg.Name)
	if err != nil {
		t.Fatal(err)
	}
	if c := s.CachedInfo().Config; !c.AllowAtomicPublish || !c.AllowRollup || !c.AllowMsgTTL || c.MaxMsgs != 12345 {
		t.Errorf("the stream became %+v", c)
	}
}

func TestEnsureStreams_wants_the_replicas_that_were_asked_for(t *testing.T) {
	t.Parallel()
	js := testkit.NATS(t).JetStream(t)
	if err := EnsureStreams(t.Context(), js, StreamsConfig{}); err != nil {
		t.Fatal(err)
	}
	err := EnsureStreams(t.Context(), js, StreamsConfig{Replicas: 3})
	if !errors.Is(err, ErrStreams) || !strings.Contains(err.Error(), "replicas is 1, want 3") {
		t.Errorf("got %v", err)
	}
}

// A consumer on everything would eat cursors, and with them the fence.
func TestEnsureStreams_guard_keeps_catch_all_consumers_away(t *testing.T) {
	t.Parallel()
	b := openBroker(t)
	for _, filter := range []string{"mb.>", "mb.cursor.jobs.>", ""} {
		_, err := b.js.CreateConsumer(t.Context(), "MB_JOBS", natsjs.ConsumerConfig{Durable: "all", FilterSubject: filter, AckPolicy: natsjs.AckExplicitPolicy})
		if err == nil {
			t.Errorf("a consumer on %q was accepted", filter)
		}
	}
	if _, err := b.js.CreateConsumer(t.Context(), "MB_JOBS", natsjs.ConsumerConfig{
		Durable: "shop", FilterSubject: "mb.jobs.shop.>", AckPolicy: natsjs.AckExplicitPolicy,
	}); err != nil {
		t.Errorf("a consumer on one target: %v", err)
	}
}

func TestEnsureStreams_refuses_when_a_consumer_covers_the_cursors(t *testing.T) {
	t.Parallel()
	js := testkit.NATS(t).JetStream(t)
	if _, err := js.CreateStream(t.Context(), wantedStreams(StreamsConfig{})[0]); err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateConsumer(t.Context(), "MB_JOBS", natsjs.ConsumerConfig{Durable: "all", AckPolicy: natsjs.AckExplicitPolicy}); err != nil {
		t.Fatal(err)
	}
	err := EnsureStreams(t.Context(), js, StreamsConfig{})
	if err == nil || !strings.Contains(err.Error(), GuardName) || !strings.Contains(err.Error(), "mb.cursor.>") {
		t.Errorf("got %v, want one that names the guard and the subject", err)
	}
}

func TestVersions(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]bool{
		"2.12.0": true, "2.12.0-RC.1": true, "2.15.3": true, "3.0.0": true, "v2.12.1": true, "2.11.9": false, "1.99.0": false, "dev": true,
	} {
		if got := atLeast(version, minServer); got != want {
			t.Errorf("atLeast(%q) = %v, want %v", version, got, want)
		}
	}
}

func TestCovers(t *testing.T) {
	t.Parallel()
	for have, want := range map[string]bool{
		"mb.jobs.>": true, "mb.>": true, ">": true, "mb.*.>": true, "*.jobs.>": true, "mb.jobs.*": false, "mb.jobs": false, "mb.jobs.a.>": false, "mb.events.>": false,
	} {
		if got := Covers([]string{have}, "mb.jobs.>"); got != want {
			t.Errorf("Covers(%q) = %v, want %v", have, got, want)
		}
	}
	if !strings.HasPrefix(NudgeSubject(schema.Subjects{Prefix: "x"}), "x.") {
		t.Error("the nudge subject has no prefix")
	}
}
