package handlertest_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/handlers/handlertest"
	"github.com/millbridge/millbridge/router"
	"github.com/millbridge/millbridge/router/inprocess"
	"github.com/millbridge/millbridge/schema"
)

// A bridge can be drained, too.
var _ handlertest.Drainer[router.Tally] = (*router.Bridge)(nil)

type drainer struct{ err error }

func (d drainer) Drain(context.Context) (int, error) { return 7, d.err }

// Enqueue, drain, delivered once: also when the first attempt fails and the message has to wait for its time.
func TestDrainUntilEmpty_returns_the_tally(t *testing.T) {
	t.Parallel()
	queue := inprocess.New[struct{}](inprocess.Config{Clock: handlertest.NewClock(time.Time{})})
	var rec handlertest.Recorder
	rec.Fail("charge", 1, errors.New("down"))
	if err := queue.Target(handlers.Target{Name: "billing", Handler: &rec}); err != nil {
		t.Fatal(err)
	}
	if _, err := queue.PublishAlone(t.Context(), schema.NewJob("billing", "charge", charge{"o", 1}, schema.WithKey("k"), schema.WithDelay(time.Hour))); err != nil {
		t.Fatal(err)
	}
	if tally := handlertest.DrainUntilEmpty(t, queue); tally.Handled != 1 || tally.Retried != 1 || tally.Waiting != 0 {
		t.Errorf("tally %+v", tally)
	}
	rec.WantEffects(t, handlertest.Call{Action: "charge", Key: "k", Args: charge{"o", 1}})
	if n := handlertest.DrainUntilEmpty(t, drainer{}); n != 7 {
		t.Errorf("tally of another kind: %d", n)
	}
	f := failures{TB: t}
	defer func() {
		if recover() != &f || !strings.Contains(f.text.String(), "drain until empty: no database (so far: 7)") {
			t.Errorf("it says %q", f.text.String())
		}
	}()
	handlertest.DrainUntilEmpty(&f, drainer{errors.New("no database")})
}
