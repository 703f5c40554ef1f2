package kvinbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millbridge/millbridge/schema"
)

// DefaultKeep is how long records of messages that are done with are kept unless [Config] says otherwise.
const DefaultKeep = 30 * 24 * time.Hour

// A Config says where the bucket is. The zero value works.
type Config struct {
	// Subjects has the prefix that the bucket is named after.
	Subjects schema.Subjects
	// Keep is how long records are kept, but those of messages that were given up. It must be longer than a message can
	// take from its publishing to its last redelivery or replay. Default: [DefaultKeep].
	Keep time.Duration
	// Replicas of the bucket, 1 to 5. With less than 3 a lost disk loses what was handled. An existing bucket must have
	// at least as many. 0 means 1 for a new bucket and any number for an existing one.
	Replicas int
}

// Bucket returns the name of the bucket for these subjects.
func Bucket(s schema.Subjects) string { return s.StreamName("inbox") }

// Open returns the inbox in the bucket, which it makes if it is missing. A bucket that would lose or forget records is
// refused.
func Open(ctx context.Context, js jetstream.JetStream, cfg Config) (*Inbox, error) {
	if err := cfg.Subjects.Validate(); err != nil {
		return nil, schema.WithKind(schema.Permanent, fmt.Errorf("open inbox: %w", err))
	}
	if cfg.Keep <= 0 {
		cfg.Keep = DefaultKeep
	}
	bucket := Bucket(cfg.Subjects)
	stream, err := ensure(ctx, js, bucket, cfg.Replicas)
	if err != nil {
		return nil, fmt.Errorf("open inbox %s: %w", bucket, err)
	}
	return &Inbox{js: js, stream: stream, name: "KV_" + bucket, prefix: "$KV." + bucket + ".", keep: max(cfg.Keep, time.Second), held: map[string]held{}}, nil
}

func ensure(ctx context.Context, js jetstream.JetStream, bucket string, replicas int) (jetstream.Stream, error) {
	name := "KV_" + bucket
	stream, err := js.Stream(ctx, name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		stream, err = js.CreateStream(ctx, jetstream.StreamConfig{
			Name: name, Description: "Millbridge: keys that were handled", Subjects: []string{"$KV." + bucket + ".>"},
			MaxMsgsPerSubject: 1, Discard: jetstream.DiscardNew, Storage: jetstream.FileStorage, Replicas: max(replicas, 1),
			AllowRollup: true, DenyDelete: true, AllowMsgTTL: true,
			// Reads ask the leader: a follower may be behind.
			AllowDirect: false,
		})
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // another process was quicker
			stream, err = js.Stream(ctx, name)
		}
	}
	if err != nil {
		return nil, err
	}
	if faults := faultsOf(stream.CachedInfo().Config, replicas); len(faults) > 0 {
		return nil, schema.WithKind(schema.Permanent, errors.Join(faults...))
	}
	return stream, nil
}

// faultsOf says what makes a bucket lose or forget records.
func faultsOf(c jetstream.StreamConfig, replicas int) (faults []error) {
	fault := func(bad bool, format string, args ...any) {
		if bad {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	fault(c.MaxAge > 0, "it forgets records after %v: its max_age must be 0", c.MaxAge)
	fault(c.MaxMsgs > 0, "it keeps %d records only: its max_msgs must be unlimited", c.MaxMsgs)
	fault(c.Discard != jetstream.DiscardNew, "it drops old records when it is full: its discard must be new")
	fault(c.Retention != jetstream.LimitsPolicy, "its retention is %v, it must be limits", c.Retention)
	fault(c.Storage != jetstream.FileStorage, "it is in memory: its storage must be file")
	fault(!c.AllowMsgTTL, "its records cannot expire: allow_msg_ttl must be on")
	fault(c.AllowDirect, "it may answer from a server that is behind: allow_direct must be off")
	fault(c.Replicas < replicas, "it has %d replicas, less than %d", c.Replicas, replicas)
	return faults
}
