package natslink_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/millbridge/millbridge/handlers/configgroup"
	"github.com/millbridge/millbridge/handlers/natslink"
	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/schema"
)

// open returns a link that is closed when the test ends.
func open(t *testing.T, s natslink.Settings) *natslink.Link {
	t.Helper()
	l, err := natslink.New(s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// ask makes a request that echo answers.
func ask(ctx context.Context, l *natslink.Link, subject string) error {
	return l.Do(ctx, subject, func(ctx context.Context, nc *nats.Conn) error {
		_, err := nc.RequestWithContext(ctx, subject, []byte("hello"))
		return err
	})
}

func echo(t *testing.T, nc *nats.Conn, subject string) {
	t.Helper()
	if _, err := nc.Subscribe(subject, func(m *nats.Msg) { _ = m.Respond(m.Data) }); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
}

func TestLink_signs_in(t *testing.T) {
	t.Parallel()
	user, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	seed, err := user.Seed()
	if err != nil {
		t.Fatal(err)
	}
	public, err := user.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	nkey := filepath.Join(t.TempDir(), "seed")
	if err := os.WriteFile(nkey, seed, 0o600); err != nil {
		t.Fatal(err)
	}
	pki := testkit.NewPKI(t)
	for name, c := range map[string]struct {
		edit        func(*server.Options)
		right, lack natslink.Settings
		refused     bool // by the server, as a sign-in
	}{
		"token": {
			func(o *server.Options) { o.Authorization = "the-token" },
			natslink.Settings{Token: configgroup.NewSecret("the-token")},
			natslink.Settings{Token: configgroup.NewSecret("hush")},
			true,
		},
		"user": {
			func(o *server.Options) { o.Username, o.Password = "bridge", "pw" },
			natslink.Settings{User: "bridge", Password: configgroup.NewSecret("pw")},
			natslink.Settings{User: "bridge", Password: configgroup.NewSecret("hush")},
			true,
		},
		"nkey": {
			func(o *server.Options) { o.Nkeys = []*server.NkeyUser{{Nkey: public}} },
			natslink.Settings{NKeyFile: nkey},
			natslink.Settings{},
			true,
		},
		"tls": {
			func(o *server.Options) { o.TLSConfig, o.TLSVerify = pki.Server, true },
			natslink.Settings{TLSCAFile: pki.CA, TLSCertFile: pki.Cert, TLSKeyFile: pki.Key},
			natslink.Settings{TLSCAFile: pki.CA},
			false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := testkit.NATS(t, c.edit)
			c.right.URLs, c.lack.URLs = []string{s.URL()}, []string{s.URL()}
			if err := open(t, c.right).Do(t.Context(), "x", func(_ context.Context, nc *nats.Conn) error { return nc.Flush() }); err != nil {
				t.Errorf("signed in: %v", err)
			}
			err := ask(t.Context(), open(t, c.lack), "x")
			wait, waits := schema.RetryAfterOf(err)
			if err == nil || schema.KindOf(err) != schema.Temporary || waits != c.refused || waits && wait != natslink.SignInWait {
				t.Errorf("not signed in: %v, again after %v", err, wait)
			}
			if strings.Contains(fmt.Sprint(err), "hush") {
				t.Errorf("the error has a secret: %v", err)
			}
		})
	}
}

func TestLink_notices_at_once_what_is_not_permitted(t *testing.T) {
	t.Parallel()
	s := testkit.NATS(t, func(o *server.Options) {
		o.Users = []*server.User{
			{Username: "all", Password: "all"},
			{Username: "some", Password: "some", Permissions: &server.Permissions{Publish: &server.SubjectPermission{Allow: []string{"open"}}}},
			{Username: "deaf", Password: "deaf", Permissions: &server.Permissions{Subscribe: &server.SubjectPermission{Deny: []string{">"}}}},
		}
	})
	nc := s.Conn(t, nats.UserInfo("all", "all"))
	for _, subject := range []string{"open", "closed"} {
		echo(t, nc, subject)
	}
	as := func(user string) *natslink.Link {
		return open(t, natslink.Settings{URLs: []string{s.URL()}, User: user, Password: configgroup.NewSecret(user)})
	}
	some := as("some")
	if err := ask(t.Context(), some, "open"); err != nil {
		t.Errorf("permitted: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for what, err := range map[string]error{"publish": ask(ctx, some, "closed"), "receive": ask(ctx, as("deaf"), "open")} {
		if wait, _ := schema.RetryAfterOf(err); !errors.Is(err, natslink.ErrDenied) || wait != natslink.SignInWait {
			t.Errorf("not permitted to %s: %v, again after %v", what, err, wait)
		}
	}
	if err := ask(t.Context(), some, "open"); err != nil {
		t.Errorf("what is permitted suffers: %v", err)
	}
}

func TestLink_comes_back(t *testing.T) {
	t.Parallel()
	s := testkit.NATS(t)
	echo(t, s.Conn(t), "x")
	l := open(t, natslink.Settings{URLs: []string{s.URL()}})
	if err := ask(t.Context(), l, "x"); err != nil {
		t.Fatal(err)
	}
	s.Stop()
	testkit.Eventually(t, 20*time.Second, func() error {
		err := ask(t.Context(), l, "x")
		if err == nil || schema.KindOf(err) != schema.Temporary || !strings.Contains(err.Error(), "cannot be reached") {
			return fmt.Errorf("the server is away: %v", err)
		}
		return nil
	})
	s.Restart()
	testkit.Eventually(t, 20*time.Second, func() error { return ask(t.Context(), l, "x") })
}

func TestLink_does_not_wait_for_answers_on_a_connection_that_broke_off(t *testing.T) {
	t.Parallel()
	s := testkit.NATS(t)
	asked := make(chan struct{}, 1)
	silent := s.Conn(t)
	if _, err := silent.Subscribe("silent", func(*nats.Msg) { asked <- struct{}{} }); err != nil {
		t.Fatal(err)
	}
	if err := silent.Flush(); err != nil {
		t.Fatal(err)
	}
	l := open(t, natslink.Settings{URLs: []string{s.URL()}})
	done := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	go func() { done <- ask(ctx, l, "silent") }()
	<-asked
	s.Stop()
	if err := <-done; !errors.Is(err, nats.ErrDisconnected) || schema.KindOf(err) != schema.Temporary {
		t.Errorf("got %v", err)
	}
}

func TestLink_waits_for_servers_that_are_not_there_yet(t *testing.T) {
	t.Parallel()
	s := testkit.NATS(t)
	s.Stop()
	l := open(t, natslink.Settings{URLs: []string{s.URL()}})
	if err := ask(t.Context(), l, "x"); err == nil || schema.KindOf(err) != schema.Temporary {
		t.Errorf("got %v", err)
	}
	s.Restart()
	echo(t, s.Conn(t), "x")
	testkit.Eventually(t, 20*time.Second, func() error { return ask(t.Context(), l, "x") })
}

func TestLink_kinds(t *testing.T) {
	t.Parallel()
	s := testkit.NATS(t)
	l := open(t, natslink.Settings{URLs: []string{s.URL()}})
	if err := ask(t.Context(), l, "nobody"); schema.KindOf(err) != schema.Temporary || !errors.Is(err, nats.ErrNoResponders) {
		t.Errorf("no responders: %v", err)
	}
	err := l.Do(t.Context(), "x", func(_ context.Context, nc *nats.Conn) error { return nc.Publish("x", make([]byte, 2<<20)) })
	if schema.KindOf(err) != schema.Permanent || !errors.Is(err, nats.ErrMaxPayload) {
		t.Errorf("too large: %v", err)
	}
	given := schema.RetryAfter(errors.New("busy"), time.Minute)
	err = l.Do(t.Context(), "x", func(context.Context, *nats.Conn) error { return given })
	if wait, _ := schema.RetryAfterOf(err); wait != time.Minute {
		t.Errorf("a kind that was given: %v", err)
	}
	silent := s.Conn(t)
	if _, err := silent.Subscribe("silent", func(*nats.Msg) {}); err != nil {
		t.Fatal(err)
	}
	if err := silent.Flush(); err != nil {
		t.Fatal(err)
	}
	why := errors.New("we stop")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, why)
	defer cancel()
	if err := ask(ctx, l, "silent"); !errors.Is(err, why) {
		t.Errorf("the run has ended: %v", err)
	}
}

func TestLink_close_ends_it(t *testing.T) {
	t.Parallel()
	s := testkit.NATS(t)
	echo(t, s.Conn(t), "x")
	l, err := natslink.New(natslink.Settings{URLs: []string{s.URL()}})
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if err := ask(t.Context(), l, "x"); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := s.Server().NumClients(); n != 2 {
		t.Errorf("%d connections, want echo's and one", n)
	}
	for range 2 {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
	testkit.Eventually(t, 10*time.Second, func() error {
		if n := s.Server().NumClients(); n != 1 {
			return fmt.Errorf("%d connections are left", n)
		}
		return nil
	})
	if err := ask(t.Context(), l, "x"); schema.KindOf(err) != schema.Temporary || err == nil {
		t.Errorf("after the close: %v", err)
	}
	never, err := natslink.New(natslink.Settings{URLs: []string{s.URL()}})
	if err != nil {
		t.Fatal(err)
	}
	if err := never.Close(); err != nil {
		t.Error(err)
	}
}
