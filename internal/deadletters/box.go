package deadletters

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millbridge/millbridge/schema"
)

// DefaultKeep is how long a tombstone stays where nobody says how long the inbox keeps its rows: a day longer than those
// are kept by default.
const DefaultKeep = 31 * 24 * time.Hour

// The words that tombstones say.
const (
	Replayed = "replayed"
	Dropped  = "dropped"
)

// A Box is the DEAD stream.
type Box struct {
	js       jetstream.JetStream
	subjects schema.Subjects
	keep     time.Duration
}

// New returns the box of these subjects. Its tombstones are kept for keep, which must not be shorter than the inbox keeps
// its rows; 0 means [DefaultKeep]. Who only writes letters has none.
func New(js jetstream.JetStream, subjects schema.Subjects, keep time.Duration) *Box {
	if keep <= 0 {
		keep = DefaultKeep
	}
	return &Box{js: js, subjects: subjects, keep: keep}
}

// Write keeps a letter and returns when the stream has it. A letter that is there already stays as it is. One of another
// message with the same id is kept beside it, under a longer name: ids come from publishers, and two tenants, two keys or two
// outboxes may have one in common.
func (b *Box) Write(ctx context.Context, letter schema.DeadLetter) error {
	err := b.publish(ctx, letter, 0)
	if !refused(err) {
		return err
	}
	there, err := b.last(ctx, b.subject(letter))
	if err != nil {
		return err
	}
	if sameMessage(there.DeadLetter, letter) {
		return nil
	}
	sum := sha256.Sum256(bytes.Join([][]byte{letter.Key[:], []byte(letter.Subject), letter.Payload}, []byte{0}))
	letter.Message = letter.ID
	letter.ID += "-" + strconv.FormatUint(letter.Sequence, 10) + "-" + hex.EncodeToString(sum[:4])
	if err := b.publish(ctx, letter, 0); !refused(err) {
		return err
	}
	_, err = b.last(ctx, b.subject(letter))
	return err
}

// sameMessage reports whether two letters with one name are about one message. Where a verdict is recorded under a key, the
// inbox has compared the messages before: what it takes for one is one.
func sameMessage(there, here schema.DeadLetter) bool {
	switch {
	case there.Key != here.Key, !slices.Equal(there.Header[schema.HeaderSource], here.Header[schema.HeaderSource]):
		return false
	case here.Key != [32]byte{}:
		return true
	case there.Subject != here.Subject:
		return false
	case there.Tombstone != "":
		return there.Sequence == here.Sequence
	}
	return bytes.Equal(there.Payload, here.Payload)
}

// Tombstone overwrites a letter with the word for what was done with it; false if a tombstone is there already.
//
// A server that is killed between storing a tombstone and taking out the letter has both when it is back. The letter would
// be listed for ever, so the tombstone is then written once more.
func (b *Box) Tombstone(ctx context.Context, letter Letter, word string) (bool, error) {
	err := b.bury(ctx, letter, word, letter.Seq)
	if !refused(err) {
		return err == nil, err
	}
	there, err := b.last(ctx, b.subject(letter.DeadLetter))
	if err != nil {
		return false, err
	}
	if there.Tombstone == "" {
		return false, fmt.Errorf("dead letter %s is not the one that was read", letter.ID)
	}
	stream, err := b.stream(ctx)
	if err != nil {
		return false, err
	}
	_, err = stream.GetMsg(ctx, letter.Seq)
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("read dead letter: %w", err)
	}
	return false, b.bury(ctx, letter, there.Tombstone, there.Seq)
}

// bury writes a tombstone in place of the message with this sequence and of all before it.
func (b *Box) bury(ctx context.Context, letter Letter, word string, instead uint64) error {
	mark := letter.DeadLetter
	mark.Tombstone, mark.Payload, mark.Stack = word, nil, ""
	mark.Header = map[string][]string{}
	if source, ok := letter.Header[schema.HeaderSource]; ok { // names the message together with its id
		mark.Header[schema.HeaderSource] = source
	}
	return b.publish(ctx, mark, instead, jetstream.WithMsgTTL(b.keep))
}

func (b *Box) subject(l schema.DeadLetter) string {
	return b.subjects.Dead(l.Stream, l.Handler, l.ID, l.Replay)
}

// publish writes a letter in place of the message with this sequence; 0 means that there must be none.
func (b *Box) publish(ctx context.Context, letter schema.DeadLetter, instead uint64, opts ...jetstream.PublishOpt) error {
	header, body := letter.Encode()
	msg := &nats.Msg{Subject: b.subject(letter), Header: header, Data: body}
	if instead > 0 {
		msg.Header.Set("Nats-Rollup", "sub")
	}
	opts = append(opts, jetstream.WithExpectStream(b.subjects.DeadStreamName()), jetstream.WithExpectLastSequencePerSubject(instead))
	_, err := b.js.PublishMsg(ctx, msg, opts...)
	if err != nil {
		return fmt.Errorf("write to stream %s: %w", b.subjects.DeadStreamName(), err)
	}
	return nil
}

// refused reports whether the stream said that something else is, or is about to be, at the subject.
func refused(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) &&
		(api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence || api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant)
}

// last reads what is at a letter's subject.
func (b *Box) last(ctx context.Context, subject string) (Letter, error) {
	stream, err := b.stream(ctx)
	if err != nil {
		return Letter{}, err
	}
	msg, err := stream.GetLastMsgForSubject(ctx, subject)
	if err != nil {
		return Letter{}, fmt.Errorf("read dead letter: %w", err)
	}
	return b.decode(msg)
}

func (b *Box) stream(ctx context.Context) (jetstream.Stream, error) {
	stream, err := b.js.Stream(ctx, b.subjects.DeadStreamName())
	if err != nil {
		return nil, fmt.Errorf("look up stream %s: %w", b.subjects.DeadStreamName(), err)
	}
	return stream, nil
}

func (b *Box) decode(msg *jetstream.RawStreamMsg) (Letter, error) {
	relative, ok := b.subjects.Relative(msg.Subject)
	if !ok {
		return Letter{}, fmt.Errorf("dead letter %d: subject %q has another prefix", msg.Sequence, schema.OneLine(msg.Subject))
	}
	letter, err := schema.DecodeDeadLetter(relative, msg.Header, msg.Data)
	if err != nil {
		return Letter{}, fmt.Errorf("dead letter %d: %w", msg.Sequence, err)
	}
	return Letter{DeadLetter: letter, Seq: msg.Sequence}, nil
}
