package subscribers

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/millbridge/millbridge/schema"
)

// Config says what a [Subscriber] takes and how. Stream is required; the zero value of all other fields works.
type Config struct {
	// Stream is the name of the JetStream stream that all consumers belong to.
	Stream string
	// Consumer names the durable consumer of a topic and what it takes. The default is PerTopic("").
	Consumer func(topic string) ConsumerSpec
	// MaxInFlight is how many messages of one subscription may be handed out and not yet settled. The default is 16.
	MaxInFlight int
	// Order keeps messages that belong together in the stream's order. The default is none.
	Order *Order
	// AckWait is how long the server waits for a sign of life before it hands a message to somebody else. It is sent
	// every third of it. The default is 30 seconds.
	AckWait time.Duration
	// DoubleAck waits until the server has confirmed an ack. Use it where nothing else would notice that a message
	// comes again; it costs a round trip, which messages that are acked at the same time share.
	DoubleAck bool
	// Bare leaves the messages without metadata, for receivers that read the [Delivery] instead. The id is there if the
	// message has one under Watermill's own name.
	Bare bool
	// Heartbeat is how often the server shows that it still knows an idle subscription; after two of them without a
	// word the subscription starts anew. The default is 5 seconds.
	Heartbeat time.Duration
	// CloseTimeout is how long Close waits for messages that are being handled. The default is 30 seconds.
	CloseTimeout time.Duration
	// Logger receives changes of state. The default discards them.
	Logger *slog.Logger
}

// ConsumerSpec describes one durable consumer.
type ConsumerSpec struct {
	Durable string   // its name; subscribers that use the same one share its messages
	Filters []string // subjects it takes; at least one, not overlapping
	Start   Start    // where it begins when it does not exist yet
	// Metadata is set on the consumer beside what others have set.
	Metadata map[string]string
}

// Start says where a consumer that does not exist yet begins. The zero value is the oldest message in the stream.
type Start struct {
	New bool      // only messages that are stored from now on
	At  time.Time // only messages that were stored at or after this time
}

// PerTopic returns the function that reads each topic as a subject and gives it a consumer of its own, named after the
// group and the topic.
func PerTopic(group string) func(topic string) ConsumerSpec {
	return func(topic string) ConsumerSpec {
		return ConsumerSpec{Durable: durableName(group, topic), Filters: []string{topic}}
	}
}

// durableName joins group and topic with what a consumer's name may not hold replaced. A hash keeps names apart that
// would become the same.
func durableName(group, topic string) string {
	name := strings.Map(func(r rune) rune {
		if r < 0x80 && isNameByte(byte(r)) {
			return r
		}
		return '-'
	}, group+"_"+topic)
	sum := sha256.Sum256([]byte(group + "\x00" + topic))
	return name[:min(len(name), 100)] + "_" + hex.EncodeToString(sum[:6])
}

func isNameByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_'
}

func (s ConsumerSpec) validate() error {
	var errs []error
	if s.Durable == "" || len(s.Durable) > 255 || strings.ContainsFunc(s.Durable, func(r rune) bool {
		return r >= 0x80 || !isNameByte(byte(r))
	}) {
		errs = append(errs, fmt.Errorf("durable %q: want 1 to 255 letters, digits, '-' and '_'", schema.OneLine(s.Durable)))
	}
	if len(s.Filters) == 0 {
		errs = append(errs, errors.New("filters: at least one subject is needed"))
	}
	for i, f := range s.Filters {
		if !isFilter(f) {
			errs = append(errs, fmt.Errorf("filter %q is not a subject", schema.OneLine(f)))
		}
		for _, other := range s.Filters[:i] {
			if overlap(f, other) {
				errs = append(errs, fmt.Errorf("filters %q and %q overlap", schema.OneLine(other), schema.OneLine(f)))
			}
		}
	}
	if s.Start.New && !s.Start.At.IsZero() {
		errs = append(errs, errors.New("start: either new or at a time"))
	}
	return errors.Join(errs...)
}

func (c Config) validate() error {
	var errs []error
	if c.Stream == "" {
		errs = append(errs, errors.New("stream: a name is needed"))
	}
	if c.MaxInFlight < 0 {
		errs = append(errs, fmt.Errorf("max_in_flight is %d, must not be negative", c.MaxInFlight))
	}
	if err := c.Order.validate(); err != nil {
		errs = append(errs, err)
	}
	for _, d := range []struct {
		name  string
		value time.Duration
		least time.Duration
	}{
		{"ack_wait", c.AckWait, 100 * time.Millisecond},
		{"heartbeat", c.Heartbeat, 100 * time.Millisecond},
		{"close_timeout", c.CloseTimeout, 0},
	} {
		if d.value != 0 && d.value < d.least {
			errs = append(errs, fmt.Errorf("%s is %v, must be at least %v", d.name, d.value, d.least))
		}
	}
	return errors.Join(errs...)
}

func (c Config) withDefaults() Config {
	if c.Consumer == nil {
		c.Consumer = PerTopic("")
	}
	if c.MaxInFlight == 0 {
		c.MaxInFlight = 16
	}
	if c.AckWait == 0 {
		c.AckWait = 30 * time.Second
	}
	c.Order = c.Order.withDefaults(c.AckWait)
	if c.Heartbeat == 0 {
		c.Heartbeat = 5 * time.Second
	}
	if c.CloseTimeout == 0 {
		c.CloseTimeout = 30 * time.Second
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}
