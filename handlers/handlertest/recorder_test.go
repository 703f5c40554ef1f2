package handlertest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/millbridge/millbridge/handlers/handlertest"
	"github.com/millbridge/millbridge/schema"
)

type charge struct {
	Order string `json:"order"`
	Cents int    `json:"cents"`
}

// failures collects what would fail a test.
type failures struct {
	testing.TB
	text strings.Builder
}

func (f *failures) Helper()                           {}
func (f *failures) Errorf(format string, args ...any) { fmt.Fprintf(&f.text, format+"\n", args...) }

func (f *failures) Fatalf(format string, args ...any) {
	f.Errorf(format, args...)
	panic(f)
}

func TestRecorder_compares_exact_calls(t *testing.T) {
	t.Parallel()
	var rec handlertest.Recorder
	for i := range 3 {
		if err := rec.Call(t.Context(), "charge", fmt.Sprintf("k%d", i), charge{"o", i}); err != nil {
			t.Fatal(err)
		}
	}
	rec.Want(t, handlertest.Call{"charge", "k0", charge{"o", 0}}, handlertest.Call{"charge", "k1", map[string]any{"order": "o", "cents": 1}},
		handlertest.Call{"charge", "k2", charge{"o", 2}})
	var f failures
	rec.Want(&f, handlertest.Call{"charge", "k0", charge{"o", 0}}, handlertest.Call{"charge", "k1", charge{"o", 7}},
		handlertest.Call{"charge", "k2", charge{"o", 2}}, handlertest.Call{"refund", "k3", nil})
	const diff = `other calls than wanted (- missing, + not wanted):
    charge key="k0" {"cents":0,"order":"o"}
  - charge key="k1" {"cents":7,"order":"o"}
  + charge key="k1" {"cents":1,"order":"o"}
    charge key="k2" {"cents":2,"order":"o"}
  - refund key="k3" null

`
	if f.text.String() != diff {
		t.Errorf("got\n%swant\n%s", f.text.String(), diff)
	}
}

func TestRecorder_fails_by_its_script(t *testing.T) {
	t.Parallel()
	down, broken := errors.New("down"), errors.New("connection broke")
	rec := handlertest.Recorder{ByKey: true}
	rec.Fail("charge", 2, down)
	rec.LoseAnswer("charge", 1, broken)
	rec.FailAlways("refund", nil)
	for i, want := range []error{down, down, broken, nil, nil} {
		if err := rec.Call(t.Context(), "charge", "k", i); !errors.Is(err, want) {
			t.Errorf("call %d: error %v, want %v", i, err, want)
		}
	}
	for range 2 {
		if err := rec.Call(t.Context(), "refund", "k", nil); err == nil || err.Error() != "scripted failure" {
			t.Errorf("refund: error %v", err)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := rec.Call(ended, "charge", "k", nil); !errors.Is(err, context.Canceled) {
		t.Errorf("ended context: %v", err)
	}
	if n := len(rec.Calls()); n != 7 {
		t.Errorf("%d calls, want 7", n)
	}
	rec.WantEffects(t, handlertest.Call{"charge", "k", 2})
	rec.Reset()
	rec.Want(t)
}

func TestRecorder_is_a_handler(t *testing.T) {
	t.Parallel()
	var rec handlertest.Recorder
	for _, env := range []schema.Envelope{
		schema.NewJob("billing", "charge", charge{"o", 1}, schema.WithKey("k")),
		schema.NewJob("billing", "raw", []byte("no json"), schema.WithKey("r")),
		schema.NewEvent("order.placed", nil, schema.WithID("e")),
	} {
		if err := rec.Handle(t.Context(), env); err != nil {
			t.Error(err)
		}
	}
	rec.Want(t, handlertest.Call{"charge", "k", charge{"o", 1}}, handlertest.Call{"raw", "r", "no json"}, handlertest.Call{"order.placed", "e", nil})
}
