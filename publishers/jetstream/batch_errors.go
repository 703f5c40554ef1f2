package jetstream

import (
	"errors"
	"fmt"
)

// Codes of the server that decide what happens next (nats-server, server/errors.json).
const (
	codeTooLarge      = 10054 // message above the stream's max_msg_size or the server's max_payload
	codeWrongSequence = 10071 // the fence: somebody has written the cursor
	codeFull          = 10077 // max_msgs, max_bytes or the disk
	codeHeaderSize    = 10097 // header block above 64 KiB
	codeIncomplete    = 10176 // a message of the batch was not taken, or the batch is forgotten
	codeBatchTooLarge = 10199 // more messages than the server takes in one batch
	codeTooManyOpen   = 10210 // open batches, of this or of other writers
	codeNoMessage     = 10037
	codeNoStream      = 10059
)

var (
	// errUnknown reports a batch that may or may not be stored: only the cursor tells.
	errUnknown = errors.New("it is not known whether the batch was stored")
	// errNoResponders reports that nothing listens where a stream should.
	errNoResponders = errors.New("no stream listens on the subject, or it has no leader now")
	// errNoConnection reports a connection that is down, so that nothing was sent.
	errNoConnection = errors.New("not connected to NATS")
)

// A serverError is a refusal by the server: nothing of the batch is stored.
type serverError struct {
	Code int    `json:"err_code"`
	HTTP int    `json:"code"`
	Text string `json:"description"`
}

func (e *serverError) Error() string {
	return fmt.Sprintf("the server refused: %s (%d)", e.Text, e.Code)
}

// ServerCode returns the server's code.
func (e *serverError) ServerCode() int { return e.Code }

// codeOf returns the server's code in err, or 0.
func codeOf(err error) int {
	var refused *serverError
	if errors.As(err, &refused) {
		return refused.Code
	}
	return 0
}

// A rowError is a row that cannot be turned into a message; nothing of it was sent.
type rowError struct{ err error }

func (e *rowError) Error() string { return e.err.Error() }
func (e *rowError) Unwrap() error { return e.err }
