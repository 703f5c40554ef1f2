package peer_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/millbridge/millbridge/handlers/peer"
	"github.com/millbridge/millbridge/handlers/webhook"
	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/schema"
)

// request is a good request of "here", for tests that spoil it.
type request struct {
	method string
	id     string
	at     time.Time
	secret string
	body   []byte
	header map[string]string // set at last
}

func good(env schema.Envelope) request {
	env.Via = []string{"here"}
	return request{method: http.MethodPost, id: env.ID, at: time.Now(), secret: secretA, body: peer.Encode(env)}
}

// send answers with status and reason.
func (r request) send(t *testing.T, address string) (status int, reason string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), r.method, address, bytes.NewReader(r.body))
	if err != nil {
		t.Fatal(err)
	}
	signature, err := webhook.Sign(r.secret, r.id, r.at, r.body)
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{
		"Content-Type": peer.ContentType, peer.HeaderFrom: "here", webhook.HeaderID: r.id,
		webhook.HeaderTimestamp: strconv.FormatInt(r.at.Unix(), 10), webhook.HeaderSignature: signature,
	} {
		req.Header.Set(name, value)
	}
	for name, value := range r.header {
		req.Header.Set(name, value)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, strings.TrimSpace(string(text))
}

func TestReceiver_takes_only_what_is_right(t *testing.T) {
	t.Parallel()
	var kept keep
	server := serve(t, receiver(t, kept.store, func(c *peer.ReceiverConfig) {
		c.MaxBytes = 4000
		c.Senders["here"] = peer.Sender{Secrets: secrets(secretB, secretA), Allow: []string{"jobs.crm.book.*", "events.public.>"}}
	}))
	job := schema.NewJob("crm", "book.room", "x")
	with := func(edit func(*request)) request {
		r := good(job)
		edit(&r)
		return r
	}
	of := func(edit func(*schema.Envelope)) request {
		env := job
		env.Via = []string{"here"}
		edit(&env)
		r := good(env)
		r.id, r.body = env.ID, peer.Encode(env)
		return r
	}
	for name, c := range map[string]struct {
		request request
		status  int
		reason  string
	}{
		"another method":     {with(func(r *request) { r.method = http.MethodPut }), 405, "POST"},
		"another type":       {with(func(r *request) { r.header = map[string]string{"Content-Type": "application/json"} }), 415, peer.ContentType},
		"unknown sender":     {with(func(r *request) { r.header = map[string]string{peer.HeaderFrom: "who"} }), 401, "unknown sender"},
		"another secret":     {with(func(r *request) { r.secret = "whsec_" + strings.Repeat("A", 32) }), 401, "no signature"},
		"too old":            {with(func(r *request) { r.at = r.at.Add(-6 * time.Minute) }), 401, "clocks"},
		"from the future":    {with(func(r *request) { r.at = r.at.Add(6 * time.Minute) }), 401, "clocks"},
		"id exchanged":       {with(func(r *request) { r.header = map[string]string{webhook.HeaderID: "other"} }), 401, "no signature"},
		"other id signed":    {with(func(r *request) { r.id = "other" }), 422, "another id"},
		"too large":          {with(func(r *request) { r.body = append(r.body, make([]byte, 4000)...) }), 413, "at most 4000 bytes"},
		"no message":         {with(func(r *request) { r.body = []byte("hello") }), 422, "no message"},
		"empty":              {with(func(r *request) { r.body = nil }), 422, "no message"},
		"by nobody":          {of(func(e *schema.Envelope) { e.Via = nil }), 422, "is not the bridge that sends"},
		"by another":         {of(func(e *schema.Envelope) { e.Via = []string{"here", "who"} }), 422, "is not the bridge that sends"},
		"came by":            {of(func(e *schema.Envelope) { e.Via = []string{"there", "here"} }), 422, "loop"},
		"another target":     {of(func(e *schema.Envelope) { e.Target = "mailer" }), 403, "jobs.mailer.book.room is not allowed"},
		"shorter action":     {of(func(e *schema.Envelope) { e.Name = "book" }), 403, "not allowed"},
		"longer action":      {of(func(e *schema.Envelope) { e.Name = "book.room.now" }), 403, "not allowed"},
		"an internal event":  {good(schema.NewEvent("order.placed", nil)), 403, "not allowed"},
		"one that tells all": {of(func(e *schema.Envelope) { e.Kind, e.Visibility, e.Target = schema.KindEvent, "x.public", "" }), 403, "not allowed"},
	} {
		if status, reason := c.request.send(t, server.URL); status != c.status || !strings.Contains(reason, c.reason) {
			t.Errorf("%s: %d %s", name, status, reason)
		}
	}
	if len(kept.got) != 0 {
		t.Errorf("stored %v", kept.got)
	}
	for name, r := range map[string]request{"a job": good(job), "an event": good(schema.NewEvent("order.placed", nil, schema.WithPublic()))} {
		if status, reason := r.send(t, server.URL); status != 200 || reason != fmt.Sprintf(`{"id":%q}`, r.id) {
			t.Errorf("%s: %d %s", name, status, reason)
		}
	}
	if len(kept.got) != 2 {
		t.Errorf("stored %v", kept.got)
	}
}

