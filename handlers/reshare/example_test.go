package reshare_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"net/url"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/handlers/configgroup"
	"github.com/millbridge/millbridge/handlers/outbound"
	"github.com/millbridge/millbridge/handlers/reshare"
	"github.com/millbridge/millbridge/handlers/reshare/resharetest"
	"github.com/millbridge/millbridge/schema"
)

// A request is made once, however often its job is run.
func Example() {
	server := httptest.NewServer(resharetest.New(resharetest.Config{Tenants: []resharetest.Tenant{
		{Name: "east", Username: "bridge", Password: "a-password", Supplier: "west"},
		{Name: "west", Username: "westbridge", Password: "another"},
	}}))
	defer server.Close()
	base, err := url.Parse(server.URL)
	if err != nil {
		panic(err)
	}
	handler, err := reshare.New(reshare.Config{
		BaseURL: base, Tenant: "east", Username: "bridge", Password: configgroup.NewSecret("a-password"),
		Settings: outbound.Settings{AllowPrivate: true},
	})
	if err != nil {
		panic(err)
	}
	wanted := reshare.CreateArgs{PatronIdentifier: "ada", Title: "Middlemarch", SystemInstanceIdentifier: "ocm123"}
	borrow := schema.NewJob("ill", reshare.ActionCreate, wanted, schema.WithKey("loan-1"))
	cancel := schema.NewJob("ill", reshare.ActionPerform, reshare.PerformArgs{
		Which: reshare.Which{Key: "loan-1"}, Action: "requesterCancel", ActionParams: []byte(`{"reason":"patron_requested"}`),
	})
	for _, job := range []schema.Envelope{borrow, borrow, cancel, cancel} {
		ctx := handlers.WithCall(context.Background(), handlers.CallOf("ill", job))
		if err := handler.Handle(ctx, job); err != nil {
			panic(err)
		}
		var report struct {
			State                 string
			Existing, AlreadyDone bool
		}
		if err := json.Unmarshal(handlers.ReportOf(ctx), &report); err != nil {
			panic(err)
		}
		fmt.Println(job.Name, report.State, report.Existing || report.AlreadyDone)
	}
	// Output:
	// create-request REQ_IDLE false
	// create-request REQ_REQUEST_SENT_TO_SUPPLIER true
	// perform-action REQ_CANCEL_PENDING false
	// perform-action REQ_CANCEL_PENDING true
}
