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

	"github.com/millbridge/millbridge/internal/ops"
)

const (
	verifyEvery  = time.Minute
	metricsGrace = 2 * time.Second
)

// serveMetrics begins to verify and to answer scrapes, if the configuration asks for it. The returned function ends
// both.
func (o *opened) serveMetrics(ctx context.Context) (stop func(), err error) {
	address := o.config.Metrics.Listen
	if address == "" {
		return func() {}, nil
	}
	var listen net.ListenConfig
	listener, err := listen.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, withHint(fmt.Errorf("metrics.listen: %w", err), "choose a free address, or leave metrics.listen out")
	}
	metrics := ops.NewMetrics(o.ops, verifyEvery, o.log)
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", metrics)
	server := &http.Server{
		Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second, MaxHeaderBytes: 16 << 10,
		ErrorLog: slog.NewLogLogger(o.log.Handler(), slog.LevelWarn),
	}
	o.log.InfoContext(ctx, "metrics are served", "address", listener.Addr().String())
	verifying, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	group.Go(func() { metrics.Run(verifying) })
	group.Go(func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			o.log.ErrorContext(ctx, "metrics are not served any more", "error", err)
		}
	})
	return func() {
		cancel()
		end, done := context.WithTimeout(context.WithoutCancel(ctx), metricsGrace)
		defer done()
		if server.Shutdown(end) != nil {
			server.Close() //nolint:errcheck // a scraper that does not go is cut off
		}
		group.Wait()
	}, nil
}