func TestReceiver_takes_a_recorded_request_once(t *testing.T) {
	t.Parallel()
	db := testkit.SQLiteStore(t)
	server := serve(t, receiver(t, peer.StoreIn(db, nil)))
	r := good(schema.NewJob("crm", "book", nil))
	for range 3 {
		if status, reason := r.send(t, server.URL); status != 200 {
			t.Errorf("%d %s", status, reason)
		}
	}
	if got := ids(published(t, db)); len(got) != 1 {
		t.Errorf("published %q", got)
	}
}

func TestReceiver_refuses_what_the_outbox_does(t *testing.T) {
	t.Parallel()
	db := testkit.SQLiteStore(t)
	server := serve(t, receiver(t, peer.StoreIn(db, nil)))
	env := schema.NewJob("crm", "book", nil)
	env.Metadata = map[string]string{strings.Repeat("k", 200): "v"}
	if status, reason := good(env).send(t, server.URL); status != 422 || !strings.Contains(reason, "too long") {
		t.Errorf("%d %s", status, reason)
	}
	if got := ids(published(t, db)); len(got) != 0 {
		t.Errorf("published %q", got)
	}
	env.Metadata = nil
	if status, reason := good(env).send(t, server.URL); status != 200 {
		t.Errorf("what was refused counts as stored: %d %s", status, reason)
	}
}

func TestReceiver_says_nothing_of_its_own_troubles(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{
		"down":  errors.New("hush: connection to db.internal refused"),
		"taken": fmt.Errorf("claim: %w", schema.ErrLeaseLost),
	} {
		server := serve(t, receiver(t, func(context.Context, string, schema.Envelope) (bool, error) { return false, err }))
		if status, reason := good(schema.NewJob("crm", "book", nil)).send(t, server.URL); status != 503 || strings.Contains(reason, "hush") {
			t.Errorf("%s: %d %s", name, status, reason)
		}
	}
}

func TestReceiver_is_busy_rather_than_overrun(t *testing.T) {
	t.Parallel()
	entered, leave := make(chan struct{}), make(chan struct{})
	server := serve(t, receiver(t, func(context.Context, string, schema.Envelope) (bool, error) {
		entered <- struct{}{}
		<-leave
		return false, nil
	}, func(c *peer.ReceiverConfig) { c.Concurrency = 1 }))
	done := make(chan int)
	go func() {
		status, _ := good(schema.NewJob("crm", "book", nil)).send(t, server.URL)
		done <- status
	}()
	<-entered
	err := sender(t, server.URL).Handle(t.Context(), schema.NewJob("crm", "book", nil))
	if _, waits := schema.RetryAfterOf(err); waits || schema.KindOf(err) != schema.Temporary || !strings.Contains(fmt.Sprint(err), "503") {
		t.Errorf("busy: %v", err) // with a short wait, all attempts would be used up in seconds
	}
	close(leave)
	if status := <-done; status != 200 {
		t.Errorf("the first got %d", status)
	}
}

func TestReceiver_gives_up_on_those_who_drip(t *testing.T) {
	t.Parallel()
	var kept keep
	server := serve(t, receiver(t, kept.store, func(c *peer.ReceiverConfig) { c.Timeout = 100 * time.Millisecond }))
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Type: %s\r\n%s: here\r\nContent-Length: 1000\r\n\r\nabc", peer.ContentType, peer.HeaderFrom); err != nil {
		t.Fatal(err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(conn)
	if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 408 ") {
		t.Errorf("%s, %v", answer, err)
	}
}

func TestReceiverConfig_validate_says_everything_by_key(t *testing.T) {
	t.Parallel()
	var kept keep
	for name, c := range map[string]struct {
		config peer.ReceiverConfig
		want   string
	}{
		"good": {peer.ReceiverConfig{Origin: "b", Store: kept.store, Senders: map[string]peer.Sender{
			"a": {Secrets: secrets(secretA, "whpk_"+strings.Repeat("A", 43)+"="), Allow: []string{"jobs.*.book", "events.>", "jobs.>"}},
		}}, ""},
		"nothing": {peer.ReceiverConfig{}, "origin store peers"},
		"limits":  {peer.ReceiverConfig{MaxBytes: -1, Concurrency: -1, Timeout: -1}, "origin store max_bytes concurrency timeout peers"},
		"peers": {peer.ReceiverConfig{Origin: "b", Store: kept.store, Senders: map[string]peer.Sender{
			"A": {Secrets: secrets("hush"), Allow: []string{"jobs", "crm.>", "jobs.>.x", "jobs.c rm"}}, "b": {},
		}}, "peers.A peers.A.secrets peers.A.allow peers.A.allow peers.A.allow peers.A.allow peers.b.secrets peers.b.allow peers.b"},
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
		if _, newErr := peer.NewReceiver(c.config); (newErr != nil) != (err != nil) || strings.Contains(fmt.Sprint(newErr), "hush") {
			t.Errorf("%s: NewReceiver says %v", name, newErr)
		}
	}
}
