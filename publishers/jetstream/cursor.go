package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/millbridge/millbridge/internal/natswords"
	"github.com/millbridge/millbridge/schema"
)

// A storedCursor is a cursor as it stands in the stream.
type storedCursor struct {
	schema.Cursor
	Seq  uint64 // of the message; 0 if there is none
	Time time.Time
	bad  error // the message is no cursor, and Cursor is empty
}

// readCursor reads the last cursor on a subject from the stream's leader. A direct get would be answered by any
// replica, which may not have the newest one.
func readCursor(ctx context.Context, nc *nats.Conn, stream, subject string, timeout time.Duration) (storedCursor, error) {
	return getCursor(ctx, nc, stream, subject, map[string]any{"last_by_subj": subject}, timeout)
}

// formerCursor reads the cursor that was there before something that is none came to stand at sequence seq: no owner writes
// behind a stranger. A cursor takes the place of all before it, but a server that is killed in between has both. Without one
// the answer is empty.
func formerCursor(ctx context.Context, nc *nats.Conn, stream, subject string, seq uint64, timeout time.Duration) (former storedCursor, err error) {
	for {
		c, err := getCursor(ctx, nc, stream, subject, map[string]any{"seq": former.Seq + 1, "next_by_subj": subject}, timeout)
		if err != nil || c.bad != nil || c.Seq == 0 || c.Seq >= seq {
			return former, err
		}
		former = c
	}
}

func getCursor(ctx context.Context, nc *nats.Conn, stream, subject string, which map[string]any, timeout time.Duration) (storedCursor, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	request, err := json.Marshal(which)
	if err != nil {
		return storedCursor{}, err
	}
	reply, err := nc.RequestWithContext(ctx, "$JS.API.STREAM.MSG.GET."+stream, request)
	if errors.Is(err, nats.ErrNoResponders) {
		err = errNoResponders
	}
	if err != nil {
		return storedCursor{}, natswords.Explain(fmt.Errorf("read cursor %s from stream %s: %w", subject, stream, err))
	}
	c, err := decodeStoredCursor(reply.Data)
	if err != nil {
		return storedCursor{}, natswords.Explain(fmt.Errorf("read cursor %s from stream %s: %w", subject, stream, err))
	}
	return c, nil
}

// decodeStoredCursor reads the server's answer to a request for a cursor.
func decodeStoredCursor(reply []byte) (storedCursor, error) {
	var body struct {
		Error   *serverError `json:"error"`
		Message struct {
			Seq  uint64    `json:"seq"`
			Data []byte    `json:"data"`
			Time time.Time `json:"time"`
		} `json:"message"`
	}
	if err := json.Unmarshal(reply, &body); err != nil {
		return storedCursor{}, err
	}
	switch {
	case body.Error != nil && body.Error.Code == codeNoMessage:
		return storedCursor{}, nil
	case body.Error != nil:
		return storedCursor{}, body.Error
	case body.Message.Seq == 0: // else a cursor would be taken for none
		return storedCursor{}, errors.New("the answer has no sequence")
	}
	c, err := schema.DecodeCursor(body.Message.Data)
	return storedCursor{Cursor: c, Seq: body.Message.Seq, Time: body.Message.Time, bad: err}, nil
}
