package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/millbridge/millbridge/schema"
)

const (
	headerBatchID       = "Nats-Batch-Id"
	headerBatchSequence = "Nats-Batch-Sequence"
	headerBatchCommit   = "Nats-Batch-Commit"
	headerExpectSeq     = "Nats-Expected-Last-Subject-Sequence"
	headerExpectStream  = "Nats-Expected-Stream"
	headerRollup        = "Nats-Rollup"
	headerTTL           = "Nats-TTL"
	headerStatus        = "Status"

	// maxOpen is how many batches a process keeps open in one stream. The server takes 50 from all writers together.
	maxOpen = 8

	// gapSequence is a batch sequence that never follows: the server forgets the batch and frees its place at once.
	gapSequence = "1000000"
)

// A writer writes atomic batches. It is ours rather than the client library's because nothing may be sent again
// without reading the cursor first, and because a batch must be staged while the one before it commits.
type writer struct {
	nc      *nats.Conn
	timeout time.Duration // for each answer of the server
	inbox   string
	sub     *nats.Subscription
	status  chan nats.Status
	slots   map[string]chan struct{} // by stream
	done    sync.WaitGroup

	mu   sync.Mutex
	next uint64
	open map[string]*batch // by id
}

// newWriter returns a writer for the given streams; close it.
func newWriter(nc *nats.Conn, timeout time.Duration, streams ...string) (*writer, error) {
	w := &writer{
		nc: nc, timeout: timeout, inbox: nc.NewInbox() + ".",
		open: make(map[string]*batch), slots: make(map[string]chan struct{}),
	}
	for _, s := range streams {
		w.slots[s] = make(chan struct{}, maxOpen)
	}
	var err error
	if w.sub, err = nc.Subscribe(w.inbox+"*.*", w.receive); err != nil {
		return nil, fmt.Errorf("subscribe to answers: %w", err)
	}
	w.status = nc.StatusChanged(nats.DISCONNECTED, nats.RECONNECTING, nats.CLOSED)
	w.done.Go(func() {
		for range w.status {
			w.disconnected()
		}
	})
	return w, nil
}

// maxNames is how many rows a cursor may name: what it holds of itself, and what the server takes. A name is 16 bytes of
// id and a few of number, in base64.
func (w *writer) maxNames() int {
	const fixed, name = 4 << 10, 27
	return max(1, min(schema.MaxCursorRows, int(w.nc.MaxPayload()-fixed)/name))
}

func (w *writer) close() {
	_ = w.sub.Unsubscribe() // fails only if the connection is closed
	w.nc.RemoveStatusListener(w.status)
	w.done.Wait()
}

// disconnected tells all open batches that no answer will come: the server sends it once, to a connection that is gone.
func (w *writer) disconnected() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, b := range w.open {
		select {
		case b.lost <- struct{}{}:
		default:
		}
	}
}

// receive hands an answer to the batch that waits for it. Its subject ends in the batch's id and "f" (for the first
// message) or "c" (for the commit).
func (w *writer) receive(m *nats.Msg) {
	id, which, _ := strings.Cut(strings.TrimPrefix(m.Subject, w.inbox), ".")
	w.mu.Lock()
	b := w.open[id]
	w.mu.Unlock()
	if b == nil {
		return
	}
	a, ok := parseAnswer(m, b.stream)
	if !ok {
		return // not from our stream: any subscriber of the subject may answer
	}
	ch := b.first
	if which == "c" {
		if a.err == nil && a.seq == 0 {
			return
		}
		ch = b.committed
	}
	select {
	case ch <- a:
	default: // answered before
	}
}

// An answer is what the server says to one message.
type answer struct {
	seq uint64
	err error
}

func parseAnswer(m *nats.Msg, stream string) (answer, bool) {
	if len(m.Data) == 0 {
		if m.Header.Get(headerStatus) == "503" {
			return answer{err: errNoResponders}, true
		}
		return answer{}, true // staged
	}
	var body struct {
		Stream    string       `json:"stream"`
		Seq       uint64       `json:"seq"`
		Duplicate bool         `json:"duplicate"`
		Error     *serverError `json:"error"`
	}
	if json.Unmarshal(m.Data, &body) != nil || body.Stream != stream {
		return answer{}, false
	}
	switch {
	case body.Error != nil:
		return answer{err: body.Error}, true
	case body.Duplicate: // of what? We give no ids to compare. Only the cursor tells what is stored
		return answer{err: fmt.Errorf("%w: somebody calls it a duplicate in stream %s", errUnknown, stream)}, true
	}
	return answer{seq: body.Seq}, true
}

// A batch is written by one goroutine at a time: begin, add for each row, then commit or abandon.
type batch struct {
	w         *writer
	stream    string
	cursor    string // subject
	id        string
	n         int         // messages sent
	marks     [2]string   // of the message that is being sent
	first     chan answer // to the first message
	committed chan answer
	lost      chan struct{} // no answer will come
	closed    bool
}

// batchMark is what the ids of all batches begin with that an owner writes, and nobody else's: the end of its token, which
// is random.
func batchMark(token string) string { return token[max(0, len(token)-10):] }

