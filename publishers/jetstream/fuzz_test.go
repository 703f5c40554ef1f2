package jetstream

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/millbridge/millbridge/schema"
)

// Whatever stands in the outbox is either sent as it is or can be parked.
func FuzzEncoder(f *testing.F) {
	for _, e := range []schema.Envelope{schema.NewJob("t", "a", 1), schema.NewEvent("e.f", nil)} {
		f.Add(e.Subject(), schema.EncodeHeader(e), e.Payload)
	}
	f.Add("jobs.t.a", []byte("_watermill_message_uuid: x\r\nnats-rollup: all\r\n"), []byte("p"))
	f.Add("jobs.>", []byte("_watermill_message_uuid: x\r\n"), []byte(nil))
	encoders := []*encoder{
		newEncoder(schema.Subjects{}, schema.Jobs, "outbox", 0), newEncoder(schema.Subjects{}, schema.Events, "outbox", time.Hour),
	}
	f.Fuzz(func(t *testing.T, subject string, header, payload []byte) {
		for _, enc := range encoders {
			m, err := enc.message(schema.Row{Stream: enc.stream, Subject: subject, Header: header, Payload: payload})
			if err != nil {
				var bad *rowError
				if !errors.As(err, &bad) {
					t.Fatalf("the error is %v", err)
				}
				continue
			}
			if !bytes.Equal(m.Data, payload) || m.Subject != "mb."+subject || strings.ContainsAny(m.Subject, "*> \r\n") {
				t.Fatalf("%q %q became %q %q", subject, payload, m.Subject, m.Data)
			}
			for name := range m.Header {
				if strings.HasPrefix(strings.ToLower(name), "nats-") && name != headerTTL {
					t.Fatalf("the header %q is sent", name)
				}
			}
		}
	})
}

// An answer of the server proves that something is stored, or says why it is not, or means nothing.
func FuzzAnswer(f *testing.F) {
	for _, s := range []string{
		"", `{"stream":"S","seq":7}`, `{"stream":"S","seq":7,"duplicate":true}`, `{"stream":"T","seq":7}`,
		`{"stream":"S","error":{"code":400,"err_code":10071,"description":"wrong last sequence: 7"}}`, `{"seq":-1,"stream":"S"}`, "null", "[]",
	} {
		f.Add([]byte(s), "")
		f.Add([]byte(s), "503")
	}
	f.Fuzz(func(t *testing.T, body []byte, status string) {
		a, ok := parseAnswer(&nats.Msg{Data: body, Header: nats.Header{headerStatus: {status}}}, "S")
		if !ok && (a.seq != 0 || a.err != nil) || a.err != nil && a.seq != 0 {
			t.Fatalf("%q is %+v, %v", body, a, ok)
		}
		if ok && a.seq != 0 && !bytes.Contains(bytes.ToLower(body), []byte("seq")) {
			t.Fatalf("%q stores at %d", body, a.seq)
		}
	})
}

// What a stream holds on a cursor's subject is a cursor that could have been written, or told to be none.
func FuzzStoredCursor(f *testing.F) {
	for _, s := range []string{
		`{"message":{"seq":7,"data":"eyJ2IjoxLCJvd25lciI6Im8iLCJiYXRjaCI6MCwidG90YWwiOjAsInJlbW92ZWQiOjB9","time":"2026-03-01T09:00:00Z"}}`,
		`{"error":{"code":404,"err_code":10037,"description":"no message found"}}`, `{"error":{"code":500}}`, `{"message":{"seq":7,"data":"eA=="}}`,
		`{}`, "", "null", `{"message":null}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		c, err := decodeStoredCursor(body)
		if err != nil {
			return
		}
		if (c.Seq == 0 || c.bad != nil) != (c.Owner == "") {
			t.Fatalf("%q is %+v", body, c)
		}
	})
}
