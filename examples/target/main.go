// Command target is a small shop with a target of its own, from the settings to the tests: orders and jobs commit
// together, a carrier is called over HTTP with the job's key, its answer is reported back, and a transactional handler
// writes it down and publishes an event. docs/handlers.md goes through it.
//
//	go run ./examples/target
package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"

	"github.com/millbridge/millbridge/examples/target/carrier"
	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/handlers/configgroup"
	"github.com/millbridge/millbridge/publishers"
	"github.com/millbridge/millbridge/router"
	"github.com/millbridge/millbridge/router/embedded"
)

func main() {
	dir, err := os.MkdirTemp("", "millbridge-target-")
	check(err)
	defer os.RemoveAll(dir)
	server := httptest.NewServer(http.HandlerFunc(carrierAPI)) // the carrier, as far as this program needs it
	defer server.Close()
	check(run(context.Background(), filepath.Join(dir, "data"), []string{
		"MILLBRIDGE_CARRIER_BASE_URL=" + server.URL, // a real program leaves this to its environment
		"MILLBRIDGE_CARRIER_TOKEN=t0ken",
		"MILLBRIDGE_CARRIER_ALLOW_PRIVATE=true",
	}))
}

// carrierAPI books every parcel.
func carrierAPI(w http.ResponseWriter, r *http.Request) {
	fmt.Println("carrier: a parcel with key", r.Header.Get("Idempotency-Key"))
	fmt.Fprint(w, `{"number": "P-1138"}`)
}

func run(ctx context.Context, dir string, environ []string) error {
	cfg, err := configgroup.Load[carrier.Config]("carrier", configgroup.Environ(environ))
	if err != nil {
		return err
	}
	in, err := embedded.Open(ctx, dir, embedded.Options{})
	if err != nil {
		return err
	}
	defer in.Close()
	if _, err := in.DB.ExecContext(ctx, `CREATE TABLE orders (number text PRIMARY KEY, state text, parcel text)`); err != nil {
		return err
	}
	bridge, err := open(ctx, in, carrier.NewClient(cfg))
	if err != nil {
		return err
	}
	outbox := publishers.NewOutbox(in.Store, publishers.Config{Nudge: bridge.Nudge})
	if err := place(ctx, in.DB, outbox, "o-7", 900); err != nil {
		return err
	}
	_, err = bridge.Drain(ctx) // until nothing is left to do; a service calls bridge.Run
	return err
}

// open returns a bridge with the shop's targets.
func open(ctx context.Context, in *embedded.Instance, api carrier.API) (*router.Bridge, error) {
	bridge, err := router.Open(ctx, router.Config{Store: in.Store, Conn: in.Conn})
	if err != nil {
		return nil, err
	}
	for _, target := range []handlers.Target{carrier.New(api), orders()} {
		if err := bridge.Target(target); err != nil {
			return nil, err
		}
	}
	var mail handlers.Actions
	handlers.OnEvent(&mail, orderShipped, func(_ context.Context, s shipment, _ string) error {
		fmt.Printf("mail: order %s is on its way, parcel %s\n", s.Order, s.Parcel)
		return nil
	})
	return bridge, bridge.Subscribe(handlers.Subscription{Name: "mail", Events: []string{orderShipped.Name}, Handler: &mail})
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
