package cases

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/schema"
)

// What the streams take from a foreign publisher must fit into a dead letter, with its story.
func TestC10_largest_foreign_message(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		run(t, w.open(t, handlers.Target{Name: "a", Handler: &recorder{}}))
		js := testkit.JetStream(t, w.conn)
		stream, err := js.Stream(t.Context(), schema.Subjects{}.StreamName(schema.Jobs))
		if err != nil {
			t.Fatal(err)
		}
		most := int(stream.CachedInfo().Config.MaxMsgSize)
		if most < schema.DefaultPayload+schema.MaxHeaderBytes {
			t.Fatalf("messages of %d bytes are taken: less than what may be published", most)
		}
		msg := nats.NewMsg("mb.jobs.a.do")
		msg.Header["X"] = []string{"1", "2"} // twice: cannot be read as one of ours
		head := len("NATS/1.0\r\nX: 1\r\nX: 2\r\n\r\n")
		msg.Data = bytes.Repeat([]byte{0xff}, most-head+1)
		var api *jetstream.APIError
		if _, err := js.PublishMsg(t.Context(), msg); !errors.As(err, &api) {
			t.Errorf("a byte more than the limit: %v", err)
		}
		msg.Data = msg.Data[1:]
		if _, err := js.PublishMsg(t.Context(), msg); err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, 2*time.Minute, func() error {
			if n := len(w.dead(t)); n != 1 {
				return fmt.Errorf("%d dead letters", n)
			}
			return nil
		})
		l := w.dead(t)[0]
		if l.Cause != schema.CauseUndecodable || !bytes.Equal(l.Payload, msg.Data) || fmt.Sprint(l.Header["X"]) != "[1 2]" {
			t.Errorf("the letter has cause %s, %d bytes and the headers %v", l.Cause, len(l.Payload), l.Header)
		}
	})
}
