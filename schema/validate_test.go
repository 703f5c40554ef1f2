package schema_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millbridge/millbridge/schema"
)

// faults returns the fields of all faults of e, in order.
func faults(t *testing.T, e schema.Envelope) []string {
	t.Helper()
	err := e.Validate(0)
	if err == nil {
		return nil
	}
	var invalid *schema.ValidationError
	if !errors.As(err, &invalid) || !errors.Is(err, schema.ErrInvalid) || schema.KindOf(err) != schema.Permanent {
		t.Fatalf("error %v (%T) is no permanent validation error", err, err)
	}
	var fields []string
	for _, f := range invalid.Faults {
		fields = append(fields, f.Field)
		if !strings.Contains(err.Error(), f.String()) {
			t.Errorf("the error text %q leaves out %q", err, f)
		}
	}
	return fields
}

func job(opts ...schema.Option) schema.Envelope   { return schema.NewJob("t", "a", nil, opts...) }
func event(opts ...schema.Option) schema.Envelope { return schema.NewEvent("n", nil, opts...) }

// entries returns n entries with the longest keys.
func entries(n int) map[string]string {
	m := make(map[string]string, n)
	for i := range n {
		m[fmt.Sprintf("%0*d", schema.MaxMetadataKey, i)] = ""
	}
	return m
}

func TestValidate_reports_all_faults_in_the_order_of_the_fields(t *testing.T) {
	t.Parallel()
	e := schema.NewJob("T", "a..b", make(chan int), schema.WithID(""), schema.WithKey("\xff\x00"), schema.WithOrderingKey(strings.Repeat("x", 201)),
		schema.WithTenant(strings.Repeat("x", 201)), schema.WithActor("\x00"), schema.WithRequestID("\xff"), schema.WithTrace("é", " x"),
		schema.WithContentType("a\nb"), schema.WithMetadata(map[string]string{"my key": "", "Nats-TTL": "1s"}),
		schema.WithTime(time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC)), schema.WithDueAt(time.Date(2262, 1, 1, 0, 0, 0, 0, time.UTC)), schema.WithPublic())
	want := []string{
		"id", "target", "action", "visibility", "key", "key", "ordering_key", "tenant", "actor", "request_id", "traceparent",
		"tracestate", "content_type", "metadata[Nats-TTL]", "metadata[my key]", "time", "due_at", "payload",
	}
	if got := faults(t, e); !slices.Equal(got, want) {
		t.Errorf("faults\n%v\nwant\n%v", got, want)
	}
	e = job()
	e.Replay = &schema.Replay{}
	if got, want := faults(t, e), []string{"replay.handler", "replay.of", "replay.number"}; !slices.Equal(got, want) {
		t.Errorf("faults of a replay %v, want %v", got, want)
	}
	e.Replay = &schema.Replay{Handler: "h", Of: "x", Number: schema.MaxReplay + 1}
	if got, want := faults(t, e), []string{"replay.number"}; !slices.Equal(got, want) {
		t.Errorf("faults of a replay too many %v, want %v", got, want)
	}
	for _, e := range []schema.Envelope{
		job(schema.WithDelay(-1)), job(schema.WithDelay(101 * 365 * 24 * time.Hour)), job(schema.WithDelay(1), schema.WithDueAt(time.Now())),
	} {
		if got := faults(t, e); !slices.Equal(got, []string{"delay"}) {
			t.Errorf("delay %v: faults %v", e.Delay, got)
		}
	}
	e = job(schema.WithReplyTo("T", "a..b", strings.Repeat("x", 201)))
	if got, want := faults(t, e), []string{"reply_to.target", "reply_to.action", "reply_to.ref"}; !slices.Equal(got, want) {
		t.Errorf("faults of a reply %v, want %v", got, want)
	}
	e = job(schema.WithReplyTo(strings.Repeat("t", schema.MaxTarget), strings.Repeat("a", schema.MaxName), ""))
	if got, want := faults(t, e), []string{"reply_to"}; !slices.Equal(got, want) {
		t.Errorf("faults of a long reply %v, want %v", got, want)
	}
	if got, want := faults(t, event(schema.WithReplyTo("t", "a", "r"))), []string{"reply_to"}; !slices.Equal(got, want) {
		t.Errorf("faults of an event with a reply %v, want %v", got, want)
	}
	e = schema.NewEvent("", nil)
	e.Target, e.Visibility = "t", "secret"
	if got, want := faults(t, e), []string{"name", "target", "visibility"}; !slices.Equal(got, want) {
		t.Errorf("faults of an event %v, want %v", got, want)
	}
	if got, want := faults(t, schema.Envelope{ID: "x"}), []string{"kind"}; !slices.Equal(got, want) {
		t.Errorf("faults of the zero envelope %v, want %v", got, want)
	}
}

