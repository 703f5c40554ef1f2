package cases

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/internal/ops"
	"github.com/millbridge/millbridge/internal/testkit"
	"github.com/millbridge/millbridge/schema"
)

// setMaxPayload is what an operator sets in the database.
func (w *world) setMaxPayload(t *testing.T, bytes int) {
	t.Helper()
	err := w.store.(interface {
		SetMaxPayload(ctx context.Context, bytes int) error
	}).SetMaxPayload(t.Context(), bytes)
	if err != nil {
		t.Fatal(err)
	}
}

// tighten makes stream and outbox take small messages only; what waits already may be larger.
func (w *world) tighten(t *testing.T) {
	t.Helper()
	w.setMaxPayload(t, 1000)
	js := testkit.JetStream(t, w.conn)
	stream, err := js.Stream(t.Context(), "MB_JOBS")
	if err != nil {
		t.Fatal(err)
	}
	cfg := stream.CachedInfo().Config
	cfg.MaxMsgSize = schema.MaxHeaderBytes + 2000
	if _, err := js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
}

// One of several rows is refused for good, with two replicas at work: the others are there within two polls, the bad one
// is set aside where it can be seen, and the row behind it in its order waits and is named.
func TestC02_one_row_of_several(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		const poll = 4 * time.Second // the more of it, the less a busy machine matters
		r := &recorder{}
		w.open(t) // makes the streams
		key := schema.WithOrderingKey("k")
		bad := schema.NewJob("a", "bad", make([]byte, 100_000), key)
		behind := schema.NewJob("a", "behind", nil, key)
		good := make([]schema.Envelope, 4)
		for i := range good {
			good[i] = schema.NewJob("a", "good", nil)
		}
		w.publish(t, append([]schema.Envelope{bad, behind}, good...)...)
		w.tighten(t)
		began := time.Now()
		w.replicas(t, 2, polls(poll), handlers.Target{Name: "a", Handler: r})
		arrives(t, r, 30*time.Second, good...)
		// The start and, if they shared a batch with the bad row, finding it by halves.
		if d := time.Since(began); d > 2*poll+3*time.Second {
			t.Errorf("the others took %v", d)
		}
		more := schema.NewJob("a", "good", nil)
		w.publish(t, more)
		arrives(t, r, 2*poll+time.Second, more)

		o := w.operator(t)
		var items []ops.PoisonItem
		testkit.Eventually(t, 2*time.Minute, func() (err error) {
			if items, _, err = o.Poison(t.Context(), ops.PoisonQuery{}); err == nil && len(items) != 2 {
				err = fmt.Errorf("the list has %+v", items)
			}
			return err
		})
		if items[0].ID != bad.ID || items[0].At != ops.AtForwarder || items[0].Behind || !strings.Contains(items[0].Error, "too large") {
			t.Errorf("the bad row is listed as %+v", items[0])
		}
		if items[1].ID != behind.ID || !items[1].Behind || !strings.Contains(items[1].Error, "behind") {
			t.Errorf("the row behind is listed as %+v", items[1])
		}
		st := o.Status(t.Context())
		if text := strings.Join(append(st.Notes, st.Reasons...), "\n"); !strings.Contains(text, "parked") {
			t.Errorf("status does not speak of it: %s", text)
		}
	})
}

// While something waits to be tried again, for a handler that fails or a broker that is away, no transaction is open.
func TestC02_no_transaction_is_open_during_waits(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		var calls atomic.Int64
		fails := handlers.HandlerFunc(func(context.Context, schema.Envelope) error {
			calls.Add(1)
			return errors.New("not now")
		})
		for _, mode := range []handlers.Mode{handlers.ModeLease, handlers.ModeTx} {
			calls.Store(0)
			policy := handlers.Policy{Mode: mode, Retry: schema.RetryPolicy{MaxAttempts: 3, Base: 1500 * time.Millisecond, Factor: 1}}
			name := mode.String()
			b := w.open(t, handlers.Target{Name: name, Handler: fails, Policy: policy})
			ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
			ended := make(chan error, 1)
			go func() { ended <- b.Run(ctx) }()
			w.publish(t, schema.NewJob(name, "do", nil))
			testkit.Eventually(t, 2*time.Minute, func() error {
				w.noneIsOpen(t)
				if n := calls.Load(); n < 2 {
					return fmt.Errorf("%d attempts", n)
				}
				return nil
			})
			w.nats.Stop()
			w.publish(t, schema.NewJob(name, "do", nil))
			end := time.After(2 * time.Second)
			for away := true; away; {
				select {
				case <-end:
					away = false
				case <-time.After(20 * time.Millisecond):
					w.noneIsOpen(t)
				}
			}
			w.nats.Restart()
			testkit.Eventually(t, 2*time.Minute, func() error {
				w.noneIsOpen(t)
				if n := calls.Load(); n < 6 {
					return fmt.Errorf("%d attempts", n)
				}
				return nil
			})
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	})
}

// noneIsOpen fails the test if a transaction waits for something outside of the database. On SQLite it would keep
// everybody from writing.
func (w *world) noneIsOpen(t *testing.T) {
	t.Helper()
	if w.pg == nil {
		began := time.Now()
		if err := w.inTx(func(u unit) error { return u.order("beside") }); err != nil || time.Since(began) > time.Second {
			t.Errorf("a write took %v, %v", time.Since(began), err)
		}
		return
	}
	var n int
	err := w.pg.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
		AND state LIKE 'idle in transaction%' AND state_change < clock_timestamp() - interval '1 second'`).Scan(&n)
	if err != nil || n > 0 {
		t.Errorf("%d transactions are open for more than a second, %v", n, err)
	}
}
