package natswords_test

import (
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/millbridge/millbridge/internal/natswords"
	"github.com/millbridge/millbridge/internal/testkit"
)

func TestDown(t *testing.T) {
	t.Parallel()
	nobody := testkit.NATS(t)
	nobody.Stop()
	refuses := testkit.NATS(t, func(o *server.Options) { o.Authorization = "the-token" })
	for name, c := range map[string]struct{ url, want string }{
		"nobody listens": {strings.Replace(nobody.URL(), "//", "//user:the-password@", 1), "connection refused"},
		"no such port":   {"nats://127.0.0.1:70000", "invalid port"},
		"not let in":     {strings.Replace(refuses.URL(), "//", "//the-password@", 1), "Authorization Violation"},
	} {
		nc := dial(t, c.url)
		testkit.Eventually(t, 20*time.Second, func() error {
			if err := natswords.Down(nc); err == nil || !strings.Contains(err.Error(), natswords.Unreachable+": ") || !strings.Contains(err.Error(), c.want) {
				return err
			}
			return nil
		})
		for _, err := range []error{natswords.Down(nc), natswords.ExplainOn(nc, nats.ErrReconnectBufExceeded)} {
			if !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "the-password") || strings.Contains(err.Error(), "buffer") {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	nc := dial(t, strings.Replace(refuses.URL(), "//", "//the-token@", 1))
	if err := natswords.Down(nc); err != nil {
		t.Errorf("connected: %v", err)
	}
	if other := errors.New("other"); natswords.ExplainOn(nc, other) != other || natswords.ExplainOn(nc, nil) != nil {
		t.Error("errors of a connection that stands are changed")
	}
	nc.Close()
	if err := natswords.Down(nc); err == nil || !strings.HasPrefix(err.Error(), natswords.Unreachable) {
		t.Errorf("closed: %v", err)
	}
}

func TestDialer_uses_the_dialer_of_the_application(t *testing.T) {
	t.Parallel()
	own := &net.Dialer{Timeout: time.Nanosecond}
	nc := dial(t, testkit.NATS(t).URL(), nats.Dialer(own))
	if err := natswords.Down(nc); err == nil || !strings.Contains(err.Error(), "timeout") {
		t.Errorf("within a nanosecond: %v", err)
	}
}

func dial(t *testing.T, url string, opts ...nats.Option) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(url, append(opts, nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1), nats.IgnoreAuthErrorAbort(),
		nats.ReconnectWait(20*time.Millisecond), natswords.Dialer())...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}
