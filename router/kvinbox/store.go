package kvinbox

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millbridge/millbridge/schema"
)

// An entry is a key's record at one revision.
type entry struct {
	row      schema.InboxRow
	found    bool
	revision uint64 // that the next write replaces; 0 if nothing was ever there
}

func (in *Inbox) subject(key schema.InboxKey) string {
	hash := key.Hash()
	return in.prefix + hex.EncodeToString(hash[:])
}

// read returns the record of a key; not found if there is none, or a mark that one was deleted.
func (in *Inbox) read(ctx context.Context, key schema.InboxKey) (entry, error) {
	msg, err := in.stream.GetLastMsgForSubject(ctx, in.subject(key))
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return entry{}, nil
	case err != nil:
		return entry{}, fmt.Errorf("read from %s: %w", in.name, outage(err))
	case len(msg.Data) == 0:
		return entry{revision: msg.Sequence}, nil
	}
	row, err := decode(msg.Data, msg.Time.UTC())
	if err != nil {
		return entry{}, fmt.Errorf("read %s from %s: %w", in.subject(key), in.name, err)
	}
	row.Key = key
	return entry{row, true, msg.Sequence}, nil
}

// write replaces revision with row; errOvertaken if something else is there, or is about to be.
func (in *Inbox) write(ctx context.Context, row schema.InboxRow, revision uint64) (uint64, error) {
	body, err := encode(row)
	if err != nil {
		return 0, err
	}
	opts := []jetstream.PublishOpt{jetstream.WithExpectStream(in.name), jetstream.WithExpectLastSequencePerSubject(revision)}
	if row.State != schema.InboxDead { // whose letter may still be replayed
		opts = append(opts, jetstream.WithMsgTTL(in.keep))
	}
	ack, err := in.js.PublishMsg(ctx, &nats.Msg{Subject: in.subject(row.Key), Data: body}, opts...)
	if err == nil {
		return ack.Sequence, nil
	}
	var api *jetstream.APIError
	if errors.As(err, &api) && (api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence || api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant) {
		return 0, errOvertaken
	}
	return 0, fmt.Errorf("write to %s: %w", in.name, outage(err))
}

// outage marks err as one that ends by itself, unless the server has refused what it was asked for.
func outage(err error) error {
	var api *jetstream.APIError
	if errors.As(err, &api) && api.Code < 500 {
		return err
	}
	return &awayError{err}
}

// awayError is [schema.ErrUnavailable], but does not speak of a database.
type awayError struct{ err error }

func (e *awayError) Error() string        { return e.err.Error() }
func (e *awayError) Is(target error) bool { return target == schema.ErrUnavailable }
func (e *awayError) Unwrap() error        { return e.err }

var errOvertaken = errors.New("another write came first")

// tries bounds how often a write that was overtaken is made again. Each time another one has got through.
const tries = 20

// change reads a key's record and writes what decide makes of it, until no other write comes between. decide says with
// write whether there is something to write.
func (in *Inbox) change(ctx context.Context, key schema.InboxKey, decide func(entry) (row schema.InboxRow, write bool, err error)) (entry, error) {
	for n := range tries {
		if n > 1 { // the write that came first may still be on its way to the other servers
			select {
			case <-ctx.Done():
				return entry{}, fmt.Errorf("write to %s: %w", in.name, ctx.Err())
			case <-time.After(time.Duration(n) * time.Millisecond):
			}
		}
		e, err := in.read(ctx, key)
		if err != nil {
			return entry{}, err
		}
		row, write, err := decide(e)
		if err != nil || !write {
			return entry{row, e.found, e.revision}, err
		}
		revision, err := in.write(ctx, row, e.revision)
		if !errors.Is(err, errOvertaken) {
			return entry{row, true, revision}, err
		}
	}
	return entry{}, schema.WithKind(schema.Temporary, fmt.Errorf("write to %s: %w %d times", in.name, errOvertaken, tries))
}

// now returns the server's time if it decides what may be done with a record, else that of the record.
func (in *Inbox) now(ctx context.Context, row schema.InboxRow, owner string) (time.Time, error) {
	if row.State != schema.InboxRunning || (row.LeaseOwner == "" || row.LeaseOwner == owner) && row.NextTry.IsZero() {
		return row.UpdatedAt, nil
	}
	info, err := in.stream.Info(ctx)
	if err != nil {
		return time.Time{}, fmt.Errorf("ask for the time of %s: %w", in.name, outage(err))
	}
	return info.TimeStamp.UTC(), nil
}
