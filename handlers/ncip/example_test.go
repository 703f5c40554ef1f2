package ncip_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"net/url"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/handlers/ncip"
	"github.com/millbridge/millbridge/handlers/ncip/nciptest"
	"github.com/millbridge/millbridge/handlers/outbound"
	"github.com/millbridge/millbridge/schema"
)

// lend is what the application publishes; it shares the type with whoever handles it.
var lend = schema.JobType[ncip.CheckOutItemArgs]{Target: "library", Action: ncip.ActionCheckOutItem}

// A job that runs twice lends once.
func ExampleNew() {
	library := nciptest.New(nciptest.Options{})
	library.AddUser(nciptest.User{ID: "2001"})
	library.AddItem(nciptest.Item{ID: "39001", Title: "Emma"})
	server := httptest.NewServer(library)
	defer server.Close()

	address, err := url.Parse(server.URL)
	if err != nil {
		panic(err)
	}
	handler, err := ncip.New(ncip.Config{
		BaseURL: address, FromAgency: "BRIDGE", ToAgency: "LIBRARY",
		Settings: outbound.Settings{AllowPrivate: true},
	})
	if err != nil {
		panic(err)
	}
	job := lend.New(ncip.CheckOutItemArgs{User: ncip.ID{Value: "2001"}, Item: ncip.ID{Value: "39001"}}, schema.WithKey("loan/7"))
	for range 2 {
		ctx := handlers.WithCall(context.Background(), handlers.CallOf("library", job))
		if err := handler.Handle(ctx, job); err != nil {
			panic(err)
		}
		fmt.Println(len(library.State().Loans), "loan after", library.Asked())
	}
	// Output:
	// 1 loan after [LookupUser LookupItem CheckOutItem]
	// 1 loan after [LookupUser LookupItem CheckOutItem LookupUser]
}
