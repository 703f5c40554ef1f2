package natslink

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/millbridge/millbridge/internal/natswords"
	"github.com/millbridge/millbridge/schema"
)

const (
	// SignInWait is the wait before a message is tried again whose sender could not sign in or had no permission.
	SignInWait = 5 * time.Minute

	connectWait   = 2 * time.Second // for a connection that is not there
	reconnectWait = 500 * time.Millisecond
	drainWait     = 5 * time.Second
)

// ErrDenied reports a subject that the servers do not permit.
var ErrDenied = errors.New("not permitted")

// A Link is one connection to the servers, made at its first use. It is safe for concurrent use. Close it.
type Link struct {
	urls string
	opts []nats.Option

	mu      sync.Mutex
	nc      *nats.Conn
	closed  bool
	dialErr error         // of the last try, nil once it stands
	gone    chan struct{} // closed with nc
	waiting map[*waiter]struct{}
}

// waiter is a call that is under way.
type waiter struct {
	subject string
	cancel  context.CancelCauseFunc
}

// New returns a link. It reads the settings' files and does no other I/O.
func New(s Settings) (*Link, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	signIn, err := s.Options()
	if err != nil {
		return nil, err
	}
	l := &Link{urls: s.urls(), waiting: map[*waiter]struct{}{}}
	l.opts = append(signIn,
		nats.Name("millbridge"), nats.Timeout(connectWait), nats.DrainTimeout(drainWait),
		nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1), nats.IgnoreAuthErrorAbort(),
		nats.ReconnectBufSize(-1), // what could not be sent is tried again by the bridge, not later and unseen
		nats.PingInterval(10*time.Second), nats.MaxPingsOutstanding(2),
		nats.ReconnectWait(reconnectWait), nats.ReconnectErrHandler(func(_ *nats.Conn, err error) { l.dialed(err) }),
		nats.ConnectHandler(func(*nats.Conn) { l.dialed(nil) }), nats.ReconnectHandler(func(*nats.Conn) { l.dialed(nil) }),
		nats.ErrorHandler(l.onError), nats.DisconnectErrHandler(func(*nats.Conn, error) { l.endAll() }),
	)
	return l, nil
}

// String returns the addresses of the servers; there is no secret in them.
func (l *Link) String() string { return l.urls }

// Do calls f with the connection, once there is one. The context that f gets also ends when the connection breaks off, and
// when the servers say that subject is not permitted. The kind of the error is as in the package's documentation, unless f has given it one.
func (l *Link) Do(ctx context.Context, subject string, f func(ctx context.Context, nc *nats.Conn) error) error {
	nc, err := l.connected(ctx)
	if err != nil {
		return judge(ctx, err)
	}
	running, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	w := &waiter{subject, cancel}
	l.mu.Lock()
	l.waiting[w] = struct{}{}
	l.mu.Unlock()
	err = f(running, nc)
	l.mu.Lock()
	delete(l.waiting, w)
	l.mu.Unlock()
	if err != nil && ctx.Err() == nil && running.Err() != nil {
		err = context.Cause(running)
	}
	return judge(ctx, err)
}

// Close lets what is under way come to its end and closes the connection.
func (l *Link) Close() error {
	l.mu.Lock()
	nc, gone, closed := l.nc, l.gone, l.closed
	l.closed = true
	l.mu.Unlock()
	if nc == nil || closed {
		return nil
	}
	if err := nc.Drain(); err != nil {
		nc.Close()
	}
	limit := time.NewTimer(drainWait)
	defer limit.Stop()
	select {
	case <-gone:
	case <-limit.C:
		nc.Close()
	}
	return nil
}

// connected returns the connection when it stands.
func (l *Link) connected(ctx context.Context) (*nats.Conn, error) {
	nc, err := l.conn()
	if err != nil || nc.IsConnected() {
		return nc, err
	}
	ctx, cancel := context.WithTimeout(ctx, connectWait)
	defer cancel()
	changed := nc.StatusChanged(nats.CONNECTED)
	defer nc.RemoveStatusListener(changed)
	if nc.IsConnected() {
		return nc, nil
	}
	select {
	case <-changed:
		return nc, nil
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	why := l.dialErr
	if last := nc.LastError(); isSignIn(last) {
		why = last
	}
	if why == nil {
		return nil, errors.New(natswords.Unreachable)
	}
	return nil, fmt.Errorf("%s: %w", natswords.Unreachable, why)
}

// dialed notes how the last try to connect has ended.
func (l *Link) dialed(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dialErr = err
}

func (l *Link) conn() (*nats.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return nil, nats.ErrConnectionClosed
	case l.nc != nil && !l.nc.IsClosed():
		return l.nc, nil
	}
	gone := make(chan struct{})
	closed := nats.ClosedHandler(func(*nats.Conn) { close(gone) })
	nc, err := nats.Connect(l.urls, append(slices.Clip(l.opts), closed)...) // dials in the background if the first try fails
	if err != nil {
		return nil, err
	}
	l.nc, l.gone = nc, gone
	return nc, nil
}

// onError ends the calls whose subject is not permitted. Without the permission to receive answers, that is all calls.
func (l *Link) onError(_ *nats.Conn, _ *nats.Subscription, err error) {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for w := range l.waiting {
		if !strings.Contains(strings.ToLower(err.Error()), "publish to ") || strings.Contains(err.Error(), `"`+w.subject+`"`) {
			w.cancel(fmt.Errorf("%w: %w", ErrDenied, err))
		}
	}
}

// endAll ends the calls whose answers would come over a connection that has broken off.
func (l *Link) endAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for w := range l.waiting {
		w.cancel(nats.ErrDisconnected)
	}
}

// judge gives an error its kind. What ended the run's context knows its own.
func judge(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case schema.KindOf(err) == schema.Permanent:
		return err
	case errors.Is(err, nats.ErrMaxPayload):
		return schema.WithKind(schema.Permanent, err)
	case errors.Is(err, ErrDenied), isSignIn(err):
		return schema.RetryAfter(err, SignInWait)
	}
	if _, waits := schema.RetryAfterOf(err); waits {
		return err
	}
	if errors.Is(err, nats.ErrNoResponders) { // whose answer was waited for knows the caller
		return schema.WithKind(schema.Temporary, err)
	}
	return schema.WithKind(schema.Temporary, natswords.Explain(err))
}

// isSignIn reports whether the servers do not let us in.
func isSignIn(err error) bool {
	for _, target := range []error{
		nats.ErrAuthorization, nats.ErrAuthExpired, nats.ErrAuthRevoked, nats.ErrPermissionViolation, nats.ErrAccountAuthExpired,
	} {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}
