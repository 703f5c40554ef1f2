package cli_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/schema"
)

// reasons returns what status finds wrong.
func (w *world) reasons(t *testing.T) []string {
	t.Helper()
	r := w.run(t, "status", "--json")
	var list []string
	for _, reason := range r.objects(t)[0]["reasons"].([]any) {
		list = append(list, reason.(string))
	}
	if (r.code == 3) != (len(list) > 0) {
		t.Errorf("exit code %d with reasons %q", r.code, list)
	}
	return list
}

func has(list []string, parts ...string) bool {
	for _, s := range list {
		found := true
		for _, p := range parts {
			found = found && strings.Contains(s, p)
		}
		if found {
			return true
		}
	}
	return false
}

func TestStatus_of_an_idle_bridge_is_ok(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		if list := w.reasons(t); len(list) != 0 {
			t.Errorf("reasons: %q", list)
		}
		contains(t, w.must(t, "status", "--tally").stdout, "ok\n", "MB_JOBS", "jobs/0", "balanced: nothing lost")
	})
}

// An open circuit is told, with what it waits for; its messages are not said to be forgotten.
func TestStatus_names_open_circuits(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		for range 2 {
			if _, err := w.store.CircuitFailed(t.Context(), "crm", "HTTPError: 503", 2, time.Hour); err != nil {
				t.Fatal(err)
			}
		}
		if list := w.reasons(t); !has(list, "crm has failed 2 times in a row", "HTTPError: 503") {
			t.Errorf("reasons: %q", list)
		}
		contains(t, w.run(t, "status").stdout, "Circuits\n", "crm", "open", "2", "HTTPError: 503")
		circuit := w.run(t, "status", "--json").objects(t)[0]["circuits"].([]any)[0].(map[string]any)
		if left := circuit["next_seconds"].(float64); circuit["handler"] != "crm" || circuit["open"] != true || left < 3000 || left > 3600 {
			t.Errorf("the circuit is %v", circuit)
		}
		if err := w.store.CircuitClosed(t.Context(), "crm"); err != nil {
			t.Fatal(err)
		}
		if list := w.reasons(t); len(list) != 0 {
			t.Errorf("reasons after it was closed: %q", list)
		}
	})
}

// TestC15_status_names_subject_and_stream checks what an operator sees of the case.
func TestC15_status_names_subject_and_stream(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		if err := w.js.DeleteStream(t.Context(), "MB_JOBS"); err != nil {
			t.Fatal(err)
		}
		w.must(t, "publish", "job", "crm", "x")
		if list := w.reasons(t); !has(list, "stream MB_JOBS is missing", "mb.jobs.>", "rows waiting in the outbox: 1") {
			t.Errorf("reasons: %q", list)
		}
		w.ensureStreams(t)
		if list := w.reasons(t); has(list, "is missing") {
			t.Errorf("still: %q", list)
		}
	})
}

// TestC34_status_names_targets_without_consumer checks what an operator sees of the case: before and after forwarding.
func TestC34_status_names_targets_without_consumer(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		for name, filters := range map[string][]string{
			"crm":   {"mb.jobs.crm.>", "mb.replay.crm.>"},
			"audit": {"mb.replay.audit.>"}, // of a subscription
		} {
			_, err := w.js.CreateConsumer(t.Context(), "MB_JOBS", natsjs.ConsumerConfig{Durable: name, FilterSubjects: filters, AckPolicy: natsjs.AckExplicitPolicy})
			if err != nil {
				t.Fatal(err)
			}
		}
		w.must(t, "publish", "job", "crm", "x")
		w.must(t, "publish", "job", "erp", "x")
		w.must(t, "publish", "job", "audit", "x")
		w.must(t, "publish", "event", "order.placed")
		if list := w.reasons(t); !has(list, "target erp has no consumer", "(outbox): 1") || !has(list, "target audit has no consumer", "(outbox): 1") || has(list, "target crm") || has(list, "order.placed") {
			t.Errorf("in the outbox: %q", list)
		}
		w.forward(t)
		if list := w.reasons(t); !has(list, "target erp has no consumer", "(stream): 1") || !has(list, "target audit has no consumer", "(stream): 1") || has(list, "target crm") {
			t.Errorf("in the stream: %q", list)
		}
	})
}

