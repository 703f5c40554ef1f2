package natsrelay_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/handlers/configgroup"
	"github.com/millbridge/millbridge/handlers/handlertest"
	"github.com/millbridge/millbridge/handlers/natslink"
	"github.com/millbridge/millbridge/handlers/natsrelay"
	"github.com/millbridge/millbridge/internal/testkit"
	bridgejs "github.com/millbridge/millbridge/publishers/jetstream"
	"github.com/millbridge/millbridge/schema"
)

// relay returns a relay to a server that is closed when the test ends.
func relay(t *testing.T, s *testkit.Server, edit func(*natsrelay.Config)) handlers.Handler {
	t.Helper()
	cfg := natsrelay.Config{Settings: natslink.Settings{URLs: []string{s.URL()}}, Origin: "here"}
	edit(&cfg)
	h, err := natsrelay.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.(interface{ Close() error }).Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

func toSubject(subject string) func(*natsrelay.Config) {
	return func(c *natsrelay.Config) { c.Subject = subject }
}

func toMillbridge(c *natsrelay.Config) { c.Prefix = "other" }

// streams makes the streams of a Millbridge.
func streams(t *testing.T, js jetstream.JetStream, prefix string) {
	t.Helper()
	err := bridgejs.EnsureStreams(t.Context(), js, bridgejs.StreamsConfig{Subjects: schema.Subjects{Prefix: prefix}, Replicas: 1})
	if err != nil {
		t.Fatal(err)
	}
}

func stream(t *testing.T, js jetstream.JetStream, cfg jetstream.StreamConfig) {
	t.Helper()
	if _, err := js.CreateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
}

// all returns what is in a stream, in order.
func all(ctx context.Context, t *testing.T, js jetstream.JetStream, name string) (msgs []*jetstream.RawStreamMsg) {
	t.Helper()
	s, err := js.Stream(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	info, err := s.Info(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for seq := max(info.State.FirstSeq, 1); seq <= info.State.LastSeq; seq++ {
		msg, err := s.GetMsg(ctx, seq)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		msgs = append(msgs, msg)
	}
	return msgs
}

// full has a value in each field that travels.
func full(env schema.Envelope) schema.Envelope {
	env.Key, env.OrderingKey, env.Tenant, env.Actor, env.RequestID = "k/ü 7", "o", "t", "a", "r"
	env.TraceParent, env.TraceState = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "x=y"
	env.Metadata = map[string]string{"Colour": "rot\n", "plain": "100%"}
	env.Time, env.Source = time.Date(2026, 11, 30, 12, 0, 0, 5000, time.UTC), "/millbridge/first"
	return env
}

func TestRelay_gives_another_Millbridge_the_message_as_it_is(t *testing.T) {
	t.Parallel()
	s := testkit.NATS(t)
	js := s.JetStream(t)
	streams(t, js, "other")
	job := full(schema.NewJob("to-other", "book.room", map[string]int{"n": 1}, schema.WithReplyTo("shop", "booked", "7")))
	event := full(schema.NewEvent("order.placed", []byte{0, 255}, schema.WithPublic()))
	event.Via = []string{"before"}
	replay := full(schema.NewEvent("order.placed", nil))
	replay.ID, replay.Replay = "new", &schema.Replay{Handler: "to-other", Of: "old", Number: 3}
	for _, c := range []struct {
		env     schema.Envelope
		edit    func(*natsrelay.Config)
		stream  string
		subject string
		ttl     string
		want    func(*schema.Envelope)
	}{
		{job, func(*natsrelay.Config) {}, "OTHER_JOBS", "other.jobs.to-other.book.room", "", func(e *schema.Envelope) { e.ReplyTo = nil }},
		{job, func(c *natsrelay.Config) { c.Target = "crm" }, "OTHER_JOBS", "other.jobs.crm.book.room", "", func(e *schema.Envelope) { e.ReplyTo, e.Target = nil, "crm" }},
		{event, func(*natsrelay.Config) {}, "OTHER_EVENTS", "other.events.public.order.placed", "604800s", func(*schema.Envelope) {}},
		{replay, func(c *natsrelay.Config) { c.EventsTTL = time.Hour }, "OTHER_EVENTS", "other.events.internal.order.placed", "3600s", func(e *schema.Envelope) { e.ID, e.Replay = "old", nil }},
	} {
		h := relay(t, s, func(cfg *natsrelay.Config) {
			toMillbridge(cfg)
			c.edit(cfg)
		})
		ctx := handlers.WithCall(t.Context(), handlers.Call{})
		if err := h.Handle(ctx, c.env); err != nil {
			t.Fatal(err)
		}
		var report natsrelay.Stored
		if err := json.Unmarshal(handlers.ReportOf(ctx), &report); err != nil || report.Stream != c.stream || report.Duplicate {
			t.Errorf("reported %+v, %v", report, err)
		}
		src, err := js.Stream(t.Context(), c.stream)
		if err != nil {
			t.Fatal(err)
		}
		msg, err := src.GetMsg(t.Context(), report.Sequence)
		if err != nil {
			t.Fatal(err)
		}
		relative, _ := schema.Subjects{Prefix: "other"}.Relative(msg.Subject)
		got, err := schema.Decode(relative, msg.Header, msg.Data)
		if err != nil {
			t.Fatal(err)
		}
		want := c.env
		want.Via = append(slices.Clone(want.Via), "here")
		c.want(&want)
		if asJSON(t, got) != asJSON(t, want) || msg.Subject != c.subject || msg.Header.Get("Nats-TTL") != c.ttl {
			t.Errorf("on %s with %s:\n%s, want\n%s", msg.Subject, msg.Header.Get("Nats-TTL"), asJSON(t, got), asJSON(t, want))
		}
		previews, err := h.(handlers.Previewer).Preview(t.Context(), c.env)
		if err != nil || len(previews) != 1 {
			t.Fatalf("%v, %v", previews, err)
		}
		sent := make(map[string]string)
		for name := range msg.Header {
			sent[name] = msg.Header.Get(name)
		}
		if p := previews[0]; p.Do != "publish "+c.subject || p.Body != string(msg.Data) || !maps.Equal(p.Header, sent) {
			t.Errorf("preview %+v\nof %v", p, sent)
		}
	}
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestRelay_may_run_again(t *testing.T) {
	t.Parallel()
	s := testkit.NATS(t)
	js := s.JetStream(t)
	n := 0
	handlertest.CheckIdempotent(t, func() handlertest.World {
		n++
		name := fmt.Sprintf("S%d", n)
		stream(t, js, jetstream.StreamConfig{Name: name, Subjects: []string{name}, Storage: jetstream.MemoryStorage})
		return handlertest.World{
			Handler: func() handlers.Handler { return relay(t, s, toSubject(name)) },
			State: func() any {
				var ids []string
				for _, msg := range all(context.WithoutCancel(t.Context()), t, js, name) {
					ids = append(ids, msg.Header.Get(schema.HeaderID))
				}
				slices.Sort(ids)
				return ids
			},
		}
	}, schema.NewJob("x", "a", "1", schema.WithID("one")), schema.NewJob("x", "a", "2", schema.WithID("two"), schema.WithKey("k")))
}

// An id is only unique together with its source.
func TestRelay_takes_no_message_for_another(t *testing.T) {
	t.Parallel()
	s := testkit.NATS(t)
	js := s.JetStream(t)
	stream(t, js, jetstream.StreamConfig{Name: "S", Subjects: []string{"in.>"}})
	one := schema.NewJob("x", "a", "1", schema.WithID("same"))
	one.Source = "/millbridge/one"
	other := one
	other.Source = "/millbridge/other"
	for _, subject := range []string{"in.a", "in.b"} {
		h := relay(t, s, toSubject(subject))
		for _, env := range []schema.Envelope{one, other, one} {
			if err := h.Handle(t.Context(), env); err != nil {
				t.Fatal(err)
			}
		}
	}
	if msgs := all(t.Context(), t, js, "S"); len(msgs) != 4 {
		t.Errorf("%d messages, want those of two sources on two subjects", len(msgs))
	}
}

func TestRelay_says_what_is_wrong_on_the_other_side(t *testing.T) {
	t.Parallel()
	s := testkit.NATS(t, func(o *server.Options) {
		o.Users = []*server.User{
			{Username: "all", Password: "all"},
			{Username: "some", Password: "some", Permissions: &server.Permissions{Publish: &server.SubjectPermission{Deny: []string{"open"}}}},
		}
	})
	as := func(user, subject string) func(*natsrelay.Config) {
		return func(c *natsrelay.Config) {
			c.Subject, c.User, c.Password = subject, user, configgroup.NewSecret(user)
		}
	}
	js := testkit.JetStream(t, s.Conn(t, natsUser("all")))
	stream(t, js, jetstream.StreamConfig{Name: "OPEN", Subjects: []string{"open"}})
	stream(t, js, jetstream.StreamConfig{Name: "FULL", Subjects: []string{"full"}, MaxMsgs: 1, Discard: jetstream.DiscardNew})
	stream(t, js, jetstream.StreamConfig{Name: "SMALL", Subjects: []string{"small"}, MaxMsgSize: 600})
	if _, err := js.Publish(t.Context(), "full", nil); err != nil {
		t.Fatal(err)
	}
	big := schema.NewJob("x", "a", strings.Repeat("x", 1000))
	huge := schema.NewJob("x", "a", strings.Repeat("x", 2<<20))
	looped := big
	looped.Via = []string{"there", "here"}
	for name, c := range map[string]struct {
		edit func(*natsrelay.Config)
		env  schema.Envelope
		kind schema.ErrorKind
		wait time.Duration
		text string
	}{
		"no stream":            {as("all", "nowhere"), big, schema.Temporary, 0, "no stream of the other side takes nowhere"},
		"full":                 {as("all", "full"), big, schema.Temporary, 0, "the stream is full"},
		"too large for stream": {as("all", "small"), big, schema.Permanent, 0, "message size exceeds"},
		"too large for server": {as("all", "open"), huge, schema.Permanent, 0, "maximum payload"},
		"not permitted":        {as("some", "open"), big, schema.Temporary, natslink.SignInWait, "not permitted"},
		"not let in":           {as("who", "open"), big, schema.Temporary, natslink.SignInWait, "authorization"},
		"loop":                 {as("all", "open"), looped, schema.Permanent, 0, "loop"},
	} {
		err := relay(t, s, c.edit).Handle(t.Context(), c.env)
		wait, _ := schema.RetryAfterOf(err)
		if err == nil || schema.KindOf(err) != c.kind || wait != c.wait || !strings.Contains(strings.ToLower(err.Error()), c.text) {
			t.Errorf("%s: %v (%v, again after %v)", name, err, schema.KindOf(err), wait)
		}
	}
	if msgs := all(t.Context(), t, js, "OPEN"); len(msgs) != 0 {
		t.Errorf("%d messages came through", len(msgs))
	}
}

func secret(text string) configgroup.Secret { return configgroup.NewSecret(text) }