// What has been in a stream and reached a handler can be replayed, whoever published it: our limits of length are for
// what is new. What the server would refuse is refused.
func TestValidate_replay_takes_what_a_stream_took(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 300)
	e := job(schema.WithKey(long), schema.WithTenant(long), schema.WithMetadata(entries(200)))
	e.Name, e.Payload = "Charge", make([]byte, 1<<20)
	if got, want := faults(t, e), []string{"action", "key", "tenant", "metadata", "payload"}; !slices.Equal(got, want) {
		t.Errorf("faults of a new message %v, want %v", got, want)
	}
	e.Replay = &schema.Replay{Handler: "t", Of: "x", Number: 1}
	if got := faults(t, e); len(got) != 0 {
		t.Errorf("faults of its replay %v", got)
	}
	e.Payload, e.Metadata = append(e.Payload, 0), map[string]string{"a/b": "", "m": strings.Repeat("x", 1<<16)}
	if got, want := faults(t, e), []string{"metadata[a/b]", "payload", "headers"}; !slices.Equal(got, want) {
		t.Errorf("faults of what no server takes %v, want %v", got, want)
	}
}

func TestValidate_gives_length_and_limit(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 300)
	many := entries(65)
	tooMuch := job(schema.WithMetadata(map[string]string{"k": strings.Repeat("x", 100_000)}))
	encoded := job(schema.WithMetadata(map[string]string{"k": strings.Repeat("\x00", 11_000)})) // 11,000 bytes become 33,000
	tests := map[string]struct {
		e             schema.Envelope
		field         string
		length, limit int
	}{
		"target":        {schema.NewJob(long, "a", nil), "target", 300, schema.MaxTarget},
		"action":        {schema.NewJob("t", long, nil), "action", 300, schema.MaxName},
		"name":          {schema.NewEvent(long, nil), "name", 300, schema.MaxName},
		"id":            {job(schema.WithID(long)), "id", 300, schema.MaxID},
		"key":           {job(schema.WithKey(strings.Repeat("é", 201))), "key", 201, schema.MaxKeyChars},
		"ordering key":  {job(schema.WithOrderingKey(long)), "ordering_key", 300, schema.MaxKeyChars},
		"tenant":        {job(schema.WithTenant(long)), "tenant", 300, schema.MaxContext},
		"content type":  {job(schema.WithContentType(long)), "content_type", 300, schema.MaxContentType},
		"trace state":   {job(schema.WithTrace("", long+long)), "tracestate", 600, schema.MaxTraceState},
		"entries":       {job(schema.WithMetadata(many)), "metadata", 65, schema.MaxMetadata},
		"metadata key":  {job(schema.WithMetadata(map[string]string{long: ""})), "metadata[" + long + "]", 300, schema.MaxMetadataKey},
		"payload":       {schema.NewJob("t", "a", make([]byte, schema.DefaultPayload+1)), "payload", schema.DefaultPayload + 1, schema.DefaultPayload},
		"subject":       {schema.NewJob(long[:63], long[:200], nil), "subject", 33 + 5 + 63 + 1 + 200, schema.MaxSubject},
		"100 KB value":  {tooMuch, "headers", len(schema.EncodeHeader(tooMuch)) + 1024 + 1536, schema.MaxHeaderBytes},
		"encoded value": {encoded, "headers", len(schema.EncodeHeader(encoded)) + 1024 + 1536, schema.MaxHeaderBytes},
	}
	for name, tt := range tests {
		var invalid *schema.ValidationError
		if !errors.As(tt.e.Validate(0), &invalid) || len(invalid.Faults) != 1 {
			t.Errorf("%s: %v", name, tt.e.Validate(0))
			continue
		}
		if f := invalid.Faults[0]; f.Field != tt.field || f.Length != tt.length || f.Limit != tt.limit {
			t.Errorf("%s: fault %q %d/%d, want %q %d/%d", name, f.Field, f.Length, f.Limit, tt.field, tt.length, tt.limit)
		}
	}
}

