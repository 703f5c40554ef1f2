package schema_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/millbridge/millbridge/schema"
	"pgregory.net/rapid"
)

func TestRetryPolicy_default(t *testing.T) {
	t.Parallel()
	p := schema.RetryPolicy{}.OrDefault()
	if p != (schema.RetryPolicy{MaxAttempts: 12, Base: time.Second, Factor: 2, Max: 10 * time.Minute, Jitter: 0.2}) {
		t.Errorf("the default is %+v", p)
	}
	if p.Exhausted(11) || !p.Exhausted(12) || !p.Exhausted(13) {
		t.Error("12 attempts: the 12th failure is the last")
	}
	p.Jitter = 0
	var total time.Duration
	for n := 1; n < 12; n++ {
		total += p.Delay(n, "x")
	}
	if want := (1+2+4+8+16+32+64+128+256+512)*time.Second + 10*time.Minute; total != want {
		t.Errorf("11 waits take %v, want %v", total, want)
	}
}

func TestRetryPolicy_binary_formula(t *testing.T) {
	t.Parallel()
	p := schema.BinaryBackoff(3*time.Second, 40)
	for n, want := range map[int]time.Duration{1: 6 * time.Second, 2: 12 * time.Second, 3: 24 * time.Second, 10: 3072 * time.Second, 24: 3 << 24 * time.Second} {
		if got := p.Delay(n, "x"); got != want {
			t.Errorf("after failure %d: %v, want base * 2^%d = %v", n, got, n, want)
		}
	}
	if p.MaxAttempts != 40 || p.Validate() != nil {
		t.Errorf("policy %+v: %v", p, p.Validate())
	}
}

func TestRetryPolicy_capped_formula(t *testing.T) {
	t.Parallel()
	p := schema.CappedBackoff(2*time.Second, 1.5, 7*time.Second, 6)
	for n, want := range map[int]time.Duration{1: 2 * time.Second, 2: 3 * time.Second, 3: 4500 * time.Millisecond, 4: 6750 * time.Millisecond, 5: 7 * time.Second, 1000: 7 * time.Second} {
		if got := p.Delay(n, "x"); got != want {
			t.Errorf("after failure %d: %v, want %v", n, got, want)
		}
	}
	if p.MaxAttempts != 6 || p.Validate() != nil {
		t.Errorf("policy %+v: %v", p, p.Validate())
	}
}

func TestRetryPolicy_saturates(t *testing.T) {
	t.Parallel()
	const longest = 10 * 365 * 24 * time.Hour
	for name, p := range map[string]schema.RetryPolicy{
		"binary":      schema.BinaryBackoff(time.Hour, math.MaxInt),
		"huge base":   {MaxAttempts: 1, Base: math.MaxInt64, Factor: 1, Jitter: 1},
		"huge factor": {MaxAttempts: 1, Base: 1, Factor: math.MaxFloat64, Jitter: 0.5},
	} {
		for _, n := range []int{100, 10_000, math.MaxInt} {
			if got := p.Delay(n, "x"); got <= 0 || got > longest {
				t.Errorf("%s after failure %d: %v", name, n, got)
			}
		}
	}
	if got := schema.BinaryBackoff(time.Hour, 1).Delay(math.MaxInt, "x"); got != longest {
		t.Errorf("got %v, want %v", got, longest)
	}
	if got := (schema.RetryPolicy{MaxAttempts: 1, Base: time.Second, Factor: 2, Max: time.Minute}).Delay(math.MaxInt, "x"); got != time.Minute {
		t.Errorf("capped: got %v", got)
	}
	for _, n := range []int{0, -1, math.MinInt} {
		if got, want := schema.DefaultRetry.Delay(n, "x"), schema.DefaultRetry.Delay(1, "x"); got != want {
			t.Errorf("after failure %d: %v, want that of the first, %v", n, got, want)
		}
	}
}

func TestRetryPolicy_jitter(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := schema.RetryPolicy{
			MaxAttempts: 9, Base: time.Duration(rapid.Int64Range(1, int64(time.Hour)).Draw(t, "base")),
			Factor: rapid.Float64Range(1, 4).Draw(t, "factor"), Max: time.Duration(rapid.Int64Range(0, int64(24*time.Hour)).Draw(t, "max")),
			Jitter: rapid.Float64Range(0, 1).Draw(t, "jitter"),
		}
		if err := p.Validate(); err != nil {
			t.Fatal(err)
		}
		n, seed := rapid.IntRange(1, 30).Draw(t, "attempt"), rapid.String().Draw(t, "seed")
		plain := p
		plain.Jitter = 0
		got, mid := p.Delay(n, seed), float64(plain.Delay(n, seed))
		if low, high := mid*(1-p.Jitter), mid*(1+p.Jitter); float64(got) < low-2 || float64(got) > high+2 {
			t.Fatalf("%v is outside %v to %v", got, time.Duration(low), time.Duration(high))
		}
		if again := p.Delay(n, seed); again != got {
			t.Fatalf("asked twice: %v and %v", got, again)
		}
	})
}

func TestRetryPolicy_jitter_spreads_messages(t *testing.T) {
	t.Parallel()
	p := schema.RetryPolicy{MaxAttempts: 1, Base: 1000, Factor: 1, Jitter: 0.5}
	var buckets [10]int
	const n = 10_000
	for i := range n {
		buckets[(p.Delay(1+i%3, schema.RowID(strings.Repeat("x", i%7)+string(rune(i))).String())-500)*10/1001]++
	}
	for i, got := range buckets {
		if got < n/10*8/10 || got > n/10*12/10 {
			t.Errorf("tenth %d of the range has %d of %d", i, got, n)
		}
	}
}

func TestRetryPolicy_validate_reports_all(t *testing.T) {
	t.Parallel()
	err := schema.RetryPolicy{MaxAttempts: -1, Base: -1, Factor: math.NaN(), Max: -1, Jitter: math.NaN()}.Validate()
	for _, field := range []string{"max_attempts", "base", "factor", "max", "jitter"} {
		if err == nil || !strings.Contains(err.Error(), field+" is ") {
			t.Errorf("%s is not in %v", field, err)
		}
	}
	ok := schema.DefaultRetry
	for name, spoil := range map[string]func(*schema.RetryPolicy){
		"max_attempts": func(p *schema.RetryPolicy) { p.MaxAttempts = 0 },
		"base":         func(p *schema.RetryPolicy) { p.Base = 0 },
		"factor":       func(p *schema.RetryPolicy) { p.Factor = 0.99 },
		"factor ":      func(p *schema.RetryPolicy) { p.Factor = math.Inf(1) },
		"jitter":       func(p *schema.RetryPolicy) { p.Jitter = 1.01 },
	} {
		p := ok
		spoil(&p)
		if p.Validate() == nil {
			t.Errorf("bad %s accepted", name)
		}
	}
	if ok.Validate() != nil || (schema.RetryPolicy{}).Validate() != nil {
		t.Error("the default is refused")
	}
}
