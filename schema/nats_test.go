package schema_test

import (
	"bufio"
	"bytes"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/schema"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"pgregory.net/rapid"
)

// stream returns a stream for all subjects below mb and a subscription that sees them as any client does.
func stream(t *testing.T, s *testkit.Server) (jetstream.JetStream, jetstream.Stream) {
	t.Helper()
	js := s.JetStream(t)
	st, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "MB", Subjects: []string{"mb.>"}, Storage: jetstream.MemoryStorage})
	if err != nil {
		t.Fatal(err)
	}
	return js, st
}

func TestHeader_block_survives_a_server(t *testing.T) {
	t.Parallel()
	js, st := stream(t, testkit.NATS(t))
	ctx := t.Context()
	rapid.Check(t, func(t *rapid.T) {
		e := genEnvelope.Draw(t, "envelope")
		row := schema.NewRow(e)
		want, err := schema.ParseHeader(row.Block())
		if err != nil {
			t.Fatal(err)
		}
		subject := schema.Subjects{}.Full(row.Subject)
		ack, err := js.PublishMsg(ctx, &nats.Msg{Subject: subject, Header: maps.Clone(want), Data: row.Payload})
		if err != nil {
			t.Fatal(err)
		}
		got, err := st.GetMsg(ctx, ack.Sequence)
		if err != nil {
			t.Fatal(err)
		}
		if !maps.EqualFunc(got.Header, want, slices.Equal[[]string]) || got.Subject != subject || !bytes.Equal(got.Data, row.Payload) {
			t.Fatalf("stored  %q %q %q\nwritten %q %q %q", got.Subject, got.Header, got.Data, subject, want, row.Payload)
		}
		relative, ok := schema.Subjects{}.Relative(got.Subject)
		if !ok {
			t.Fatalf("subject %q", got.Subject)
		}
		back, err := schema.Decode(relative, got.Header, got.Data)
		if err != nil {
			t.Fatal(err)
		}
		sameEnvelope(t, back, e)
	})
}

// The largest header block that is accepted must not be too large for the server once the forwarder has added its own.
func TestHeader_block_at_the_limit_is_taken_by_a_server(t *testing.T) {
	t.Parallel()
	js, _ := stream(t, testkit.NATS(t))
	e := job(schema.WithMetadata(map[string]string{"k": ""}))
	e.Payload, e.Via = make([]byte, schema.DefaultPayload), []string{"a"} // passed on, so that it may have more than when it was published
	e.Metadata["k"] = strings.Repeat("x", schema.MaxHeaderBytes-1024-len(schema.EncodeHeader(e)))
	if err := e.Validate(0); err != nil {
		t.Fatal(err)
	}
	h, err := schema.ParseHeader(schema.EncodeHeader(e))
	if err != nil {
		t.Fatal(err)
	}
	h["ce-source"] = []string{strings.Repeat("x", 1000)}
	if _, err := js.PublishMsg(t.Context(), &nats.Msg{Subject: "mb.jobs.t.a", Header: h, Data: e.Payload}); err != nil {
		t.Error(err)
	}
}

// publishRaw sends a header block as a client in any other language may write it.
func publishRaw(t *testing.T, url, subject, block, body string) {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "nats://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	head := "NATS/1.0\r\n" + block + "\r\n"
	fmt.Fprintf(conn, "CONNECT {\"headers\":true,\"verbose\":false,\"pedantic\":false}\r\nHPUB %s %d %d\r\n%s%s\r\nPING\r\n", subject, len(head), len(head)+len(body), head, body)
	lines := bufio.NewScanner(conn)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "PONG") {
			return
		}
		if strings.HasPrefix(lines.Text(), "-ERR") {
			t.Fatal(lines.Text())
		}
	}
	t.Fatalf("no answer: %v", lines.Err())
}

// A dead letter must be writable and keep everything, whatever a foreign publisher had sent.
func TestDeadLetter_survives_a_server(t *testing.T) {
	t.Parallel()
	server := testkit.NATS(t)
	js, st := stream(t, server)
	var many strings.Builder
	for i := range 200 {
		fmt.Fprintf(&many, "X-%d: %d\r\n", i, i)
	}
	tests := map[string]string{
		"none":             "",
		"repeated":         "X: 1\r\nX: 2\r\nx: 3\r\n",
		"invalid UTF-8":    "X: \xff\xfe\r\n",
		"control bytes":    "X: a\x00\x1b\x07\r\n",
		"outer blanks":     "X:   a \t \r\n",
		"names":            "a/b: 1\r\nключ: 2\r\na b: 3\r\n",
		"broker's":         "nats-rollup: all\r\nNATS-TTL: never\r\nStatus: 503\r\nnats-expected-last-sequence: 7\r\n",
		"ours":             "mb-dead-cause: joke\r\nmb-dead-raw-X: 1\r\nmb-dead-block: 99\r\nmb-dead-tombstone: dropped\r\nreason_poisoned: old\r\n",
		"200":              many.String(),
		"as large as can":  "X: " + strings.Repeat("x", 65_480) + "\r\n",
		"many large bytes": "X: " + strings.Repeat("\xff", 65_480) + "\r\n",
		"empty value":      "X:\r\nY: \r\n",
	}
	for name, block := range tests {
		publishRaw(t, server.URL(), "mb.jobs.foreign.x", block, "body "+name)
		var received *jetstream.RawStreamMsg
		testkit.Eventually(t, time.Minute, func() (err error) {
			if received, err = st.GetLastMsgForSubject(t.Context(), "mb.jobs.foreign.x"); err == nil && string(received.Data) != "body "+name {
				err = fmt.Errorf("the last message is %q", received.Data)
			}
			return err
		})
		want := schema.DeadLetter{
			Handler: "h", ID: fmt.Sprintf("seq-%d", received.Sequence), Cause: schema.CauseUndecodable, Reason: "error: bad\nheader", Stack: "goroutine 1:\n\tmain()\n",
			Attempts: 1, Deliveries: 3, Time: genTimeFixed, Stream: schema.Jobs, Subject: received.Subject, Sequence: received.Sequence,
			Header: received.Header, Payload: received.Data,
		}
		h, body := want.Encode()
		relative := "dead.jobs.h." + want.ID + ".0"
		ack, err := js.PublishMsg(t.Context(), &nats.Msg{Subject: "mb." + relative, Header: h, Data: body}, jetstream.WithExpectLastSequencePerSubject(0))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		kept, err := st.GetMsg(t.Context(), ack.Sequence)
		if err != nil {
			t.Fatal(name, err)
		}
		got, err := schema.DecodeDeadLetter(relative, kept.Header, kept.Data)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		want.Reason = "error: bad header"
		sameLetter(t, name, got, want)
	}
}