func TestValidate_accepts_up_to_the_limits(t *testing.T) {
	t.Parallel()
	x := func(n int) string { return strings.Repeat("x", n) }
	e := schema.NewJob(x(63), x(153), make([]byte, schema.DefaultPayload), schema.WithID(x(64)), schema.WithKey(strings.Repeat("😀", 200)),
		schema.WithOrderingKey(strings.Repeat("é", 200)), schema.WithTenant(x(200)), schema.WithActor(x(200)), schema.WithRequestID(x(200)),
		schema.WithTrace(x(200), x(512)), schema.WithContentType(x(128)), schema.WithDueAt(time.Date(2261, 12, 31, 0, 0, 0, 0, time.UTC)))
	if got := faults(t, e); got != nil {
		t.Errorf("refused: %v", got)
	}
	if n := len(schema.Subjects{Prefix: x(schema.MaxPrefix)}.Full(e.Subject())); n != schema.MaxSubject {
		t.Errorf("the longest subject has %d bytes, want %d", n, schema.MaxSubject)
	}
	if got := faults(t, job(schema.WithMetadata(entries(schema.MaxMetadata)))); got != nil {
		t.Errorf("metadata refused: %v", got)
	}
	e = job(schema.WithMetadata(map[string]string{"k": ""}))
	room := schema.MaxHeaderBytes - 1024 - 1536 - len(schema.EncodeHeader(e))
	if e.Metadata["k"] = x(room); faults(t, e) != nil {
		t.Error("the largest header block is refused")
	}
	if e.Metadata["k"] = x(room + 1); faults(t, e) == nil {
		t.Error("a header block above the limit is accepted")
	}
	if got := faults(t, schema.NewJob("t", "a", make([]byte, 11))); got != nil {
		t.Errorf("payload within the default: %v", got)
	}
	if err := schema.NewJob("t", "a", make([]byte, 11)).Validate(10); err == nil {
		t.Error("a payload above the database's limit was accepted")
	}
}

// A valid message must be replayable by any handler, however long its name.
func TestValidate_accepts_the_replay_of_the_longest_event(t *testing.T) {
	t.Parallel()
	e := schema.NewEvent(strings.Repeat("n", 200), nil)
	if got := faults(t, e); got != nil {
		t.Fatal(got)
	}
	e.Replay = &schema.Replay{Handler: strings.Repeat("h", 63), Of: strings.Repeat("i", 64), Number: 1}
	if got := faults(t, e); got != nil {
		t.Error(got)
	}
	if n := len(schema.Subjects{Prefix: strings.Repeat("p", 32)}.Full(e.Subject())); n != 304 {
		t.Errorf("the longest replay subject has %d bytes; limits.go says 304", n)
	}
}

func TestValidate_keys(t *testing.T) {
	t.Parallel()
	accepted := []string{"", "x", strings.Repeat("x", 200), strings.Repeat("😀", 200), " a ", "A", "a", "l1\nl2", "\t", "a/b:c", "\u00a0"}
	refused := []string{strings.Repeat("x", 201), strings.Repeat("é", 201), strings.Repeat("x", 100_000), "a\x00b", "\xff", "a\xed\xa0\x80", strings.Repeat("\xff", 201)}
	for _, k := range accepted {
		if got := faults(t, job(schema.WithKey(k), schema.WithOrderingKey(k))); got != nil {
			t.Errorf("key %.20q refused: %v", k, got)
		}
	}
	for _, k := range refused {
		got := faults(t, job(schema.WithKey(k), schema.WithOrderingKey(k)))
		if !slices.Contains(got, "key") || !slices.Contains(got, "ordering_key") {
			t.Errorf("key %.20q accepted: %v", k, got)
		}
	}
	seen := map[[32]byte]string{}
	for _, k := range accepted[1:] {
		h := job(schema.WithKey(k)).KeyHash()
		if other, ok := seen[h]; ok {
			t.Errorf("keys %q and %q are one", other, k)
		}
		seen[h] = k
	}
}

