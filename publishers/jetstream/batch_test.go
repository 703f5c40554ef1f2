package jetstream

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/millbridge/millbridge/internal/testkit"
)

const cursorSubject = "mb.cursor.jobs.test.1.0"

func openWriter(t *testing.T, nc *nats.Conn, timeout time.Duration) *writer {
	t.Helper()
	w, err := newWriter(nc, timeout, "MB_JOBS", "MB_EVENTS")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.close)
	return w
}

// write writes a batch of messages with the given payload sizes and a cursor.
func write(t *testing.T, w *writer, expect uint64, sizes ...int) (uint64, error) {
	t.Helper()
	b, err := w.begin(t.Context(), "MB_JOBS", cursorSubject, rand.Text())
	if err != nil {
		t.Fatal(err)
	}
	for i, size := range sizes {
		m := &nats.Msg{Subject: fmt.Sprintf("mb.jobs.shop.n%d", i), Header: nats.Header{"_watermill_message_uuid": {fmt.Sprint(i)}}, Data: bytes.Repeat([]byte{'x'}, size)}
		if err := b.add(m); err != nil {
			b.abandon()
			return 0, err
		}
	}
	return b.commit(t.Context(), []byte("cursor"), expect)
}

func wantMessages(t *testing.T, js natsjs.JetStream, want int) {
	t.Helper()
	if got := stored(t, js, "MB_JOBS"); len(got) != want {
		t.Errorf("%d messages are stored, want %d", len(got), want)
	}
}

// wantFree reports places that are still taken in the server.
func wantFree(t *testing.T, w *writer, b *broker) {
	t.Helper()
	if n := len(w.slots["MB_JOBS"]); n != 0 || len(w.open) != 0 {
		t.Errorf("%d places and %d batches are still taken in the writer", n, len(w.open))
	}
	testkit.Eventually(t, time.Minute, func() error {
		for range 50 { // as many as the server takes at once
			id := nats.NewInbox()[7:]
			m := &nats.Msg{Subject: "mb.jobs.shop.n", Header: nats.Header{headerBatchID: {id}, headerBatchSequence: {"1"}}}
			reply, err := b.nc.RequestMsg(m, time.Second)
			if err != nil {
				return err
			}
			m.Header[headerBatchSequence] = []string{gapSequence}
			defer func() { _ = b.nc.PublishMsg(m) }()
			if len(reply.Data) > 0 {
				return fmt.Errorf("the server says %s", reply.Data)
			}
		}
		return nil
	})
}

func TestWriter_cursor_is_last_and_its_sequence_is_the_answer(t *testing.T) {
	t.Parallel()
	b := openBroker(t)
	w := openWriter(t, b.nc, 10*time.Second)
	first, err := write(t, w, 0)
	if err != nil || first != 1 {
		t.Fatalf("cursor alone: %d, %v", first, err)
	}
	second, err := write(t, w, first, 10, 10, 10)
	if err != nil || second != 5 {
		t.Fatalf("batch of three: %d, %v", second, err)
	}
	if third, err := write(t, w, second, make([]int, 999)...); err != nil || third != 1005 {
		t.Fatalf("batch of 999: %d, %v", third, err)
	}
	wantMessages(t, b.js, 1002)
	s, err := b.js.Stream(t.Context(), "MB_JOBS")
	if err != nil {
		t.Fatal(err)
	}
	if info, err := s.Info(t.Context(), natsjs.WithSubjectFilter("mb.cursor.>")); err != nil || info.State.Subjects[cursorSubject] != 1 {
		t.Errorf("%v cursors are left (%v), want 1", info.State.Subjects, err)
	}
	wantFree(t, w, b)
}

func TestWriter_a_stale_cursor_refuses_the_whole_batch(t *testing.T) {
	t.Parallel()
	b := openBroker(t)
	w := openWriter(t, b.nc, 10*time.Second)
	for _, expect := range []uint64{0, 1} {
		if _, err := write(t, w, expect); err != nil {
			t.Fatal(err)
		}
	}
	for _, expect := range []uint64{0, 1, 7} {
		_, err := write(t, w, expect, 1, 1)
		if codeOf(err) != codeWrongSequence || errors.Is(err, errUnknown) {
			t.Errorf("on %d: %v, want code %d", expect, err, codeWrongSequence)
		}
	}
	wantMessages(t, b.js, 0)
	wantFree(t, w, b)
}

