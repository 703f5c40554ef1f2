package jetstream

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"
)

// renewals is a store whose leases a test controls.
type renewals struct {
	Store
	renew func(ctx context.Context, tokens []string) ([]string, error)
}

func (r renewals) Renew(ctx context.Context, tokens []string, _ time.Duration) ([]string, error) {
	return r.renew(ctx, tokens)
}

// hold runs leases of 10 s for an hour and returns when and why the work under one of them ended.
func hold(t *testing.T, renew func(ctx context.Context, tokens []string) ([]string, error)) (after time.Duration, why error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := newLeases(renewals{renew: renew}, 10*time.Second, slog.New(slog.DiscardHandler))
		ctx, stop := context.WithTimeout(t.Context(), time.Hour)
		defer stop()
		work, cancel := context.WithCancelCause(ctx)
		begin := time.Now()
		l.hold("token", begin, cancel)
		go l.keep(ctx)
		<-work.Done()
		after, why = time.Since(begin), context.Cause(work)
		l.drop("token")
		stop()
	})
	return after, why
}

func TestLeases(t *testing.T) {
	t.Parallel()
	t.Run("renewed", func(t *testing.T) {
		t.Parallel()
		calls := 0
		after, why := hold(t, func(_ context.Context, tokens []string) ([]string, error) {
			calls++
			return tokens, nil
		})
		if after != time.Hour || errors.Is(why, errLost) {
			t.Errorf("it ended after %v: %v", after, why)
		}
		if calls < 1000 || calls > 1100 {
			t.Errorf("it was renewed %d times in an hour, want every third of 10 s", calls)
		}
	})
	t.Run("the database cannot be asked", func(t *testing.T) {
		t.Parallel()
		after, why := hold(t, func(context.Context, []string) ([]string, error) { return nil, errors.New("down") })
		if after >= 10*time.Second || after < 7*time.Second || !errors.Is(why, errLost) {
			t.Errorf("it ended after %v (%v), want before the lease of 10 s does", after, why)
		}
	})
	t.Run("the database does not answer", func(t *testing.T) {
		t.Parallel()
		after, why := hold(t, func(ctx context.Context, _ []string) ([]string, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		if after >= 10*time.Second || !errors.Is(why, errLost) {
			t.Errorf("it ended after %v (%v), want before the lease of 10 s does", after, why)
		}
	})
	t.Run("taken by another", func(t *testing.T) {
		t.Parallel()
		after, why := hold(t, func(context.Context, []string) ([]string, error) { return nil, nil })
		if after > 4*time.Second || !errors.Is(why, errLost) {
			t.Errorf("it ended after %v (%v), want at the first renewal", after, why)
		}
	})
	t.Run("counted from before the answer", func(t *testing.T) {
		t.Parallel()
		first := true
		after, why := hold(t, func(ctx context.Context, tokens []string) ([]string, error) {
			if first { // asked after 3.3 s, answered after 6 s; then never again
				first = false
				select {
				case <-time.After(2700 * time.Millisecond):
				case <-ctx.Done():
				}
				return tokens, nil
			}
			return nil, errors.New("down")
		})
		if after < 11*time.Second || after > 12*time.Second || !errors.Is(why, errLost) {
			t.Errorf("it ended after %v (%v), want 8 s after the renewal was asked for", after, why)
		}
	})
}