// begin opens a batch of an owner in a stream, waiting while too many are open. It will end with the message on cursor.
func (w *writer) begin(ctx context.Context, stream, cursor, token string) (*batch, error) {
	select {
	case w.slots[stream] <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	b := &batch{
		w: w, stream: stream, cursor: cursor,
		first: make(chan answer, 1), committed: make(chan answer, 1), lost: make(chan struct{}, 1),
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.next++
	b.id = batchMark(token) + strconv.FormatUint(w.next, 36)
	w.open[b.id] = b
	return b, nil
}

// add sends one message of the batch. A *rowError means that this message can never be sent and that nothing of it was.
func (b *batch) add(m *nats.Msg) error {
	b.mark(m)
	if b.n == 0 {
		// Only the first message asks for an answer, so that a missing stream or a full server shows at once.
		m.Reply = b.w.inbox + b.id + ".f"
		m.Header[headerExpectStream] = []string{b.stream}
	} else {
		delete(m.Header, headerExpectStream) // the header may be the first one's, with other values
	}
	return b.publish(m)
}

func (b *batch) mark(m *nats.Msg) {
	b.marks = [2]string{b.id, strconv.Itoa(b.n + 1)}
	m.Header[headerBatchID], m.Header[headerBatchSequence] = b.marks[:1:1], b.marks[1:]
}

func (b *batch) publish(m *nats.Msg) error {
	switch err := b.w.nc.PublishMsg(m); {
	case err == nil:
		b.n++
		return nil
	case errors.Is(err, nats.ErrMaxPayload):
		return &rowError{fmt.Errorf("too large: %d bytes with headers, the server takes %d", m.Size()-len(m.Subject)-len(m.Reply), b.w.nc.MaxPayload())}
	case errors.Is(err, nats.ErrBadSubject), errors.Is(err, nats.ErrBadHeaderMsg), errors.Is(err, nats.ErrInvalidMsg):
		return &rowError{fmt.Errorf("undecodable: %w", err)}
	default:
		return fmt.Errorf("%w: %w", errNoConnection, err)
	}
}

// commit writes the cursor as the batch's last message, in place of the one with sequence expect, and returns its
// sequence. Unless the error is errUnknown nothing of the batch is stored. The batch is closed in any case.
func (b *batch) commit(ctx context.Context, body []byte, expect uint64) (uint64, error) {
	seq, err := b.tryCommit(ctx, body, expect)
	if err != nil {
		b.forget()
	}
	b.close()
	return seq, err
}

func (b *batch) tryCommit(ctx context.Context, body []byte, expect uint64) (uint64, error) {
	select {
	case <-b.lost:
		return 0, errNoConnection
	default:
	}
	m := &nats.Msg{Subject: b.cursor, Reply: b.w.inbox + b.id + ".c", Data: body, Header: nats.Header{
		headerBatchCommit:  {"1"},
		headerExpectSeq:    {strconv.FormatUint(expect, 10)},
		headerExpectStream: {b.stream},
		headerRollup:       {"sub"},
	}}
	b.mark(m)
	if err := b.publish(m); err != nil {
		if fault := (*rowError)(nil); errors.As(err, &fault) {
			err = fault.err // not the fault of a row
		}
		return 0, fmt.Errorf("write the cursor: %w", err)
	}
	timeout := time.NewTimer(b.w.timeout)
	defer timeout.Stop()
	for {
		select {
		case a := <-b.committed:
			if a.err != nil {
				return 0, b.refused(a.err)
			}
			return a.seq, nil
		case a := <-b.first:
			if a.err != nil {
				return 0, a.err // without its first message a batch is never stored, whatever becomes of the commit
			}
		case <-b.lost:
			return 0, fmt.Errorf("%w: the connection was lost", errUnknown)
		case <-timeout.C:
			return 0, fmt.Errorf("%w: no answer from stream %s within %v", errUnknown, b.stream, b.w.timeout)
		case <-ctx.Done():
			return 0, fmt.Errorf("%w: %w", errUnknown, context.Cause(ctx))
		}
	}
}

// refused explains the refusal of a commit by that of the first message, which is the cause if there is one.
func (b *batch) refused(err error) error {
	select {
	case a := <-b.first:
		if a.err != nil {
			return a.err
		}
	default:
	}
	if errors.Is(err, errNoResponders) {
		return fmt.Errorf("%w: %w", errUnknown, err)
	}
	return err
}

// abandon gives the batch up; nothing of it is stored.
func (b *batch) abandon() {
	if b.closed {
		return
	}
	b.forget()
	b.close()
}

// forget frees the batch's place in the server, which otherwise keeps it for ten seconds.
func (b *batch) forget() {
	if b.n == 0 {
		return
	}
	_ = b.w.nc.PublishMsg(&nats.Msg{Subject: b.cursor, Header: nats.Header{
		headerBatchID: {b.id}, headerBatchSequence: {gapSequence},
	}}) // if it does not arrive, the server's timeout does the same
}

func (b *batch) close() {
	if b.closed {
		return
	}
	b.closed = true
	b.w.mu.Lock()
	delete(b.w.open, b.id)
	b.w.mu.Unlock()
	<-b.w.slots[b.stream]
}