func TestWriter_names_what_the_server_refuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(c *natsjs.StreamConfig)
		sizes  []int
		want   int
	}{
		"too large alone":          {func(c *natsjs.StreamConfig) { c.MaxMsgSize = 1000 }, []int{2000}, codeTooLarge},
		"too large first":          {func(c *natsjs.StreamConfig) { c.MaxMsgSize = 1000 }, []int{2000, 1}, codeTooLarge},
		"too large in the middle":  {func(c *natsjs.StreamConfig) { c.MaxMsgSize = 1000 }, []int{1, 2000, 1}, codeIncomplete},
		"full by number":           {func(c *natsjs.StreamConfig) { c.MaxMsgs = 3 }, []int{1, 1, 1, 1}, codeFull},
		"full by bytes":            {func(c *natsjs.StreamConfig) { c.MaxBytes = 3000 }, []int{1, 2900}, codeFull},
		"sealed":                   {func(c *natsjs.StreamConfig) { c.Sealed = true }, []int{1}, 10109},
		"no atomic batches":        {func(c *natsjs.StreamConfig) { c.AllowAtomicPublish = false }, []int{1}, 10174},
		"no rollup":                {func(c *natsjs.StreamConfig) { c.AllowRollup = false }, []int{1}, 10111},
		"subject of another place": {func(c *natsjs.StreamConfig) { c.Subjects = []string{"mb.cursor.jobs.>"} }, []int{1}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := openBroker(t)
			s, err := b.js.Stream(t.Context(), "MB_JOBS")
			if err != nil {
				t.Fatal(err)
			}
			cfg := s.CachedInfo().Config
			c.change(&cfg)
			if _, err := b.js.UpdateStream(t.Context(), cfg); err != nil {
				t.Fatal(err)
			}
			w := openWriter(t, b.nc, 10*time.Second)
			_, err = write(t, w, 0, c.sizes...)
			switch {
			case c.want == 0 && !errors.Is(err, errNoResponders):
				t.Errorf("got %v, want one that says that no stream listens", err)
			case codeOf(err) != c.want:
				t.Errorf("got %v, want code %d", err, c.want)
			case errors.Is(err, errUnknown):
				t.Errorf("%v is not unknown", err)
			}
			wantMessages(t, b.js, 0)
			if n := len(w.slots["MB_JOBS"]); n != 0 {
				t.Errorf("%d places are still taken", n)
			}
		})
	}
}