// TestC17_status_says_that_nobody_consumes checks what an operator sees of the case: within two heartbeats.
func TestC17_status_says_that_nobody_consumes(t *testing.T) {
	t.Parallel()
	w := embeddedWorld(t)
	_, err := w.js.CreateConsumer(t.Context(), "MB_JOBS", natsjs.ConsumerConfig{
		Durable: "crm", FilterSubject: "mb.jobs.crm.>", AckPolicy: natsjs.AckExplicitPolicy,
	})
	if err != nil {
		t.Fatal(err)
	}
	w.must(t, "publish", "job", "crm", "x")
	w.forward(t)
	testkit.Eventually(t, testTimeout, func() error {
		if list := w.reasons(t); !has(list, "not consuming", "crm", "waiting: 1") {
			return fmt.Errorf("reasons: %q", list)
		}
		return nil
	})
}

func TestStatus_without_servers_says_so_in_time(t *testing.T) {
	t.Parallel()
	pool, server := testkit.Postgres(t), testkit.NATS(t)
	server.Stop()
	start := time.Now()
	r := call(t, "", nil, "status", "--database-url", testkit.PostgresURL(pool), "--nats-url", server.URL())
	if r.code != 3 || !strings.Contains(r.stdout, "NATS cannot be reached") || !strings.Contains(r.stdout, "schema 1") {
		t.Errorf("NATS down: %s", r)
	}
	if d := time.Since(start); d > 4*time.Second {
		t.Errorf("it took %v", d)
	}
	server.Restart()
	r = call(t, "", nil, "status", "--database-url", "postgres://127.0.0.1:1/d", "--nats-url", server.URL())
	if r.code != 3 || !strings.Contains(r.stdout, "database unknown: ") {
		t.Errorf("database down: %s", r)
	}
}

// TestC31_status_and_poison_list checks the operator's half of the case: 50,000 letters.
func TestC31_status_and_poison_list(t *testing.T) {
	t.Parallel()
	w := postgresWorld(t) // its server does not sync every message
	const n = 50_000
	env := schema.NewJob("crm", "contact.update", []byte(strings.Repeat("x", 300)))
	header, err := schema.ParseHeader(schema.EncodeHeader(env))
	if err != nil {
		t.Fatal(err)
	}
	letter := schema.DeadLetter{
		Handler: "crm", Cause: schema.CauseExhausted, Reason: "error: boom", Attempts: 3, Time: time.Now(),
		Stream: schema.Jobs, Subject: w.subjects.Full(env.Subject()), Header: header, Payload: env.Payload,
	}
	js := w.js
	for i := range n {
		letter.ID = fmt.Sprintf("m-%d", i)
		h, body := letter.Encode()
		msg := &nats.Msg{Subject: w.subjects.Dead(schema.Jobs, "crm", letter.ID, 0), Header: h, Data: body}
		if _, err := js.PublishMsgAsync(msg, natsjs.WithStallWait(testTimeout)); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-js.PublishAsyncComplete():
	case <-time.After(2 * testTimeout):
		t.Fatal("the letters were not stored")
	}
	quickest(t, func() {
		dead := w.run(t, "status", "--json").objects(t)[0]["dead"].(map[string]any)
		if dead["letters"] != float64(n) && dead["at_least"] != true {
			t.Errorf("dead letters: %v", dead)
		}
	})
	quickest(t, func() {
		if page := w.must(t, "poison", "list", "--json").objects(t); len(page) != 100 {
			t.Errorf("a page has %d messages", len(page))
		}
	})
}

// quickest fails unless f takes less than 2 seconds at one of a few times: the machine may be busy with other tests.
func quickest(t *testing.T, f func()) {
	t.Helper()
	var took []time.Duration
	for range 10 {
		start := time.Now()
		f()
		d := time.Since(start)
		if d < 2*time.Second {
			return
		}
		took = append(took, d)
	}
	t.Errorf("it took %v", took)
}
