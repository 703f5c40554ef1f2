package jetstream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millbridge/millbridge/internal/natswords"
	"github.com/millbridge/millbridge/schema"
)

const (
	// GuardName is the durable consumer on all cursors of the JOBS stream. It is never pulled: it is there so that the
	// server refuses any other consumer that would eat cursors.
	GuardName = "mb-cursor-guard"

	minServer   = "2.12" // the first version with atomic batches
	minAPILevel = 2

	codeNotUnfiltered = 10099 // a work queue has a consumer without a filter
	codeNotUnique     = 10100 // a work queue has a consumer with an overlapping filter
)

// ErrStreams reports streams or a server that cannot keep the promise; the text names each difference.
var ErrStreams = errors.New("the streams are not usable")

// StreamsConfig says how missing streams are created.
type StreamsConfig struct {
	Subjects schema.Subjects
	// Replicas of each stream, 1 to 5. With less than 3 a lost disk loses messages. Existing streams must have at
	// least as many. 0 means 1 for new streams and any number for existing ones.
	Replicas int
	// MaxBytes limits each new stream; a full stream makes rows wait in the outbox. 0 means no limit.
	MaxBytes int64
	Logger   *slog.Logger // nil logs nothing

	maxPayload int64 // of the server; 0 if unknown
}

