package natsrequest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/handlers/configgroup"
	"github.com/millbridge/millbridge/handlers/handlertest"
	"github.com/millbridge/millbridge/handlers/natslink"
	"github.com/millbridge/millbridge/handlers/natsrequest"
	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/schema"
)

// requester returns a handler that is closed when the test ends.
func requester(t *testing.T, s *testkit.Server, edits ...func(*natsrequest.Config)) handlers.Handler {
	t.Helper()
	cfg := natsrequest.Config{Settings: natslink.Settings{URLs: []string{s.URL()}}, Prefix: "svc"}
	for _, edit := range edits {
		edit(&cfg)
	}
	h, err := natsrequest.New(cfg)
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

// service starts a real micro service with one endpoint for each action.
func service(t *testing.T, nc *nats.Conn, actions map[string]micro.HandlerFunc) {
	t.Helper()
	svc, err := micro.AddService(nc, micro.Config{Name: "svc", Version: "1.0.0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = svc.Stop() }) // the connection may be closed already
	group := svc.AddGroup("svc")
	for action, f := range actions {
		name := strings.ReplaceAll(action, ".", "_")
		if err := group.AddEndpoint(name, f, micro.WithEndpointSubject(action)); err != nil {
			t.Fatal(err)
		}
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
}

func answers(data string) micro.HandlerFunc {
	return func(r micro.Request) { _ = r.Respond([]byte(data)) }
}

func fails(code, text string) micro.HandlerFunc {
	return func(r micro.Request) { _ = r.Error(code, text, nil) }
}

func TestRequest_reports_what_the_service_answers(t *testing.T) {
	t.Parallel()
	s := testkit.NATS(t)
	service(t, s.Conn(t), map[string]micro.HandlerFunc{
		"json": answers(`{"number": 7}`), "text": answers(`say "hi"`), "nothing": answers(""), "most": answers(strings.Repeat("1", 50)),
	})
	h := requester(t, s, func(c *natsrequest.Config) { c.MaxReply = 50 })
	for action, want := range map[string]string{
		"json": `{"number":7}`, "text": `"say \"hi\""`, "nothing": "", "most": strings.Repeat("1", 50),
	} {
		ctx := handlers.WithCall(t.Context(), handlers.Call{})
		if err := h.Handle(ctx, schema.NewJob("x", action, nil)); err != nil || string(handlers.ReportOf(ctx)) != want {
			t.Errorf("%s: reported %s, %v", action, handlers.ReportOf(ctx), err)
		}
	}
}

func TestRequest_is_what_the_preview_says(t *testing.T) {
	t.Parallel()
	s := testkit.NATS(t)
	got := make(chan micro.Request, 2)
	service(t, s.Conn(t), map[string]micro.HandlerFunc{"book.room": func(r micro.Request) {
		got <- r
		_ = r.Respond(nil)
	}})
	h := requester(t, s)
	env := schema.NewJob("x", "book.room", map[string]int{"n": 1}, schema.WithKey("k 7"), schema.WithReplyTo("shop", "done", "7"),
		schema.WithMetadata(map[string]string{"Colour": "rot\n"}))
	env.Source = "/millbridge/one"
	replay := env
	replay.ID, replay.Replay = "new", &schema.Replay{Handler: "x", Of: env.ID, Number: 1}
	var first micro.Headers
	for _, env := range []schema.Envelope{env, replay} {
		if err := h.Handle(t.Context(), env); err != nil {
			t.Fatal(err)
		}
		r := <-got
		previews, err := h.(handlers.Previewer).Preview(t.Context(), env)
		if err != nil || len(previews) != 1 {
			t.Fatalf("%v, %v", previews, err)
		}
		sent := make(map[string]string)
		for name := range r.Headers() {
			sent[name] = r.Headers().Get(name)
		}
		if p := previews[0]; p.Do != "request svc.book.room" || r.Subject() != "svc.book.room" || p.Body != string(r.Data()) || !maps.Equal(p.Header, sent) {
			t.Errorf("preview %+v\nof %v %s", p, sent, r.Data())
		}
		if first == nil {
			first = r.Headers()
		} else if !maps.EqualFunc(first, r.Headers(), func(a, b []string) bool { return a[0] == b[0] }) {
			t.Errorf("the replay is\n%v, not\n%v", r.Headers(), first)
		}
	}
	if first.Get(schema.HeaderKey) != "k%207" || first.Get(schema.HeaderID) != env.ID || first.Get(schema.HeaderReplyTo) != "" {
		t.Errorf("headers %v", first)
	}
}

func TestRequest_errors(t *testing.T) {
	t.Parallel()
	s := testkit.NATS(t, func(o *server.Options) {
		o.Users = []*server.User{
			{Username: "all", Password: "all"},
			{Username: "some", Password: "some", Permissions: &server.Permissions{Publish: &server.SubjectPermission{Deny: []string{"svc.ok"}}}},
		}
	})
	nc := s.Conn(t, nats.UserInfo("all", "all"))
	service(t, nc, map[string]micro.HandlerFunc{
		"ok": answers(""), "large": answers(strings.Repeat("1", 51)),
		"c400": fails("400", "bad\nline"), "c404": fails("404", "gone"), "c408": fails("408", "slow"), "c429": fails("429", "busy"),
		"c499": fails("499", "x"), "c500": fails("500", "down"), "c503": fails("503", "away"), "word": fails("OOPS", "odd"), "c999": fails("999", "odd"),
		"long": fails("400", strings.Repeat("x", 5000)),
	})
	if _, err := nc.Subscribe("svc.textonly", func(m *nats.Msg) {
		reply := nats.NewMsg(m.Reply)
		reply.Header.Set("Nats-Service-Error", "no code")
		_ = m.RespondMsg(reply)
	}); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	as := func(user string) handlers.Handler {
		return requester(t, s, func(c *natsrequest.Config) {
			c.MaxReply, c.User, c.Password = 50, user, configgroup.NewSecret(user)
		})
	}
	for action, c := range map[string]struct {
		user string
		kind schema.ErrorKind
		wait time.Duration
		text string
	}{
		"c400": {"all", schema.Permanent, 0, "error 400: bad"}, "c404": {"all", schema.Permanent, 0, "404: gone"}, "c499": {"all", schema.Permanent, 0, "499"},
		"c408": {"all", schema.Temporary, 0, "408: slow"}, "c429": {"all", schema.Temporary, 0, "429: busy"},
		"c500": {"all", schema.Temporary, 0, "500: down"}, "c503": {"all", schema.Temporary, 0, "503: away"}, "c999": {"all", schema.Temporary, 0, "999"},
		"word": {"all", schema.Temporary, 0, "OOPS: odd"}, "textonly": {"all", schema.Temporary, 0, "without a code: no code"},
		"large":  {"all", schema.Permanent, 0, "the reply has 51 bytes, at most 50"},
		"nobody": {"all", schema.Temporary, 0, "no service answers on svc.nobody"},
		"ok":     {"some", schema.Temporary, natslink.SignInWait, "not permitted"},
		"long":   {"all", schema.Permanent, 0, "xxx..."},
	} {
		err := as(c.user).Handle(t.Context(), schema.NewJob("x", action, nil))
		wait, _ := schema.RetryAfterOf(err)
		if err == nil || schema.KindOf(err) != c.kind || wait != c.wait || !strings.Contains(err.Error(), c.text) || strings.ContainsAny(err.Error(), "\n") || len(err.Error()) > 500 {
			t.Errorf("%s: %v (%v, again after %v)", action, err, schema.KindOf(err), wait)
		}
		var own *natsrequest.Error
		if errors.As(err, &own) != strings.Contains(err.Error(), "the service answered") {
			t.Errorf("%s: %#v", action, err)
		}
	}
	if err := as("all").Handle(t.Context(), schema.NewJob("x", "ok", strings.Repeat("x", 2<<20))); schema.KindOf(err) != schema.Permanent {
		t.Errorf("too large: %v", err)
	}
}

func TestRequest_to_a_service_that_is_silent_ends_with_the_run(t *testing.T) {
	t.Parallel()
	s := testkit.NATS(t)
	service(t, s.Conn(t), map[string]micro.HandlerFunc{"silent": func(micro.Request) {}})
	why := errors.New("time is up")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 100*time.Millisecond, why)
	defer cancel()
	if err := requester(t, s).Handle(ctx, schema.NewJob("x", "silent", nil)); !errors.Is(err, why) {
		t.Errorf("got %v", err)
	}
}

// shop is a service that honours the key.
type shop struct {
	mu     sync.Mutex
	booked map[string]string // key -> answer
}

func (s *shop) book(r micro.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := r.Headers().Get(schema.HeaderKey)
	if s.booked[key] == "" {
		s.booked[key] = fmt.Sprintf(`{"number":%d}`, len(s.booked)+1)
	}
	_ = r.Respond([]byte(s.booked[key]))
}

func (s *shop) keys() any {
	s.mu.Lock()
	defer s.mu.Unlock()
	keys := map[string]bool{}
	for key := range s.booked {
		keys[key] = true
	}
	return keys
}

func TestRequest_may_run_again(t *testing.T) {
	t.Parallel()
	s := testkit.NATS(t)
	nc := s.Conn(t)
	n := 0
	handlertest.CheckIdempotent(t, func() handlertest.World {
		n++
		prefix := fmt.Sprintf("svc%d", n)
		remote := &shop{booked: map[string]string{}}
		svc, err := micro.AddService(nc, micro.Config{Name: prefix, Version: "1.0.0"})
		if err != nil {
			t.Fatal(err)
		}
		if err := svc.AddGroup(prefix).AddEndpoint("book", micro.HandlerFunc(remote.book)); err != nil {
			t.Fatal(err)
		}
		if err := nc.Flush(); err != nil {
			t.Fatal(err)
		}
		return handlertest.World{
			Handler: func() handlers.Handler { return requester(t, s, func(c *natsrequest.Config) { c.Prefix = prefix }) },
			State:   remote.keys,
		}
	}, schema.NewJob("x", "book", nil, schema.WithKey("one")), schema.NewJob("x", "book", nil, schema.WithKey("two")))
}

func TestConfig(t *testing.T) {
	t.Parallel()
	url := natslink.Settings{URLs: []string{"nats://x"}}
	for name, c := range map[string]struct {
		config natsrequest.Config
		want   string
	}{
		"good":        {natsrequest.Config{Settings: url, Prefix: "svc.eu"}, ""},
		"nothing":     {natsrequest.Config{}, "url prefix"},
		"wildcard":    {natsrequest.Config{Settings: url, Prefix: "svc.*"}, "prefix"},
		"JetStream's": {natsrequest.Config{Settings: url, Prefix: "$JS.API"}, "prefix"},
		"ends in dot": {natsrequest.Config{Settings: url, Prefix: "svc."}, "prefix"},
		"negative":    {natsrequest.Config{Settings: url, Prefix: "svc", MaxReply: -1}, "max_reply"},
		"in vain":     {natsrequest.Config{Settings: url, Prefix: "svc", MaxReply: natsrequest.DefaultMaxReply + 1}, "max_reply"},
	} {
		err := c.config.Validate()
		var keys []string
		if err != nil {
			for line := range strings.SplitSeq(err.Error(), "\n") {
				key, _, _ := strings.Cut(line, ": ")
				keys = append(keys, key)
			}
		}
		if got := strings.Join(keys, " "); got != c.want {
			t.Errorf("%s: %v; want %q", name, err, c.want)
		}
		if _, newErr := natsrequest.New(c.config); (newErr != nil) != (err != nil) {
			t.Errorf("%s: New says %v", name, newErr)
		}
	}
	list, err := configgroup.SettingsOf(new(natsrequest.Config))
	if err != nil || list[len(list)-1].Key != "max_reply" || list[len(list)-1].Default != fmt.Sprint(natsrequest.DefaultMaxReply) {
		t.Errorf("%+v, %v", list, err)
	}
}

// Whatever a service answers is one error of one kind, and one short line.
func FuzzError(f *testing.F) {
	for _, code := range []string{"400", "404", "408", "429", "500", "", "x", "-1", "99999999999999999999", " 400"} {
		f.Add(code, "text")
	}
	f.Fuzz(func(t *testing.T, code, text string) {
		err := natsrequest.Refused(text, code)
		if kind := schema.KindOf(err); kind != schema.Permanent && kind != schema.Temporary {
			t.Fatalf("%v is %v", err, kind)
		}
		if strings.ContainsAny(err.Error(), "\n\r\x00") || len(err.Error()) > 2000 {
			t.Fatalf("%q", err)
		}
	})
}

// A reply is reported as JSON, whatever it is.
func FuzzAnswer(f *testing.F) {
	for _, s := range []string{`{"a":1}`, `null`, "text", "\xff", `{"a":1} x`, "\u2028"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		out, err := json.Marshal(natsrequest.Answer(data))
		if err != nil || !json.Valid(out) {
			t.Fatalf("%q becomes %s, %v", data, out, err)
		}
	})
}
