package peer

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/millbridge/millbridge/schema"
)

var (
	errReused = errors.New("the id was used for another message")
	errBusy   = errors.New("the message is being stored")
)

// A Store puts a message that the bridge called from has sent into the outbox, unless it did so before. It returns after
// the commit. existing reports that the message was there.
type Store func(ctx context.Context, from string, env schema.Envelope) (existing bool, err error)

// StoreIn returns a store in a database: postgres.Store or sqlite.Store. nudge wakes the forwarder after a commit; it may
// be nil.
func StoreIn(database interface {
	Unit(ctx context.Context, f func(schema.Unit) error) error
}, nudge func(),
) Store {
	return func(ctx context.Context, from string, env schema.Envelope) (existing bool, err error) {
		err = database.Unit(ctx, func(u schema.Unit) error {
			existing = false // a unit may run again
			res, err := u.Claim(ctx, run(from, env))
			if err != nil {
				return err
			}
			switch res.Claim {
			case schema.ClaimRun:
				receipts, err := u.Append(ctx, []schema.Envelope{adopted(from, env)})
				existing = err == nil && receipts[0].Existing // its key was there: two targets of the sender may be one here
				return err
			case schema.ClaimDone:
				existing = true
				return nil
			case schema.ClaimReused:
				return schema.WithKind(schema.Permanent, errReused)
			}
			return schema.WithKind(schema.Temporary, errBusy)
		})
		if err == nil && !existing && nudge != nil {
			nudge()
		}
		return existing && err == nil, err
	}
}

// run is the inbox's record of a message that was received: it says that the id of this sender, source and tenant was published.
func run(from string, env schema.Envelope) schema.Run {
	return schema.Run{
		Key:       schema.InboxKey{Handler: "mb-peer-" + from, Source: env.Source, Tenant: env.Tenant, Key: env.ID},
		Owner:     schema.NewID(),
		MessageID: env.ID,
		BodyHash:  content(env),
	}
}

// content tells whether two messages with the same id are the same. It covers where the message goes, which the body's
// own hash leaves out.
func content(env schema.Envelope) [32]byte {
	body := env.BodyHash()
	return sha256.Sum256(append(body[:], env.Type()...))
}

// adopted is the message as it is published here.
func adopted(from string, env schema.Envelope) schema.Envelope {
	env.Key = scoped(from, env.Source, env.IdempotencyKey())
	return env
}

// scoped makes a key of another bridge one that no message of this bridge, or of a third one, has.
func scoped(from, source, key string) string {
	hash := sha256.Sum256([]byte(source))
	if s := from + ":" + hex.EncodeToString(hash[:5]) + ":" + key; utf8.RuneCountInString(s) <= schema.MaxKeyChars {
		return s
	}
	hash = sha256.Sum256(fmt.Appendf(nil, "%s\x00%s", source, key))
	return from + ":" + hex.EncodeToString(hash[:])
}