// EnsureStreams creates the streams JOBS, EVENTS and DEAD and the cursor guard where they are missing, and checks what
// is there, as the server reports it. It switches on features that an existing stream lacks and that change nothing
// for the messages in it; every other difference that could lose, reorder or hide a message is an [ErrStreams] that
// lists them all. It never changes a limit and never deletes anything.
func EnsureStreams(ctx context.Context, js jetstream.JetStream, cfg StreamsConfig) error {
	if err := cfg.Subjects.Validate(); err != nil {
		return fmt.Errorf("ensure streams: %w", err)
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if err := checkServer(ctx, js); err != nil {
		return fmt.Errorf("ensure streams: %w", err)
	}
	cfg.maxPayload = js.Conn().MaxPayload()
	var errs []error
	for _, want := range wantedStreams(cfg) {
		if err := ensureStream(ctx, js, want, cfg); err != nil {
			errs = append(errs, fmt.Errorf("ensure stream %s: %w", want.Name, err))
		}
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	if err := ensureGuard(ctx, js, cfg.Subjects); err != nil {
		return fmt.Errorf("ensure consumer %s: %w", GuardName, err)
	}
	return nil
}

const (
	// A connection that looks open and is dead is given up after the third ping without an answer: half a minute.
	pingInterval = 10 * time.Second
	pingsOut     = 2
	// writeTimeout is how long a write may be stuck in a connection that takes no more bytes.
	writeTimeout = 20 * time.Second
)

// ConnectOptions are what a connection needs that a [Forwarder] is to use: it reconnects for ever, also to a server that
// does not let it in, it never keeps a message back to send it after the caller was told that it failed, and it notices
// within half a minute that the other side is gone without a word.
func ConnectOptions() []nats.Option {
	return []nats.Option{
		nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1), nats.IgnoreAuthErrorAbort(), nats.ReconnectBufSize(-1),
		nats.PingInterval(pingInterval), nats.MaxPingsOutstanding(pingsOut), nats.FlusherTimeout(writeTimeout), natswords.Dialer(),
	}
}

func checkServer(ctx context.Context, js jetstream.JetStream) error {
	info, err := js.AccountInfo(ctx)
	if err != nil {
		return natswords.ExplainOn(js.Conn(), fmt.Errorf("ask the server for its version: %w", err))
	}
	version := js.Conn().ConnectedServerVersion()
	if info.API.Level < minAPILevel || !atLeast(version, minServer) {
		return fmt.Errorf("%w: nats-server %s (JetStream API level %d) has no atomic batches; %s or newer is needed",
			ErrStreams, version, info.API.Level, minServer)
	}
	return nil
}

// atLeast compares the first two numbers of two versions. A version that cannot be read passes: the API level decides.
func atLeast(version, least string) bool {
	number := func(s string) (int, bool) {
		parts := strings.SplitN(strings.TrimPrefix(s, "v"), ".", 3)
		if len(parts) < 2 {
			return 0, false
		}
		major, err1 := strconv.Atoi(parts[0])
		minor, err2 := strconv.Atoi(parts[1])
		return major*1000 + minor, err1 == nil && err2 == nil
	}
	have, ok := number(version)
	want, _ := number(least)
	return !ok || have >= want
}

// wantedStreams returns the configuration of the three streams.
func wantedStreams(cfg StreamsConfig) []jetstream.StreamConfig {
	s := cfg.Subjects
	base := func(name, description string, subjects ...string) jetstream.StreamConfig {
		for i := range subjects {
			subjects[i] = s.Full(subjects[i])
		}
		return jetstream.StreamConfig{
			Name: name, Description: description, Subjects: subjects,
			Storage: jetstream.FileStorage, Discard: jetstream.DiscardNew, AllowRollup: true,
			Replicas: max(cfg.Replicas, 1), MaxBytes: maxBytes(cfg.MaxBytes),
			MaxMsgs: -1, MaxConsumers: -1, MaxMsgsPerSubject: -1, MaxMsgSize: -1,
		}
	}
	jobs := base(s.StreamName(schema.Jobs), "Millbridge jobs and replays", "jobs.>", "replay.>", "cursor.jobs.>")
	if most := cfg.maxPayload - schema.LetterRoom; most > schema.LetterRoom {
		jobs.MaxMsgSize = int32(min(most, math.MaxInt32))
	}
	jobs.Retention, jobs.AllowAtomicPublish = jetstream.WorkQueuePolicy, true

	events := base(s.StreamName(schema.Events), "Millbridge events", "events.>", "cursor.events.>")
	events.MaxMsgSize = jobs.MaxMsgSize
	events.Retention, events.AllowAtomicPublish, events.AllowMsgTTL = jetstream.LimitsPolicy, true, true

	dead := base(s.DeadStreamName(), "Millbridge dead letters", "dead.>")
	dead.Retention, dead.AllowMsgTTL = jetstream.LimitsPolicy, true // only tombstones carry a TTL
	return []jetstream.StreamConfig{jobs, events, dead}
}

func maxBytes(n int64) int64 {
	if n <= 0 {
		return -1
	}
	return n
}

func ensureStream(ctx context.Context, js jetstream.JetStream, want jetstream.StreamConfig, cfg StreamsConfig) error {
	stream, err := js.Stream(ctx, want.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		stream, err = js.CreateStream(ctx, want)
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // another process was quicker
			stream, err = js.Stream(ctx, want.Name)
		} else if err == nil {
			cfg.Logger.InfoContext(ctx, "created stream", "stream", want.Name, "replicas", want.Replicas)
		}
	}
	if err != nil {
		return err
	}
	have := stream.CachedInfo().Config
	if faults := streamFaults(have, want, cfg.Replicas, cfg.maxPayload); len(faults) > 0 {
		return &StreamError{Stream: want.Name, Faults: faults}
	}
	changed := have
	changed.AllowRollup = have.AllowRollup || want.AllowRollup
	changed.AllowAtomicPublish = have.AllowAtomicPublish || want.AllowAtomicPublish
	changed.AllowMsgTTL = have.AllowMsgTTL || want.AllowMsgTTL
	if switches(changed) != switches(have) {
		if stream, err = js.UpdateStream(ctx, changed); err != nil {
			return fmt.Errorf("switch on what is missing: %w", err)
		}
		have = stream.CachedInfo().Config
		cfg.Logger.InfoContext(ctx, "switched on stream features", "stream", want.Name, "features", switches(want))
	}
	if missing := switches(want) &^ switches(have); missing != 0 {
		return &StreamError{Stream: want.Name, Faults: []string{fmt.Sprintf("the server did not take over %v; "+
			"nats-server %s or newer is needed", missing, minServer)}}
	}
	return nil
}

// A StreamError lists what is wrong with an existing stream. It wraps [ErrStreams].
type StreamError struct {
	Stream string
	Faults []string
}

