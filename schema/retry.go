package schema

import (
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"time"
)

// RetryPolicy spaces the attempts of one message. After the n-th failed attempt the wait is
//
//	min(Base * Factor^(n-1), Max)
//
// changed by up to ±Jitter of itself. The zero value means [DefaultRetry].
type RetryPolicy struct {
	MaxAttempts int           `yaml:"max_attempts" json:"max_attempts"` // tries before the message is dead; at least 1
	Base        time.Duration `yaml:"base" json:"base"`                 // wait after the first failure; more than 0
	Factor      float64       `yaml:"factor" json:"factor"`             // growth per failure; at least 1
	Max         time.Duration `yaml:"max" json:"max"`                   // cap of the wait before jitter; 0 is uncapped
	Jitter      float64       `yaml:"jitter" json:"jitter"`             // 0 (none) to 1
}

// DefaultRetry is the policy of a target that has none: 12 attempts over about half an hour.
var DefaultRetry = RetryPolicy{MaxAttempts: 12, Base: time.Second, Factor: 2, Max: 10 * time.Minute, Jitter: 0.2}

// longest is the longest wait ever returned; an uncapped policy would overflow a Duration.
const longest = 10 * 365 * 24 * time.Hour

// BinaryBackoff returns the uncapped policy that waits base * 2^attempts after the attempts-th failure, so 2*base
// after the first, without jitter.
func BinaryBackoff(base time.Duration, maxAttempts int) RetryPolicy {
	return RetryPolicy{MaxAttempts: maxAttempts, Base: 2 * base, Factor: 2}
}

// CappedBackoff returns the policy that waits min(backoff * multiplier^(attempts-1), max) after the attempts-th
// failure, without jitter.
func CappedBackoff(backoff time.Duration, multiplier float64, max time.Duration, maxAttempts int) RetryPolicy {
	return RetryPolicy{MaxAttempts: maxAttempts, Base: backoff, Factor: multiplier, Max: max}
}

// OrDefault returns p, or [DefaultRetry] if p is the zero value.
func (p RetryPolicy) OrDefault() RetryPolicy {
	if p == (RetryPolicy{}) {
		return DefaultRetry
	}
	return p
}

// Validate reports all fields of p that make no sense. The zero value is valid.
func (p RetryPolicy) Validate() error {
	if p == (RetryPolicy{}) {
		return nil
	}
	var errs []error
	if p.MaxAttempts < 1 {
		errs = append(errs, fmt.Errorf("max_attempts is %d, must be at least 1", p.MaxAttempts))
	}
	if p.Base <= 0 {
		errs = append(errs, fmt.Errorf("base is %v, must be more than 0", p.Base))
	}
	if !(p.Factor >= 1) || math.IsInf(p.Factor, 0) {
		errs = append(errs, fmt.Errorf("factor is %v, must be at least 1", p.Factor))
	}
	if p.Max < 0 {
		errs = append(errs, fmt.Errorf("max is %v, must not be negative", p.Max))
	}
	if !(p.Jitter >= 0 && p.Jitter <= 1) {
		errs = append(errs, fmt.Errorf("jitter is %v, must be between 0 and 1", p.Jitter))
	}
	return errors.Join(errs...)
}

// Exhausted reports whether a message that has failed attempts times is dead.
func (p RetryPolicy) Exhausted(attempts int) bool { return attempts >= p.OrDefault().MaxAttempts }

// Delay returns the wait after the attempts-th failure (1 for the first). The jitter is a function of seed and
// attempts, so that asking twice gives the same answer; pass the message's id.
func (p RetryPolicy) Delay(attempts int, seed string) time.Duration {
	p, attempts = p.OrDefault(), max(attempts, 1)
	wait := float64(p.Base) * math.Pow(p.Factor, float64(attempts-1))
	if p.Max > 0 {
		wait = min(wait, float64(p.Max))
	}
	if p.Jitter > 0 {
		h := fnv.New64a()
		fmt.Fprintf(h, "%s/%d", seed, attempts)
		unit := float64(mix(h.Sum64())>>11) / (1 << 53)
		wait *= 1 + p.Jitter*(2*unit-1)
	}
	if !(wait < float64(longest)) { // also NaN
		return longest
	}
	return time.Duration(wait)
}

// mix spreads the bits of an FNV sum, whose high bits hardly depend on the last bytes (the finaliser of MurmurHash3).
func mix(x uint64) uint64 {
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	x ^= x >> 33
	return x
}
