package cases

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/internal/cli"
	"github.com/millbridge/millbridge/schema"
)

func TestC19_metadata_through_to_the_handlers(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		for _, key := range []string{"my key", "a:b", "a/b", "", "ключ", "a\nb", "Nats-TTL", "nats-rollup", "ce-id", "mb-x", "Status", "_watermill_message_uuid"} {
			err := w.refused(t, schema.NewJob("a", "do", nil, schema.WithMetadata(map[string]string{key: "v"})))
			if !errors.Is(err, schema.ErrInvalid) || !strings.Contains(err.Error(), "metadata["+schema.OneLine(key)+"]") {
				t.Errorf("metadata key %q: %v", key, err)
			}
		}
		err := w.refused(t, schema.NewJob("a", "do", nil, schema.WithMetadata(map[string]string{"k": strings.Repeat("x", 100_000)})))
		if !errors.Is(err, schema.ErrInvalid) || !strings.Contains(err.Error(), "limit 32768") {
			t.Errorf("a value of 100 KB: %v", err)
		}

		metadata := map[string]string{
			"lines": "l1\nl2", "crlf": "\r\nNats-Rollup: all\r\n", "padded": "  x  ", "empty": "", "nul": "a\x00b", "emoji": "😀", "bytes": "\xff\xfe", "tab": "\tx\t",
			"percent": "100%41%", "nbsp": "\u00a0x\u00a0", "long": strings.Repeat("é ü", 4_000), "X-Case": "kept", "x-case": "apart", "spaces": "   ",
		}
		r := &recorder{}
		var letter schema.Envelope
		bridge := w.open(t, handlers.Target{Name: "a", Handler: r}, handlers.Target{Name: "dead", Handler: handlers.HandlerFunc(func(context.Context, schema.Envelope) error {
			return handlers.Permanent(errors.New("no"))
		})})
		w.publish(t, schema.NewJob("a", "do", nil, schema.WithMetadata(metadata)), schema.NewJob("dead", "do", nil, schema.WithMetadata(metadata)))
		w.drain(t, bridge)
		got := r.all()
		if len(got) != 1 {
			t.Fatalf("%d messages", len(got))
		}
		letters := w.dead(t)
		if len(letters) != 1 {
			t.Fatalf("%d dead letters", len(letters))
		}
		if letter, err = letters[0].Envelope(schema.Subjects{}); err != nil {
			t.Fatal(err)
		}
		for where, m := range map[string]map[string]string{"handler": got[0].Metadata, "dead letter": letter.Metadata} {
			if !maps.Equal(m, metadata) {
				t.Errorf("the %s has %q", where, m)
			}
		}
	})
}

func TestC22_payloads_through_to_the_handlers(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		all := make([]byte, 256)
		for i := range all {
			all[i] = byte(i)
		}
		payloads := map[string][]byte{
			"nil": nil, "empty": {}, "text": []byte("hello"), "protobuf": {0x08, 0x96, 0x01, 0x12, 0x00}, "zero": {0}, "ff": {0xff}, "all": all,
			"escaped-nul": []byte(`{"a":"\u0000"}`), "surrogate": []byte(`{"a":"\ud800"}`), "twice": []byte(`{"a":1,"a":2}`), "integer": []byte(`{"a":9007199254740993}`),
			"blanks": []byte(" { \"a\" : 1.0 }\r\n"), "largest": bytes.Repeat([]byte{0xff}, schema.DefaultPayload),
		}
		r := &recorder{}
		bridge := w.open(t, handlers.Target{Name: "a", Handler: r}, handlers.Target{Name: "dead", Handler: handlers.HandlerFunc(func(context.Context, schema.Envelope) error {
			return handlers.Permanent(errors.New("no"))
		})})
		err := w.refused(t, schema.NewJob("a", "do", make([]byte, schema.DefaultPayload+1)))
		if !strings.Contains(err.Error(), "length 983041, limit 983040") {
			t.Errorf("one byte more: %v", err)
		}
		for _, name := range sorted(payloads) {
			w.publish(t, schema.NewJob("a", name, payloads[name]), schema.NewJob("dead", name, payloads[name]))
		}
		id := strings.Repeat("i", 37)
		long, twice := schema.NewJob("a", "long", []byte("x"), schema.WithID(id)), schema.NewJob("a", "again", []byte("y"), schema.WithID("twice"))
		w.publish(t, long)
		w.publish(t, twice)
		w.publish(t, twice) // the same message: handled once
		w.drain(t, bridge)

		got := make(map[string][]byte)
		for _, e := range r.all() {
			if _, again := got[e.Name]; again {
				t.Errorf("%s was handled twice", e.Name)
			}
			got[e.Name] = e.Payload
		}
		payloads["long"], payloads["again"] = long.Payload, twice.Payload
		for name, want := range payloads {
			if p, ok := got[name]; !ok || !bytes.Equal(p, want) {
				t.Errorf("%s arrived as %.40q, %v", name, p, ok)
			}
		}
		if !slices.Contains(r.ids(), id) {
			t.Error("the id of 37 characters did not arrive")
		}
		letters := w.dead(t)
		if len(letters) != len(payloads)-2 {
			t.Errorf("%d dead letters, want %d", len(letters), len(payloads)-2)
		}
		for _, l := range letters {
			e, err := l.Envelope(schema.Subjects{})
			if err != nil || !bytes.Equal(e.Payload, payloads[e.Name]) {
				t.Errorf("the dead letter of %s has %.40q, %v", e.Name, e.Payload, err)
			}
			if w.dsn != "" && len(e.Payload) < 1000 {
				shows(t, w, e)
			}
		}
	})
}

// shows runs "poison show", whose output must be fit for a terminal whatever the payload is.
func shows(t *testing.T, w *world, e schema.Envelope) {
	t.Helper()
	for _, format := range [][]string{nil, {"--json"}} {
		var out, errs bytes.Buffer
		args := append([]string{"poison", "show", e.ID, "--database-url", w.dsn, "--nats-url", w.nats.URL()}, format...)
		code := cli.Main(t.Context(), args, cli.Env{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs, Getenv: func(string) string { return "" }})
		if code != 0 {
			t.Errorf("%s: exit code %d: %s", e.Name, code, errs.String())
		}
		if s := out.String(); !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return r < ' ' && r != '\n' && r != '\t' || r == 0x7f }) {
			t.Errorf("%s is shown as %q", e.Name, s)
		}
	}
}
