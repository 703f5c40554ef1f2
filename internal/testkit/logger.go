package testkit

import (
	"log/slog"
	"strings"
	"sync"
	"testing"
)

// Logger writes to the test's log, at debug level. It may outlive the test: what comes later is dropped.
func Logger(t testing.TB) *slog.Logger {
	t.Helper()
	return slog.New(slog.NewTextHandler(newLogWriter(t), &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// logWriter guards t.Log, which panics when it is called after the test has ended.
type logWriter struct {
	mu sync.Mutex
	t  testing.TB // nil once the test has ended
}

func newLogWriter(t testing.TB) *logWriter {
	w := &logWriter{t: t}
	t.Cleanup(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.t = nil
	})
	return w
}

func (w *logWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.t != nil {
		w.t.Log(strings.TrimRight(string(p), "\n"))
	}
	return len(p), nil
}
