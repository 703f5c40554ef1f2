package handlers

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/millbridge/millbridge/schema"
)

// Mode says how a handler is kept from completing a key twice.
type Mode uint8

const (
	// ModeLease holds a lease on the key in the database while the handler runs and marks it done afterwards. A crash
	// between the two runs the handler again, so the other side must honour the idempotency key.
	ModeLease Mode = iota
	// ModeTx runs the handler inside the database transaction that marks the key as done: what the handler writes with
	// [Tx] commits exactly once. From its first use of the transaction on the handler should be quick: on SQLite all other
	// writers wait for it.
	ModeTx
	// ModeNone writes nothing for messages that succeed at their first delivery. For handlers that are harmless to
	// repeat by themselves: two deliveries of one message may run at the same time.
	ModeNone
)

var modeNames = [...]string{"lease", "tx", "none"}

// String returns the mode's name in configurations.
func (m Mode) String() string { return nameOf(modeNames[:], m) }

// MarshalText returns the mode's name.
func (m Mode) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText reads the mode's name; empty means [ModeLease].
func (m *Mode) UnmarshalText(text []byte) error { return parseName("mode", modeNames[:], text, m) }

// A Policy says how one target's messages are run. Its zero value is the default.
type Policy struct {
	// Retry spaces and bounds the attempts; the zero value means [schema.DefaultRetry].
	Retry schema.RetryPolicy `yaml:"retry" json:"retry"`
	// Timeout is what each attempt has before its context ends; 0 means [DefaultTimeout].
	Timeout time.Duration `yaml:"timeout" json:"timeout"`
	// Concurrency is how many handlers run at the same time in one process; 0 means [DefaultConcurrency].
	Concurrency int `yaml:"concurrency" json:"concurrency"`
	// Rate is how many handlers begin a second at most, over all processes; 0 means no limit.
	Rate float64 `yaml:"rate" json:"rate"`
	// Ordered keeps messages with the same ordering key in order, across processes and through retries: a message that
	// waits for its next attempt holds back those behind it with the same key, and no others.
	Ordered bool `yaml:"ordered" json:"ordered"`
	// Breaker stops calling what is down; its zero value never does.
	Breaker Breaker `yaml:"breaker" json:"breaker"`
	// Mode is how repeats are kept out.
	Mode Mode `yaml:"mode" json:"mode"`
	// MaxCrashes is how many deliveries in a row may end without any result (the process died, the connection was cut,
	// a stop did not wait any longer) before the message is given up as crashing; 0 means the attempts of Retry, at
	// least 5.
	MaxCrashes int `yaml:"max_crashes" json:"max_crashes"`
}

// A Breaker stops the runs of a handler, in all processes, when too many in a row have failed for a temporary reason.
// The messages wait in their stream meanwhile and lose no attempts. After a pause one message is let through: if it
// succeeds, all are; if not, there is another pause. What fails for days is disabled: its messages wait, too, and nothing
// is tried until an operator enables it.
type Breaker struct {
	// Failures is how many in a row open the breaker; 0 means that it never opens.
	Failures int `yaml:"failures" json:"failures"`
	// Cooldown is the pause before the next message is let through; 0 means [DefaultCooldown].
	Cooldown time.Duration `yaml:"cooldown" json:"cooldown"`
	// DisableAfter is for how long every run must have failed until the handler is disabled; 0 means never. The event
	// [schema.HandlerDisabled] tells of it. See [Gone] for those who need not wait for so long.
	DisableAfter time.Duration `yaml:"disable_after" json:"disable_after"`
}

// Defaults of a [Policy].
const (
	DefaultTimeout     = 30 * time.Second
	DefaultConcurrency = 10
	DefaultCooldown    = 30 * time.Second
	minMaxCrashes      = 5
)

// OrDefault returns p with all zero fields filled in.
func (p Policy) OrDefault() Policy {
	p.Retry = p.Retry.OrDefault()
	if p.Timeout == 0 {
		p.Timeout = DefaultTimeout
	}
	if p.Concurrency == 0 {
		p.Concurrency = DefaultConcurrency
	}
	if p.Breaker.Failures != 0 && p.Breaker.Cooldown == 0 {
		p.Breaker.Cooldown = DefaultCooldown
	}
	if p.MaxCrashes == 0 {
		p.MaxCrashes = max(p.Retry.MaxAttempts, minMaxCrashes)
	}
	return p
}

// Rules returns how the attempts at a message are spaced and how long each may take: as the type of its job says, if h
// knows that, else as p does.
func (p Policy) Rules(h Handler, env schema.Envelope) (retry schema.RetryPolicy, timeout time.Duration) {
	p = p.OrDefault()
	retry, timeout = p.Retry, p.Timeout
	typed, ok := h.(interface {
		Spec(action string) (schema.JobSpec, bool)
	})
	if !ok || env.Kind != schema.KindJob {
		return retry, timeout
	}
	spec, _ := typed.Spec(env.Name)
	if spec.Retry != (schema.RetryPolicy{}) {
		retry = spec.Retry
	}
	if spec.Timeout > 0 {
		timeout = spec.Timeout
	}
	return retry, timeout
}

// Validate reports all fields of p that make no sense, by the names they have in configurations.
func (p Policy) Validate() error {
	var errs []error
	if err := p.Retry.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("retry: %w", err))
	}
	if p.Timeout < 0 {
		errs = append(errs, fmt.Errorf("timeout is %v, must not be negative", p.Timeout))
	}
	if p.Concurrency < 0 {
		errs = append(errs, fmt.Errorf("concurrency is %d, must not be negative", p.Concurrency))
	}
	if !(p.Rate >= 0) || math.IsInf(p.Rate, 0) {
		errs = append(errs, fmt.Errorf("rate is %v, must not be negative", p.Rate))
	}
	if int(p.Mode) >= len(modeNames) {
		errs = append(errs, fmt.Errorf("mode is %v, must be lease, tx or none", p.Mode))
	}
	if p.Breaker.Failures < 0 {
		errs = append(errs, fmt.Errorf("breaker.failures is %d, must not be negative", p.Breaker.Failures))
	}
	if p.Breaker.Cooldown < 0 {
		errs = append(errs, fmt.Errorf("breaker.cooldown is %v, must not be negative", p.Breaker.Cooldown))
	}
	if p.Breaker.DisableAfter < 0 {
		errs = append(errs, fmt.Errorf("breaker.disable_after is %v, must not be negative", p.Breaker.DisableAfter))
	}
	if p.MaxCrashes < 0 {
		errs = append(errs, fmt.Errorf("max_crashes is %d, must not be negative", p.MaxCrashes))
	}
	return errors.Join(errs...)
}

func nameOf[T ~uint8](names []string, v T) string {
	if int(v) >= len(names) {
		return fmt.Sprintf("unknown(%d)", v)
	}
	return names[v]
}

func parseName[T ~uint8](what string, names []string, text []byte, v *T) error {
	if len(text) == 0 {
		*v = 0
		return nil
	}
	for i, name := range names {
		if string(text) == name {
			*v = T(i)
			return nil
		}
	}
	return fmt.Errorf("%s %q: want one of %q", what, schema.OneLine(string(text)), names)
}
