package deadletters

import (
	"context"
	"errors"
	"fmt"

	"github.com/millbridge/millbridge/internal/killpoint"
	"github.com/millbridge/millbridge/schema"
)

// A Store is what an [Operator] needs of the database.
type Store interface {
	Unit(ctx context.Context, f func(schema.Unit) error) error
	LookupInbox(ctx context.Context, key schema.InboxKey) (schema.InboxRecord, bool, error)
}

// Tombstones is what an [Operator] needs of the DEAD stream; a [Box] has it.
type Tombstones interface {
	// Tombstone overwrites a letter; false if a tombstone is there already.
	Tombstone(ctx context.Context, letter Letter, word string) (bool, error)
}

// An Operator replays and drops letters.
type Operator struct {
	Store    Store
	Letters  Tombstones
	Subjects schema.Subjects
}

// Replay puts the letter's message back into work for the handler that gave it up: with the same idempotency key,
// metadata and payload, a new id and a fresh budget of attempts. [schema.ErrAlreadyReplayed] if somebody was quicker.
func (o *Operator) Replay(ctx context.Context, letter Letter) error {
	env, err := o.ReplayOf(letter)
	if err != nil {
		return err
	}
	key := schema.InboxKeyOf(letter.Handler, env)
	err = o.Store.Unit(ctx, func(u schema.Unit) error {
		if won, err := u.ResetForReplay(ctx, key, letter.Replay); err != nil || !won {
			return lost(err)
		}
		_, err := u.Append(ctx, []schema.Envelope{env})
		killpoint.At(killpoint.BeforeReplay)
		return err
	})
	if err != nil {
		return o.explain(ctx, letter, key, "replay", err)
	}
	killpoint.At(killpoint.AfterReplay)
	if _, err := o.Letters.Tombstone(ctx, letter, Replayed); err != nil {
		return fmt.Errorf("dead letter %s is replayed but still listed, replaying it again clears that: %w", letter.ID, err)
	}
	killpoint.At(killpoint.AfterTombstone)
	return nil
}

// Drop gives the letter's message up for good: only its tombstone is left. [schema.ErrAlreadyReplayed] if somebody has
// replayed or dropped it before.
func (o *Operator) Drop(ctx context.Context, letter Letter) error {
	if letter.Tombstone != "" {
		return already(letter, letter.Tombstone)
	}
	env, ours := o.owns(letter)
	if ours {
		key := schema.InboxKeyOf(letter.Handler, env)
		err := o.Store.Unit(ctx, func(u schema.Unit) error {
			won, err := u.Drop(ctx, key, letter.Replay)
			if err != nil || !won {
				return lost(err)
			}
			return nil
		})
		if err != nil {
			return o.explain(ctx, letter, key, "drop", err)
		}
	}
	won, err := o.Letters.Tombstone(ctx, letter, Dropped)
	switch {
	case err != nil:
		return fmt.Errorf("dead letter %s is dropped but still listed, dropping it again clears that: %w", letter.ID, err)
	case !won && !ours: // without an inbox row the stream decides
		return already(letter, "gone")
	}
	return nil
}

// ReplayOf returns the message that would be published to replay the letter. Letters of messages that cannot be read,
// and of those whose key belongs to another message, cannot be replayed.
func (o *Operator) ReplayOf(letter Letter) (schema.Envelope, error) {
	if letter.Tombstone != "" {
		return schema.Envelope{}, already(letter, letter.Tombstone)
	}
	env, err := letter.Envelope(o.Subjects)
	if err != nil {
		return schema.Envelope{}, schema.WithKind(schema.Permanent, fmt.Errorf("replay dead letter %s: %w", letter.ID, err))
	}
	if letter.Cause == schema.CauseKeyReused {
		return schema.Envelope{}, schema.WithKind(schema.Permanent, fmt.Errorf("replay dead letter %s: %w; publish it again with another key",
			letter.ID, schema.ErrKeyReused))
	}
	of := env.ID
	if env.Replay != nil {
		of = env.Replay.Of
	}
	env.ID = schema.NewID()
	env.Replay = &schema.Replay{Handler: letter.Handler, Of: of, Number: letter.Replay + 1}
	return env, nil
}

// owns reports whether the inbox row of the letter's key is about this letter.
func (o *Operator) owns(letter Letter) (schema.Envelope, bool) {
	env, err := letter.Envelope(o.Subjects)
	return env, err == nil && letter.Cause != schema.CauseKeyReused && letter.Cause != schema.CauseUndecodable
}

var errLost = errors.New("the key is not dead at this replay number")

func lost(err error) error {
	if err != nil {
		return err
	}
	return errLost
}

func already(letter Letter, word string) error {
	return fmt.Errorf("dead letter %s is %s: %w", letter.ID, word, schema.ErrAlreadyReplayed)
}

// explain says who was quicker and writes the tombstone that the other may not have come to write.
func (o *Operator) explain(ctx context.Context, letter Letter, key schema.InboxKey, what string, err error) error {
	if !errors.Is(err, errLost) {
		return fmt.Errorf("%s dead letter %s: %w", what, letter.ID, err)
	}
	rec, ok, err := o.Store.LookupInbox(ctx, key)
	if err != nil {
		return fmt.Errorf("%s dead letter %s: %w", what, letter.ID, err)
	}
	word := ""
	switch {
	case ok && rec.Replay > letter.Replay:
		word = Replayed
	case ok && rec.State == schema.InboxDropped:
		word = Dropped
	case ok && rec.State == schema.InboxDone: // the letter was written although the handler had finished
		if what == "drop" {
			_, err := o.Letters.Tombstone(ctx, letter, Dropped)
			return err
		}
		return schema.WithKind(schema.Permanent, fmt.Errorf("replay dead letter %s: its key is handled; drop it", letter.ID))
	default:
		return fmt.Errorf("%s dead letter %s: %w: try again later", what, letter.ID, errLost)
	}
	if _, err := o.Letters.Tombstone(ctx, letter, word); err != nil {
		return errors.Join(already(letter, word), err)
	}
	return already(letter, word)
}
