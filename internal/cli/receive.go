package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/millbridge/millbridge/handlers/peer"
	"github.com/millbridge/millbridge/router"
	"github.com/millbridge/millbridge/schema"
)

// receiveGrace is how long a stop waits for requests that are under way.
const receiveGrace = 5 * time.Second

// receivePath is where peers post.
const receivePath = "/messages"

// serveReceiver begins to take messages of other bridges, if the configuration asks for it. The returned function takes
// no more and waits for those that are under way.
func (o *opened) serveReceiver(ctx context.Context, bridge *router.Bridge) (stop func(), err error) {
	r := o.config.Receive
	if r.Listen == "" {
		return func() {}, nil
	}
	cfg := o.config.Receiver()
	cfg.Store, cfg.Logger = peer.StoreIn(o.store, bridge.Nudge), o.log
	receiver, err := peer.NewReceiver(cfg)
	if err != nil {
		return nil, schema.WithKind(schema.Permanent, err)
	}
	tlsConfig, err := r.TLS()
	if err != nil {
		return nil, schema.WithKind(schema.Permanent, err)
	}
	var listen net.ListenConfig
	listener, err := listen.Listen(ctx, "tcp", r.Listen)
	if err != nil {
		return nil, withHint(fmt.Errorf("receive.listen: %w", err), "choose a free address, or leave receive.listen out")
	}
	mux := http.NewServeMux()
	mux.Handle(receivePath, receiver)
	server := &http.Server{
		Handler: mux, TLSConfig: tlsConfig, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: peer.DefaultTimeout,
		WriteTimeout: 3 * peer.DefaultTimeout, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10,
		ErrorLog: slog.NewLogLogger(o.log.Handler(), slog.LevelWarn),
	}
	o.log.InfoContext(ctx, "messages of peers are received", "address", listener.Addr().String(), "tls", tlsConfig != nil)
	var group sync.WaitGroup
	group.Go(func() {
		serve := server.Serve
		if tlsConfig != nil {
			serve = func(l net.Listener) error { return server.ServeTLS(l, "", "") }
		}
		if err := serve(listener); !errors.Is(err, http.ErrServerClosed) {
			o.log.ErrorContext(ctx, "messages of peers are not received any more", "error", err)
		}
	})
	return func() {
		end, done := context.WithTimeout(context.WithoutCancel(ctx), receiveGrace)
		defer done()
		if server.Shutdown(end) != nil {
			server.Close() //nolint:errcheck // what is not stored yet comes again
		}
		group.Wait()
	}, nil
}
