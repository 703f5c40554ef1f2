package cli_test

import (
	"context"
	"errors"
	"testing"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/internal/ops"
	"github.com/millbridge/millbridge/router"
	"github.com/millbridge/millbridge/schema"
)

// A job that its handler no longer wanted has no letter. It is done with all the same.
func TestVerify_counts_a_cancelled_job_as_done(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.bridgeWith(t, func(b *router.Bridge) error {
			return b.Target(handlers.Target{Name: "crm", Policy: quick(2), Handler: handlers.HandlerFunc(func(context.Context, schema.Envelope) error {
				return handlers.Cancel(errors.New("the order was withdrawn"))
			})})
		})
		for range 2 {
			w.publish(t, "job", "crm", "x")
		}
		v := w.until(t, "cancelled", func(v ops.Verification) bool { return streamOf(t, v, schema.Jobs).Settled == 2 })
		if crm := handlerOf(v, "crm"); crm.Done != 2 || crm.Dead != 0 || crm.InFlight != 0 || v.Dead != (ops.Dead{}) {
			t.Errorf("cancelled: %+v", v)
		}
	})
}