func TestWriter_header_block_above_64_KiB(t *testing.T) {
	t.Parallel()
	b := openBroker(t)
	w := openWriter(t, b.nc, 10*time.Second)
	batch, err := w.begin(t.Context(), "MB_JOBS", cursorSubject, rand.Text())
	if err != nil {
		t.Fatal(err)
	}
	if err := batch.add(&nats.Msg{Subject: "mb.jobs.shop.n", Header: nats.Header{"x": {strings.Repeat("y", 70_000)}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := batch.commit(t.Context(), nil, 0); codeOf(err) != codeHeaderSize {
		t.Errorf("got %v, want code %d", err, codeHeaderSize)
	}
	wantFree(t, w, b)
}

func TestWriter_a_message_that_the_client_refuses_leaves_the_batch_whole(t *testing.T) {
	t.Parallel()
	b := openBroker(t)
	w := openWriter(t, b.nc, 10*time.Second)
	batch, err := w.begin(t.Context(), "MB_JOBS", cursorSubject, rand.Text())
	if err != nil {
		t.Fatal(err)
	}
	good := func() *nats.Msg {
		return &nats.Msg{Subject: "mb.jobs.shop.n", Header: nats.Header{"_watermill_message_uuid": {"1"}}}
	}
	if err := batch.add(good()); err != nil {
		t.Fatal(err)
	}
	large := good()
	large.Data = make([]byte, 1<<20)
	var bad *rowError
	if err := batch.add(large); !errors.As(err, &bad) || !strings.Contains(err.Error(), "too large") || !strings.Contains(err.Error(), "1048576") {
		t.Fatalf("got %v, want a rowError that names size and limit", err)
	}
	subject := good()
	subject.Subject = "mb.jobs.a b"
	if err := batch.add(subject); !errors.As(err, &bad) {
		t.Fatalf("got %v, want a rowError", err)
	}
	if err := batch.add(good()); err != nil {
		t.Fatal(err)
	}
	if seq, err := batch.commit(t.Context(), nil, 0); err != nil || seq != 3 {
		t.Errorf("got %d, %v, want 3", seq, err)
	}
	wantMessages(t, b.js, 2)
}

func TestWriter_abandoned_batches_take_no_place_in_the_server(t *testing.T) {
	t.Parallel()
	b := openBroker(t)
	w := openWriter(t, b.nc, time.Minute)
	for range 200 { // four times as many as the server keeps open
		batch, err := w.begin(t.Context(), "MB_JOBS", cursorSubject, rand.Text())
		if err != nil {
			t.Fatal(err)
		}
		if err := batch.add(&nats.Msg{Subject: "mb.jobs.shop.n", Header: nats.Header{"_watermill_message_uuid": {"1"}}}); err != nil {
			t.Fatal(err)
		}
		batch.abandon()
	}
	if _, err := write(t, w, 0, 1); err != nil {
		t.Errorf("after them: %v", err)
	}
	wantMessages(t, b.js, 1)
	wantFree(t, w, b)
}

// Other writers can take all places in the server. That shows at once and by its name.
func TestWriter_too_many_open_batches(t *testing.T) {
	t.Parallel()
	b := &broker{Server: testkit.NATS(t, func(o *server.Options) { o.JetStreamLimits.MaxBatchInflightPerStream = 1 })}
	b.nc = b.Conn(t)
	b.js = testkit.JetStream(t, b.nc)
	if err := EnsureStreams(t.Context(), b.js, StreamsConfig{}); err != nil {
		t.Fatal(err)
	}
	w := openWriter(t, b.nc, 10*time.Second)
	open, err := w.begin(t.Context(), "MB_JOBS", cursorSubject, rand.Text())
	if err != nil {
		t.Fatal(err)
	}
	if err := open.add(&nats.Msg{Subject: "mb.jobs.shop.n", Header: nats.Header{"_watermill_message_uuid": {"1"}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := write(t, w, 0, 1, 1, 1); codeOf(err) != codeTooManyOpen {
		t.Errorf("got %v, want code %d", err, codeTooManyOpen)
	}
	open.abandon()
	if _, err := write(t, w, 0, 1); err != nil {
		t.Errorf("with a free place: %v", err)
	}
}

func TestWriter_waits_for_a_place_of_its_own(t *testing.T) {
	t.Parallel()
	b := openBroker(t)
	w := openWriter(t, b.nc, 10*time.Second)
	var open []*batch
	for range maxOpen {
		batch, err := w.begin(t.Context(), "MB_JOBS", cursorSubject, rand.Text())
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, batch)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := w.begin(ctx, "MB_JOBS", cursorSubject, rand.Text()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("one more: %v, want it to wait", err)
	}
	if other, err := w.begin(t.Context(), "MB_EVENTS", "mb.cursor.events.test.1.0", rand.Text()); err != nil {
		t.Errorf("in the other stream: %v", err)
	} else {
		other.abandon()
	}
	open[0].abandon()
	open[0].abandon() // twice is once
	batch, err := w.begin(t.Context(), "MB_JOBS", cursorSubject, rand.Text())
	if err != nil {
		t.Fatal(err)
	}
	batch.abandon()
}

// Without a stream, a subscriber of the subject makes the server keep silent; answers of anybody but the stream count
// for nothing.
func TestWriter_believes_only_the_stream(t *testing.T) {
	t.Parallel()
	srv := testkit.NATS(t)
	nc := srv.Conn(t)
	sub, err := nc.Subscribe("mb.>", func(m *nats.Msg) {
		for _, lie := range []string{"", "ok", `{"stream":"OTHER","seq":7}`, `{"stream":"OTHER","error":{"err_code":10071}}`, `{"stream":"MB_JOBS","seq":7,"duplicate":true}`} {
			_ = m.Respond([]byte(lie))
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	if err := nc.Flush(); err != nil { // the writer has another connection
		t.Fatal(err)
	}
	w := openWriter(t, srv.Conn(t), 300*time.Millisecond)
	if seq, err := write(t, w, 0, 1); !errors.Is(err, errUnknown) || !strings.Contains(err.Error(), "MB_JOBS") {
		t.Errorf("got %d, %v, want that the outcome is unknown, with the stream's name", seq, err)
	}
	if err := errors.Join(sub.Unsubscribe(), nc.Flush()); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if _, err := write(t, w, 0, 1); !errors.Is(err, errNoResponders) || errors.Is(err, errUnknown) {
		t.Errorf("got %v, want that no stream listens", err)
	}
	if d := time.Since(start); d > 250*time.Millisecond {
		t.Errorf("that took %v, want it at once", d)
	}
}

func TestWriter_lost_connection(t *testing.T) {
	t.Parallel()
	b := openBroker(t)
	w := openWriter(t, b.nc, 20*time.Second)
	batch, err := w.begin(t.Context(), "MB_JOBS", cursorSubject, rand.Text())
	if err != nil {
		t.Fatal(err)
	}
	if err := batch.add(&nats.Msg{Subject: "mb.jobs.shop.n", Header: nats.Header{"_watermill_message_uuid": {"1"}}}); err != nil {
		t.Fatal(err)
	}
	b.Stop()
	start := time.Now()
	_, err = batch.commit(t.Context(), nil, 0)
	if err == nil || time.Since(start) > 5*time.Second {
		t.Errorf("commit to a server that is gone: %v after %v, want an error at once", err, time.Since(start))
	}
	testkit.Eventually(t, time.Minute, func() error {
		if b.nc.IsConnected() {
			return errors.New("still connected")
		}
		return nil
	})
	if _, err := write(t, w, 0, 1); !errors.Is(err, errNoConnection) {
		t.Errorf("while down: %v, want %v", err, errNoConnection)
	}
	b.Restart()
	testkit.Eventually(t, time.Minute, func() error { return b.nc.FlushTimeout(time.Second) })
	testkit.Eventually(t, time.Minute, func() error { _, err := write(t, w, 0, 1); return err })
	wantMessages(t, b.js, 1) // nothing was kept back and sent later
}

func TestWriter_unknown_when_the_caller_gives_up(t *testing.T) {
	t.Parallel()
	b := openBroker(t)
	w := openWriter(t, b.nc, 10*time.Second)
	batch, err := w.begin(t.Context(), "MB_JOBS", cursorSubject, rand.Text())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := batch.commit(ctx, nil, 0); err != nil && !errors.Is(err, errUnknown) {
		t.Errorf("got %v, want that the outcome is unknown", err)
	}
}
