package outbound_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/handlers/outbound"
	"github.com/millbridge/millbridge/schema"
)

// A target's client is made once, with the target.
func ExampleClient() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Println(r.Method, r.URL.Path, r.Header.Get("Idempotency-Key"))
		w.Header().Set("Retry-After", "30")
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer server.Close()

	client := outbound.Client(outbound.Network{AllowPrivate: true}, 5*time.Second)
	var parcels handlers.Actions
	handlers.On(&parcels, "book", func(ctx context.Context, args struct{ Order string }, key string) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL+"/parcels", strings.NewReader(args.Order))
		if err != nil {
			return err
		}
		req.Header.Set("Idempotency-Key", key)
		res, err := client.Do(req)
		if err != nil {
			return err
		}
		_, err = outbound.Read(res)
		return err
	})

	err := parcels.Handle(context.Background(), schema.NewJob("parcels", "book", map[string]string{"order": "o-7"}, schema.WithKey("o-7/parcel")))
	wait, _ := schema.RetryAfterOf(err)
	fmt.Println(err, "- again in", wait)
	// Output:
	// POST /parcels o-7/parcel
	// answered 503 Service Unavailable - again in 30s
}

// Without an opt-in nothing inside is reached, whatever the name says.
func ExampleNetwork() {
	_, err := outbound.Client(outbound.Network{}, 0).Get("http://169.254.169.254/latest/meta-data/")
	var refused *outbound.AddressError
	fmt.Println(errors.As(err, &refused), schema.KindOf(err), refused.Reason)
	// Output: true permanent link-local
}