func TestValidate_names(t *testing.T) {
	t.Parallel()
	bad := []string{"", "a..b", "a.", ".a", "*", "a.>", ">", "a b", "a/b", "é", "$SYS", "_INBOX.x", "A", "-a", "_a", "a.-b", "a\n", "a\x00", strings.Repeat("x", 300)}
	for _, s := range bad {
		if schema.CheckTarget(s) == nil || faults(t, schema.NewJob(s, "a", nil)) == nil {
			t.Errorf("target %.20q accepted", s)
		}
		if schema.CheckName(s) == nil || faults(t, schema.NewEvent(s, nil)) == nil || faults(t, schema.NewJob("t", s, nil)) == nil {
			t.Errorf("name %.20q accepted", s)
		}
	}
	if err := schema.CheckTarget("a.b"); err == nil {
		t.Error(`target "a.b" accepted`)
	}
	for _, s := range []string{"a", "0", "a-b_c", "a9", strings.Repeat("x", 63)} {
		if err := errors.Join(schema.CheckTarget(s), schema.CheckName(s), schema.CheckName(s+".b.0")); err != nil {
			t.Errorf("%q refused: %v", s, err)
		}
	}
	if err := schema.CheckTarget("A"); err == nil || !strings.HasPrefix(err.Error(), `invalid message: target: "A" must be a-z`) {
		t.Errorf("error %q", err)
	}
}

func TestValidate_metadata_keys(t *testing.T) {
	t.Parallel()
	bad := []string{
		"my key", "a:b", "a/b", "", "ключ", "a\n", "a\x00", "a\x7f", "k=v", "(k)", "k,l", "k;l", `"k"`, "k@l", "[k]", `k\l`, "{k}", "<k>", "k?",
		"Nats-TTL", "nats-rollup", "NATS-X", "Status", "DESCRIPTION", "mb-x", "MB-Version", "ce-id", "Ce-Anything", "_watermill_message_uuid",
		"_WATERMILL_MESSAGE_UUID", "TraceParent", "tracestate", strings.Repeat("k", 129),
	}
	for _, k := range bad {
		if got := faults(t, job(schema.WithMetadata(map[string]string{k: "v"}))); len(got) != 1 || !strings.HasPrefix(got[0], "metadata[") {
			t.Errorf("metadata key %.20q: faults %v", k, got)
		}
	}
	for _, k := range []string{"a", "A", "a.b", "a-b", "a_b", "!#$%&'*+.^_`|~", "correlation_id", "natsy", "X-Nats-TTL", "mb", "reason_poisoned", strings.Repeat("k", 128)} {
		if got := faults(t, job(schema.WithMetadata(map[string]string{k: "\x00\xff"}))); got != nil {
			t.Errorf("metadata key %.20q refused: %v", k, got)
		}
	}
}

// Whatever is wrong, the text of the error can be printed and stored.
func TestValidate_error_is_one_line(t *testing.T) {
	t.Parallel()
	e := schema.NewJob("a\nb", "\x1b[31m", nil, schema.WithID("x\r\n"), schema.WithMetadata(map[string]string{"\x00\n": ""}))
	e.Kind = "\n"
	text := e.Validate(0).Error()
	if strings.ContainsAny(text, "\n\r\x00\x1b") {
		t.Errorf("%q", text)
	}
	if !strings.HasPrefix(text, "invalid message x: ") {
		t.Errorf("the text does not name the message: %q", text)
	}
}