func (e *StreamError) Error() string {
	return fmt.Sprintf("%v: stream %s: %s. Change the stream by hand, or choose another prefix",
		ErrStreams, e.Stream, strings.Join(e.Faults, "; "))
}

// Unwrap returns [ErrStreams].
func (e *StreamError) Unwrap() error { return ErrStreams }

// feature is a set of stream features that are switched on for ever.
type feature uint8

const (
	featureRollup feature = 1 << iota
	featureAtomic
	featureTTL
)

func (f feature) String() string {
	var names []string
	for i, name := range []string{"allow_rollup_hdrs", "allow_atomic", "allow_msg_ttl"} {
		if f&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

func switches(c jetstream.StreamConfig) feature {
	var f feature
	if c.AllowRollup {
		f |= featureRollup
	}
	if c.AllowAtomicPublish {
		f |= featureAtomic
	}
	if c.AllowMsgTTL {
		f |= featureTTL
	}
	return f
}

// streamFaults lists the differences that would lose, reorder or hide messages.
func streamFaults(have, want jetstream.StreamConfig, replicas int, maxPayload int64) []string {
	var faults []string
	fault := func(bad bool, format string, args ...any) {
		if bad {
			faults = append(faults, fmt.Sprintf(format, args...))
		}
	}
	fault(have.Mirror != nil, "it is a mirror of another stream")
	fault(len(have.Sources) > 0, "it has sources: messages of other streams would come in, past all checks")
	fault(have.Retention != want.Retention, "retention is %v, want %v", have.Retention, want.Retention)
	fault(have.Discard != want.Discard, "discard is %v, want %v: a full stream would drop old messages", have.Discard, want.Discard)
	fault(have.MaxAge != 0, "max_age is %v, want none: messages and idle cursors would age out", have.MaxAge)
	fault(have.MaxMsgsPerSubject > 0,
		"max_msgs_per_subject is %d, want none: messages would push others out, or be refused although there is room", have.MaxMsgsPerSubject)
	fault(have.Storage != want.Storage, "storage is %v, want %v", have.Storage, want.Storage)
	fault(have.Replicas < replicas, "replicas is %d, want %d or more, as nats.replicas (Replicas in Go) asks for", have.Replicas, replicas)
	fault(have.NoAck, "no_ack is set: the server would not confirm what it stores")
	fault(have.Sealed, "it is sealed")
	fault(have.DenyPurge, "deny_purge is set: cursors could not replace each other")
	fault(have.SubjectTransform != nil, "it has a subject transform")
	fault(have.AllowMsgCounter, "allow_msg_counter is set")
	fault(have.PersistMode == jetstream.AsyncPersistMode, "persist_mode is async: what the server confirms could be lost")
	fault(have.ConsumerLimits.InactiveThreshold > 0,
		"consumer_limits.inactive_threshold is %v, want none: idle consumers would vanish", have.ConsumerLimits.InactiveThreshold)
	fault(want.Retention == jetstream.WorkQueuePolicy && have.AllowMsgTTL, "allow_msg_ttl is set: jobs could age out unhandled")
	fault(have.SubjectDeleteMarkerTTL > 0, "subject_delete_marker_ttl is %v, want none: the server would put messages of its own among ours", have.SubjectDeleteMarkerTTL)
	fault(isDead(want) && have.MaxMsgSize > 0 && int64(have.MaxMsgSize) < maxPayload,
		"max_msg_size is %d, want none: a dead letter is larger than its message", have.MaxMsgSize)
	for _, s := range want.Subjects {
		fault(!Covers(have.Subjects, s), "subject %s is missing", s)
	}
	return faults
}

// isDead tells the stream of dead letters, the only one that no batch is written to.
func isDead(want jetstream.StreamConfig) bool { return !want.AllowAtomicPublish }

// CheckStream returns a [*StreamError] if one of our streams, as the server reports it, can lose, reorder or hide
// messages, or lacks a feature. Names that are not ours are no error.
func CheckStream(have jetstream.StreamConfig, subjects schema.Subjects, maxPayload int64) error {
	for _, want := range wantedStreams(StreamsConfig{Subjects: subjects}) {
		if want.Name != have.Name {
			continue
		}
		faults := streamFaults(have, want, 0, maxPayload)
		if missing := switches(want) &^ switches(have); missing != 0 {
			faults = append(faults, fmt.Sprintf("%v is not set", missing))
		}
		if len(faults) > 0 {
			return &StreamError{Stream: have.Name, Faults: faults}
		}
	}
	return nil
}

// CheckStreams looks at the three streams and the cursor guard as [EnsureStreams] does, and changes nothing.
func CheckStreams(ctx context.Context, js jetstream.JetStream, subjects schema.Subjects) error {
	var errs []error
	for _, want := range wantedStreams(StreamsConfig{Subjects: subjects}) {
		stream, err := js.Stream(ctx, want.Name)
		if err == nil {
			err = CheckStream(stream.CachedInfo().Config, subjects, js.Conn().MaxPayload())
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("check stream %s: %w", want.Name, err))
		}
	}
	if len(errs) == 0 {
		errs = append(errs, CheckGuard(ctx, js, subjects))
	}
	return errors.Join(errs...)
}

// Covers reports whether one of the subjects, which may have wildcards, matches all that s matches; s ends in ">".
func Covers(subjects []string, s string) bool {
	want := strings.Split(s, ".")
	for _, have := range subjects {
		tokens := strings.Split(have, ".")
		ok := len(tokens) <= len(want)
		for i, t := range tokens {
			if !ok || t == ">" {
				break
			}
			ok = t == want[i] || t == "*" && want[i] != ">"
		}
		if ok && (tokens[len(tokens)-1] == ">") {
			return true
		}
	}
	return false
}

func guardConfig(s schema.Subjects) jetstream.ConsumerConfig {
	return jetstream.ConsumerConfig{
		Durable: GuardName, Description: "keeps other consumers away from cursors; never pull it",
		FilterSubject: s.Full("cursor.>"), AckPolicy: jetstream.AckExplicitPolicy, DeliverPolicy: jetstream.DeliverAllPolicy,
	}
}

// ensureGuard makes the guard if it is missing. It looks first: to create what is there is a write to a server.
func ensureGuard(ctx context.Context, js jetstream.JetStream, s schema.Subjects) error {
	err := CheckGuard(ctx, js, s)
	if !errors.Is(err, jetstream.ErrConsumerNotFound) {
		return err
	}
	_, err = js.CreateConsumer(ctx, s.StreamName(schema.Jobs), guardConfig(s))
	var refused *jetstream.APIError
	switch {
	case errors.Is(err, jetstream.ErrConsumerExists): // somebody was quicker
		return CheckGuard(ctx, js, s)
	case errors.As(err, &refused) && (refused.ErrorCode == codeNotUnfiltered || refused.ErrorCode == codeNotUnique):
		return fmt.Errorf("%w: another consumer covers %s: %w", ErrStreams, s.Full("cursor.>"), err)
	}
	return err
}

// CheckGuard reports a cursor guard that is missing or that does not guard.
func CheckGuard(ctx context.Context, js jetstream.JetStream, s schema.Subjects) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	stream := s.StreamName(schema.Jobs)
	consumer, err := js.Consumer(ctx, stream, GuardName)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		return fmt.Errorf("%w: consumer %s of stream %s is missing: another consumer could eat cursors: %w", ErrStreams, GuardName, stream, err)
	}
	if err != nil {
		return fmt.Errorf("look for consumer %s of stream %s: %w", GuardName, stream, err)
	}
	have, want := consumer.CachedInfo().Config, guardConfig(s)
	if have.FilterSubject != want.FilterSubject || have.AckPolicy != want.AckPolicy || have.InactiveThreshold != 0 ||
		have.MaxDeliver > 0 || have.DeliverSubject != "" {
		return fmt.Errorf("%w: consumer %s of stream %s is not as it was created; delete it and start again", ErrStreams, GuardName, stream)
	}
	return nil
}
