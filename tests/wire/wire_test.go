package wire

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/format"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/publishers"
	forwarding "github.com/millbridge/millbridge/publishers/jetstream"
	"github.com/millbridge/millbridge/schema"
)

const doc = "../../docs/wire.md"

// bareConsumer builds the program that stands in docs/wire.md.
func bareConsumer(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(doc)
	if err != nil {
		t.Fatal(err)
	}
	_, code, found := strings.Cut(string(text), "```go\n")
	code, _, closed := strings.Cut(code, "```\n")
	if !found || !closed {
		t.Fatalf("%s has no Go program", doc)
	}
	if strings.Contains(code, "millbridge/") {
		t.Errorf("the program in %s uses Millbridge", doc)
	}
	if formatted, err := format.Source([]byte(code)); err != nil || string(formatted) != code {
		t.Errorf("the program in %s is not as gofmt writes it: %v", doc, err)
	}
	dir := t.TempDir()
	source, program := filepath.Join(dir, "main.go"), filepath.Join(dir, "bare")
	if err := os.WriteFile(source, []byte(code), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, source).CombinedOutput(); err != nil {
		t.Fatalf("build the program in %s: %v\n%s", doc, err, out)
	}
	return program
}

type published struct {
	publish func(ctx context.Context, envs ...schema.Envelope) ([]schema.Receipt, error)
	info    func(ctx context.Context) (schema.OutboxInfo, error)
	store   forwarding.Store
}

func openPostgres(t *testing.T) published {
	store := testkit.PostgresStore(t)
	return published{publishers.NewOutbox(store, publishers.Config{}).PublishAlone, store.Info, forwarding.StoreOf(store)}
}

func openSQLite(t *testing.T) published {
	store := testkit.SQLiteStore(t)
	return published{publishers.NewOutbox(store, publishers.Config{}).PublishAlone, store.Info, forwarding.StoreOf(store)}
}

// Every header that we write stands in the document.
func TestDocument_has_every_header(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(doc)
	if err != nil {
		t.Fatal(err)
	}
	env := schema.NewJob("t", "a", nil, schema.WithOrderingKey("k"), schema.WithTenant("t"), schema.WithActor("a"), schema.WithRequestID("r"),
		schema.WithTrace("00", "k=v"), schema.WithContentType("text/plain"), schema.WithTime(time.Now()), schema.WithMetadata(map[string]string{"k": " "}))
	env.Source, env.Replay = "/s", &schema.Replay{Handler: "h", Of: "x", Number: 1}
	headers, err := schema.ParseHeader(schema.EncodeHeader(env))
	if err != nil {
		t.Fatal(err)
	}
	delete(headers, "k")
	letter := schema.DeadLetter{Stack: "s", Tombstone: "dropped", Header: map[string][]string{"a b": {"c"}}}
	dead, _ := letter.Encode()
	maps.Copy(headers, dead)
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		if !strings.Contains(string(text), "`"+name+"`") {
			t.Errorf("%s does not have %s", doc, name)
		}
	}
	if len(headers) < 30 {
		t.Errorf("only %d headers were looked for", len(headers))
	}
}

func TestBareConsumer_reads_by_the_document(t *testing.T) {
	t.Parallel()
	program := bareConsumer(t)
	for name, open := range map[string]func(*testing.T) published{"postgres": openPostgres, "sqlite": openSQLite} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			readBack(t, open(t), program)
		})
	}
}

func readBack(t *testing.T, db published, program string) {
	t.Helper()
	server := testkit.NATS(t)
	nc := server.Conn(t)
	js := testkit.JetStream(t, nc)
	if err := forwarding.EnsureStreams(t.Context(), js, forwarding.StreamsConfig{}); err != nil {
		t.Fatal(err)
	}
	metadata := map[string]string{"Case": "kept", "blank": "  x  ", "lines": "l1\nl2", "percent": "100%41", "empty": "", "bytes": "\u00ff\x00", "text": "Zürich 😀"}
	job := schema.NewJob("mailer", "send.now", []byte("{\"a\": 1.0,\n \"n\":9007199254740993}"), schema.WithKey("Order 7/é"),
		schema.WithOrderingKey("customer 3"), schema.WithTenant("t 1"), schema.WithContentType("application/json; charset=utf-8"), schema.WithMetadata(metadata))
	event := schema.NewEvent("order.paid", []byte("plain \x00 bytes"), schema.WithPublic(), schema.WithMetadata(metadata))
	if _, err := db.publish(t.Context(), job, event); err != nil {
		t.Fatal(err)
	}
	forwarder, err := forwarding.NewForwarder(db.store, nc, forwarding.ForwarderConfig{Logger: testkit.Logger(t)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if tally, err := forwarder.Drain(ctx); err != nil || tally.Sent != 2 {
		t.Fatalf("drain: %+v, %v", tally, err)
	}
	info, err := db.info(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	type message struct {
		Subject, ID, Source, Type, Key, OrderingKey, Tenant, ContentType string

		Metadata map[string]string
		Body     string
	}
	source := "/millbridge/" + info.ID
	want := map[string]message{
		"mb.jobs.mailer.send.now": {
			ID: job.ID, Source: source, Type: "job.mailer.send.now", Key: "Order 7/é", OrderingKey: "customer 3", Tenant: "t 1",
			ContentType: "application/json; charset=utf-8", Metadata: metadata, Body: string(job.Payload),
		},
		"mb.events.public.order.paid": {
			ID: event.ID, Source: source, Type: "event.public.order.paid", Key: event.ID, Metadata: metadata, Body: string(event.Payload),
		},
	}
	out, err := exec.CommandContext(ctx, program, server.URL()).Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, exit.Stderr)
		}
		t.Fatal(err)
	}
	for lines := json.NewDecoder(bytes.NewReader(out)); lines.More(); {
		var got message
		if err := lines.Decode(&got); err != nil {
			t.Fatal(err)
		}
		subject := got.Subject
		got.Subject = ""
		if w, ok := want[subject]; !ok || !reflect.DeepEqual(got, w) {
			t.Errorf("%s: got\n%+v\nwant\n%+v", subject, got, w)
		}
		delete(want, subject)
	}
	for _, subject := range slices.Sorted(maps.Keys(want)) {
		t.Errorf("%s was not read", subject)
	}
	compareStreams(t, js)
}

// compareStreams checks what the document says about the streams after both messages were acked.
func compareStreams(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	for name, want := range map[string]struct {
		retention jetstream.RetentionPolicy
		filter    string
		left      uint64
	}{
		"MB_JOBS":   {jetstream.WorkQueuePolicy, "mb.jobs.>", 0},
		"MB_EVENTS": {jetstream.LimitsPolicy, "mb.events.>", 1},
		"MB_DEAD":   {jetstream.LimitsPolicy, "mb.dead.>", 0},
	} {
		stream, err := js.Stream(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		info, err := stream.Info(t.Context(), jetstream.WithSubjectFilter(want.filter))
		if err != nil {
			t.Fatal(err)
		}
		if info.Config.Retention != want.retention || info.Config.MaxAge != 0 || info.Config.Discard != jetstream.DiscardNew {
			t.Errorf("%s is %+v", name, info.Config)
		}
		left := uint64(0)
		for _, n := range info.State.Subjects {
			left += n
		}
		if left != want.left {
			t.Errorf("%s has %d messages on %s, want %d", name, left, want.filter, want.left)
		}
	}
}
