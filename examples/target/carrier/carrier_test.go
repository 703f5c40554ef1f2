package carrier_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/millbridge/millbridge/examples/target/carrier"
	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/handlers/configgroup"
	"github.com/millbridge/millbridge/handlers/handlertest"
	"github.com/millbridge/millbridge/schema"
)

// fake is a carrier that records its calls.
type fake struct{ *handlertest.Recorder }

func (f fake) Book(ctx context.Context, key string, p carrier.Parcel) (carrier.Booked, error) {
	return carrier.Booked{Number: "P-1"}, f.Call(ctx, "book", key, p)
}

func TestBook_calls_the_carrier_with_the_key(t *testing.T) {
	t.Parallel()
	rec := new(handlertest.Recorder)
	target := carrier.New(fake{rec})
	if err := target.Validate(); err != nil {
		t.Fatal(err)
	}
	ctx := handlers.WithCall(t.Context(), handlers.Call{Handler: "carrier"})
	err := target.Handler.Handle(ctx, carrier.Book.New(carrier.Parcel{Order: "o-7", Grams: 900}, schema.WithKey("o-7/parcel")))
	if err != nil {
		t.Fatal(err)
	}
	rec.Want(t, handlertest.Call{Action: "book", Key: "o-7/parcel", Args: carrier.Parcel{Order: "o-7", Grams: 900}})
	if got := string(handlers.ReportOf(ctx)); got != `{"number":"P-1"}` {
		t.Errorf("reported %s", got)
	}
}

// TestBook_may_run_again tries what a bridge may have to do: to run it twice, after a crash, late, at the same time.
func TestBook_may_run_again(t *testing.T) {
	t.Parallel()
	handlertest.CheckIdempotent(t, func() handlertest.World {
		remote := &handlertest.Recorder{ByKey: true} // the carrier honours the key
		return handlertest.World{
			Handler: func() handlers.Handler { return carrier.New(fake{remote}).Handler },
			State:   func() any { return remote.Effects() },
		}
	}, carrier.Book.New(carrier.Parcel{Order: "o-7", Grams: 900}, schema.WithKey("o-7/parcel")),
		carrier.Book.New(carrier.Parcel{Order: "o-8", Grams: 100}, schema.WithKey("o-8/parcel")))
}

func TestBook_passes_errors_on(t *testing.T) {
	t.Parallel()
	rec := new(handlertest.Recorder)
	target := carrier.New(fake{rec})
	err := target.Handler.Handle(t.Context(), carrier.Book.New(carrier.Parcel{Order: "o-7"}))
	if schema.KindOf(err) != schema.Permanent {
		t.Errorf("a parcel without weight: %v", err)
	}
	rec.Want(t) // and nothing was called
	busy := handlers.RetryAfter(errors.New("busy"), time.Minute)
	rec.Fail("book", 1, busy)
	err = target.Handler.Handle(t.Context(), carrier.Book.New(carrier.Parcel{Order: "o-7", Grams: 1}))
	if wait, _ := schema.RetryAfterOf(err); wait != time.Minute {
		t.Errorf("a busy carrier: %v", err)
	}
}

func TestClient(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		number string
		kind   schema.ErrorKind
	}{
		"booked":    {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"number":"P-9"}`) }, "P-9", 0},
		"no number": {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{}`) }, "", schema.Permanent},
		"refused":   {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(422) }, "", schema.Permanent},
		"down":      {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) }, "", schema.Temporary},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var p carrier.Parcel
			err := json.NewDecoder(r.Body).Decode(&p)
			if r.URL.Path != "/v1/parcels" || r.Header.Get("Idempotency-Key") != "k" || r.Header.Get("Authorization") != "Bearer t0ken" || p.Order != "o-7" || err != nil {
				t.Errorf("%s: %s %v, %+v, %v", name, r.URL.Path, r.Header, p, err)
			}
			c.answer(w, r)
		}))
		booked, err := client(t, server.URL+"/v1/").Book(t.Context(), "k", carrier.Parcel{Order: "o-7", Grams: 1})
		if booked.Number != c.number || (err == nil) != (c.number != "") || schema.KindOf(err) != c.kind {
			t.Errorf("%s: got %+v, error %v", name, booked, err)
		}
		server.Close()
	}
}

func client(t *testing.T, url string) *carrier.Client {
	t.Helper()
	cfg, err := configgroup.Load[carrier.Config]("carrier", configgroup.Environ([]string{
		"MILLBRIDGE_CARRIER_BASE_URL=" + url, "MILLBRIDGE_CARRIER_TOKEN=t0ken", "MILLBRIDGE_CARRIER_ALLOW_PRIVATE=true",
	}))
	if err != nil {
		t.Fatal(err)
	}
	return carrier.NewClient(cfg)
}

// TestConfig_is_documented keeps the guide from naming settings that are not there.
func TestConfig_is_documented(t *testing.T) {
	t.Parallel()
	list, err := configgroup.Describe[carrier.Config]("carrier")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile("../../../docs/handlers.md")
	if err != nil {
		t.Fatal(err)
	}
	if table := configgroup.Markdown(list); !strings.Contains(string(doc), table) {
		t.Errorf("docs/handlers.md does not have\n%s", table)
	}
}
