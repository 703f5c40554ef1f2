package schema_test

import (
	"bytes"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/millbridge/millbridge/schema"
)

// parseLoose reads "name: value" lines with any bytes, repeated names included.
func parseLoose(block string) map[string][]string {
	h := make(map[string][]string)
	for line := range strings.SplitSeq(block, "\r\n") {
		if k, v, ok := strings.Cut(line, ": "); ok {
			h[k] = append(h[k], v)
		}
	}
	return h
}

func FuzzParseHeader(f *testing.F) {
	f.Add(schema.EncodeHeader(schema.NewJob("t", "a", 1)))
	f.Add([]byte("a: 1\r\nA: 2\r\n"))
	f.Add([]byte("a: 1\r\na: 2\r\n"))
	f.Fuzz(func(t *testing.T, block []byte) {
		h, err := schema.ParseHeader(block)
		if err != nil {
			return
		}
		lines := strings.SplitAfter(string(block), "\r\n")
		var again []string
		for k, vs := range h {
			again = append(again, k+": "+vs[0]+"\r\n")
		}
		slices.Sort(lines)
		slices.Sort(again)
		if strings.Join(lines, "") != strings.Join(again, "") {
			t.Fatalf("read %q as %q", block, h)
		}
	})
}

func FuzzDecode(f *testing.F) {
	replay := schema.NewEvent("e", 1, schema.WithMetadata(map[string]string{"k": "\xff"}))
	replay.Replay = &schema.Replay{Handler: "h", Of: "x", Number: 1}
	for _, e := range []schema.Envelope{schema.NewJob("t", "a", 1, schema.WithKey("é")), schema.NewEvent("e.f", nil), replay} {
		f.Add(e.Subject(), schema.EncodeHeader(e), e.Payload)
	}
	f.Add("events.public.x", []byte("ce-id: a/b\r\nce-source: /s\r\nX: 1\r\n"), []byte("{}"))
	f.Fuzz(func(t *testing.T, subject string, block, payload []byte) {
		header := parseLoose(string(block))
		e, err := schema.Decode(subject, header, payload)
		if err != nil {
			if !errors.Is(err, schema.ErrUndecodable) || schema.KindOf(err) != schema.Permanent || len(err.Error()) > 2*schema.MaxReason+200 {
				t.Fatalf("the error of kind %v is %q", schema.KindOf(err), err)
			}
			return
		}
		if same, err := schema.Decode(subject, header, payload); err != nil || !reflect.DeepEqual(same, e) {
			t.Fatalf("read once as %+v and once as %+v (%v)", e, same, err)
		}
		if e.ID == "" || e.Kind == "" || e.IdempotencyKey() == "" || e.Stream() == "" {
			t.Fatalf("decoded %+v", e)
		}
		if e.Validate(len(payload)+1) != nil { // what we would not publish need not survive
			return
		}
		got, err := schema.NewRow(e).Envelope()
		if err != nil {
			t.Fatalf("%v after %+v", err, e)
		}
		if e.Replay == nil {
			e.Source = "" // is the sending outbox's to give
		}
		sameEnvelope(t, got, e)
	})
}

func FuzzDecodeCursor(f *testing.F) {
	f.Add(schema.Cursor{Owner: "o"}.Encode())
	f.Add(schema.Cursor{Owner: "o", Batch: 2, Removed: 1, Total: 9, Batches: []schema.CursorBatch{
		{Batch: 2, Total: 9, Rows: []schema.RowName{{Seq: 5, ID: schema.UUID{1}}, {Seq: -7}}},
	}}.Encode())
	f.Fuzz(func(t *testing.T, body []byte) {
		c, err := schema.DecodeCursor(body)
		if err != nil {
			return
		}
		if len(c.Batches) > schema.MaxCursorBatches || len(c.Names()) > schema.MaxCursorRows || c.Removed > c.Batch || c.Owner == "" {
			t.Fatalf("it takes %+v", c)
		}
		again, err := schema.DecodeCursor(c.Encode())
		if err != nil || !reflect.DeepEqual(again, c) {
			t.Fatalf("%v: got %+v, want %+v", err, again, c)
		}
	})
}

func FuzzDecodeDeadLetter(f *testing.F) {
	for _, d := range []schema.DeadLetter{
		{Reason: "r", Header: header("Nats-Rollup", "all", "x", "1", "x", "2"), Payload: []byte("p")},
		{Reason: "r", Header: header("a b", " x"), Payload: []byte("p"), Stack: "s\n"},
	} {
		h, body := d.Encode()
		var block bytes.Buffer
		for k, vs := range h {
			for _, v := range vs {
				block.WriteString(k + ": " + v + "\r\n")
			}
		}
		f.Add("dead.jobs.h.id.0", block.Bytes(), body)
	}
	f.Fuzz(func(t *testing.T, subject string, block, payload []byte) {
		d, err := schema.DecodeDeadLetter(subject, parseLoose(string(block)), payload)
		if err != nil {
			return
		}
		if _, err := d.Envelope(schema.Subjects{}); err != nil && (!errors.Is(err, schema.ErrUndecodable) || schema.KindOf(err) != schema.Permanent) {
			t.Fatalf("the error of kind %v is %q", schema.KindOf(err), err)
		}
		h, body := d.Encode()
		again, err := schema.DecodeDeadLetter(subject, h, body)
		if err != nil {
			t.Fatal(err)
		}
		if !maps.EqualFunc(again.Header, d.Header, slices.Equal[[]string]) || !bytes.Equal(again.Payload, d.Payload) {
			t.Fatalf("got %q %q\nwant %q %q", again.Header, again.Payload, d.Header, d.Payload)
		}
		if again.Reason != d.Reason || again.Subject != d.Subject || again.Attempts != d.Attempts || again.Replay != d.Replay ||
			again.Handler != d.Handler || again.ID != d.ID || again.Sequence != d.Sequence || again.Deliveries != d.Deliveries {
			t.Fatalf("got %+v\nwant %+v", again, d)
		}
	})
}
