package ops

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/millbridge/millbridge/schema"
)

const (
	// metricsLimit bounds one verification.
	metricsLimit = 15 * time.Minute
	// metricsShare is how many times as long as it lasted the next verification waits: reading everything back must stay a
	// small part of what database and streams do.
	metricsShare = 20
)

// Metrics verifies again and again and tells a monitoring system what it found, in the text format of Prometheus.
type Metrics struct {
	s     *Service
	every time.Duration
	log   *slog.Logger

	mu     sync.Mutex
	last   *Verification // the last that could be finished
	failed int64         // verifications that could not
	broken bool          // the last one was such
}

// NewMetrics returns metrics of a service that verifies once in a while. It does nothing before Run.
func NewMetrics(s *Service, every time.Duration, log *slog.Logger) *Metrics {
	return &Metrics{s: s, every: every, log: log}
}

// Run verifies until ctx ends, one verification after the other.
func (m *Metrics) Run(ctx context.Context) {
	for {
		start := time.Now()
		wait := m.every
		if tired := m.verify(ctx); tired {
			wait = max(wait-time.Since(start), metricsShare*time.Since(start))
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
	}
}

// verify reports whether it has read everything back, or as much as there was time for.
func (m *Metrics) verify(ctx context.Context) (tired bool) {
	within, cancel := context.WithTimeout(ctx, metricsLimit)
	defer cancel()
	v, err := m.s.Verify(within, VerifyOptions{})
	if ctx.Err() != nil {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil {
		m.failed++
		m.broken = true
		m.log.WarnContext(ctx, "messages could not be verified", "error", schema.OneLine(err.Error()))
		return within.Err() != nil
	}
	if !v.OK && (m.last == nil || m.last.Unaccounted != v.Unaccounted) {
		m.log.ErrorContext(ctx, "messages are unaccounted for; run `millbridge verify`", "messages", v.Unaccounted)
	}
	m.last, m.broken = &v, false
	return true
}

// ServeHTTP answers a scrape with what the last verification found, and with the circuits as they are now.
func (m *Metrics) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	last, failed, broken := m.last, m.failed, m.broken
	m.mu.Unlock()
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	e := exposition{}
	e.write(last, failed, broken)
	ctx, cancel := context.WithTimeout(r.Context(), m.s.cfg.PartTimeout)
	defer cancel()
	if circuits, err := m.s.circuits(ctx); err == nil { // unknown is not 0
		e.circuits(circuits)
	}
	e.stock(m.s.stockStates(ctx))
	io.WriteString(w, e.String()) //nolint:errcheck // the scraper has gone
}

// exposition is Prometheus' text format.
type exposition struct{ strings.Builder }

func (e *exposition) write(v *Verification, failed int64, broken bool) {
	e.metric("millbridge_verification_failures_total", "counter", "Verifications that could not be finished, since the process started.")
	e.value("millbridge_verification_failures_total", float64(failed))
	e.metric("millbridge_verification_failing", "gauge", "1 if the last verification could not be finished: the other numbers are older.")
	e.value("millbridge_verification_failing", map[bool]float64{true: 1}[broken])
	if v == nil {
		return // unknown is not 0
	}
	e.metric("millbridge_verification_timestamp_seconds", "gauge", "When the last finished verification began.")
	e.value("millbridge_verification_timestamp_seconds", float64(v.At.UnixMilli())/1000)
	e.metric("millbridge_verification_duration_seconds", "gauge", "How long it took.")
	e.value("millbridge_verification_duration_seconds", v.Seconds)
	streams := func(name, help string, n func(StreamAccount) int64) {
		e.metric(name, "gauge", help)
		for _, s := range v.Streams {
			e.value(name, float64(n(s)), "stream", string(s.Stream))
		}
	}
	streams("millbridge_unaccounted_messages", "Messages that are lost, doubled or out of order; anything but 0 needs a person.",
		func(s StreamAccount) int64 { return s.Unaccounted })
	streams("millbridge_sent_messages", "Messages that the outbox has sent.", func(s StreamAccount) int64 { return s.Sent })
	streams("millbridge_stream_messages", "Messages of the outbox in the stream.", func(s StreamAccount) int64 { return s.InStream })
	e.metric("millbridge_waiting_rows", "gauge", "Rows that are not in their stream, by table.")
	for _, s := range v.Streams {
		for _, t := range []struct {
			table string
			n     int64
		}{{InOutbox, s.Pending}, {InScheduled, s.Scheduled}, {InParked, s.Parked}} {
			e.value("millbridge_waiting_rows", float64(t.n), "stream", string(s.Stream), "table", t.table)
		}
	}
	e.metric("millbridge_handler_messages", "gauge", "Messages of a handler, by state.")
	for _, h := range v.Handlers {
		for _, t := range []struct {
			state string
			n     int64
		}{{"waiting", h.Waiting}, {"in_flight", h.InFlight}, {"done", h.Done}, {"dead", h.Dead}, {"dropped", h.Dropped}} {
			e.value("millbridge_handler_messages", float64(t.n), "handler", h.Name, "state", t.state)
		}
	}
	e.metric("millbridge_dead_letters", "gauge", "Dead letters that wait for an operator.")
	e.value("millbridge_dead_letters", float64(v.Dead.Letters))
}

func (e *exposition) circuits(list []Circuit) {
	gauge := func(name, help string, is func(Circuit) bool) {
		e.metric(name, "gauge", help+"; no sample for one that is well.")
		for _, c := range list {
			e.value(name, map[bool]float64{true: 1}[is(c)], "handler", c.Handler)
		}
	}
	gauge("millbridge_circuit_open", "1 if the handler's messages wait because it has failed too often in a row, or is disabled",
		func(c Circuit) bool { return c.Open })
	gauge("millbridge_handler_disabled", "1 if the handler's messages wait until it is enabled", func(c Circuit) bool { return c.Disabled })
}

func (e *exposition) metric(name, kind, help string) {
	fmt.Fprintf(e, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
}

var labelEscaper = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

// value writes a sample; labels are names and values in turn.
func (e *exposition) value(name string, value float64, labels ...string) {
	e.WriteString(name)
	for i := 0; i < len(labels); i += 2 {
		separator := ","
		if i == 0 {
			separator = "{"
		}
		e.WriteString(separator + labels[i] + `="` + labelEscaper.Replace(labels[i+1]) + `"`)
	}
	if len(labels) > 0 {
		e.WriteByte('}')
	}
	e.WriteString(" " + strconv.FormatFloat(value, 'f', -1, 64) + "\n")
}
