package jetstream

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/schema"
)

func TestReadCursor_without_stream_or_cursor(t *testing.T) {
	t.Parallel()
	b := openBroker(t)
	if c, err := readCursor(t.Context(), b.nc, "MB_JOBS", cursorSubject, time.Second); err != nil || c.Seq != 0 {
		t.Errorf("no cursor: %+v, %v", c, err)
	}
	if _, err := readCursor(t.Context(), b.nc, "NONE", cursorSubject, time.Second); codeOf(err) != codeNoStream || !strings.Contains(err.Error(), cursorSubject) {
		t.Errorf("no stream: %v", err)
	}
	w := openWriter(t, b.nc, time.Second)
	if _, err := write(t, w, 0); err != nil {
		t.Fatal(err)
	}
	if c, err := readCursor(t.Context(), b.nc, "MB_JOBS", cursorSubject, time.Second); err != nil || c.Seq == 0 || c.bad == nil || !strings.Contains(c.bad.Error(), "decode cursor") {
		t.Errorf("a cursor that is none: %+v, %v", c, err)
	}
	plain, err := nats.Connect(testkit.NATS(t, func(o *server.Options) { o.JetStream = false }).URL())
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	if _, err := readCursor(t.Context(), plain, "MB_JOBS", cursorSubject, time.Second); !errors.Is(err, errNoResponders) {
		t.Errorf("no JetStream: %v", err)
	}
}

// A server that is killed after it has stored a cursor may still have the one before it. The newer one counts, also when a
// stranger's message stands behind both.
func TestFormerCursor_is_the_last_of_ours(t *testing.T) {
	t.Parallel()
	b := openBroker(t)
	var last uint64
	for _, body := range [][]byte{
		schema.Cursor{Owner: "older", Batch: 1, Total: 1, Removed: 1}.Encode(), schema.Cursor{Owner: "newer", Batch: 2, Total: 2, Removed: 2}.Encode(), []byte("a stranger's"),
	} {
		ack, err := b.js.Publish(t.Context(), cursorSubject, body)
		if err != nil {
			t.Fatal(err)
		}
		last = ack.Sequence
	}
	c, err := formerCursor(t.Context(), b.nc, "MB_JOBS", cursorSubject, last, time.Second)
	if err != nil || c.Owner != "newer" || c.Seq != last-1 {
		t.Errorf("%+v, %v; want the newer one", c, err)
	}
	if c, err = formerCursor(t.Context(), b.nc, "MB_JOBS", cursorSubject, last-2, time.Second); err != nil || c.Seq != 0 {
		t.Errorf("%+v, %v; want none before the first", c, err)
	}
}
