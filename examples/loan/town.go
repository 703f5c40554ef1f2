package main

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/handlers/configgroup"
	"github.com/millbridge/millbridge/handlers/ncip/nciptest"
	"github.com/millbridge/millbridge/handlers/outbound"
	"github.com/millbridge/millbridge/handlers/reshare"
	"github.com/millbridge/millbridge/handlers/reshare/resharetest"
	"github.com/millbridge/millbridge/schema"
)

const password = "a-password"

// town is what is around the program: a ReShare with the libraries east, west and south, and the own system of east,
// whose program this is. Requests of east go to west first, and then to south.
type town struct {
	*httptest.Server
	reshare *resharetest.Server
	ils     *nciptest.Server
	desk    handlers.Handler // where the staff of the others works

	mu     sync.Mutex
	staff  map[string]staff                   // by library
	refuse func(r *http.Request) (status int) // refuses a request of the program, unless it returns 0
}

// staff says what a library does next with a request in a state, if anything.
type staff map[string]string

// diligent is a library that lends.
func diligent() staff {
	return staff{
		"RES_IDLE": "respondYes", "RES_NEW_AWAIT_PULL_SLIP": "supplierPrintPullSlip", "RES_AWAIT_PICKING": "supplierCheckInToReshare",
		"RES_AWAIT_SHIP": "supplierMarkShipped", "RES_ITEM_RETURNED": "supplierCheckOutOfReshare", "RES_CANCEL_REQUEST_RECEIVED": "supplierRespondToCancel",
	}
}

// newTown returns a town that runs, with these changes.
func newTown(changes ...func(*town)) *town {
	t := &town{staff: map[string]staff{"west": diligent(), "south": diligent()}}
	var others []resharetest.Tenant
	at := reshare.Config{Tenants: map[string]reshare.Credentials{}, Settings: outbound.Settings{AllowPrivate: true}}
	for name := range t.staff {
		others = append(others, resharetest.Tenant{Name: name, Username: "staff", Password: password})
		at.Tenants[name] = reshare.Credentials{Username: "staff", Password: configgroup.NewSecret(password)}
	}
	t.reshare = resharetest.New(resharetest.Config{Tenants: append(others, resharetest.Tenant{
		Name: "east", Username: "bridge", Password: password, Supplier: "west", Rota: []string{"south"},
	})})
	t.ils = nciptest.New(nciptest.Options{Agency: "EAST", Now: func() time.Time { return time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC) }})
	t.ils.AddUser(nciptest.User{ID: "ada", Name: "Ada"})
	t.Server = httptest.NewUnstartedServer(http.HandlerFunc(t.serve))
	at.BaseURL = &url.URL{Scheme: "http", Host: t.Listener.Addr().String()}
	var err error
	t.desk, err = reshare.New(at)
	check(err)
	for _, change := range changes {
		change(t)
	}
	t.Start()
	return t
}

// serve answers for both systems. Whenever east has looked at its request, the others have done the next thing.
func (t *town) serve(w http.ResponseWriter, r *http.Request) {
	library := r.Header.Get("X-Okapi-Tenant")
	if t.refuse != nil && t.staff[library] == nil {
		if status := t.refuse(r); status != 0 {
			http.Error(w, "not now", status)
			return
		}
	}
	if r.URL.Path == "/ncip" {
		t.ils.ServeHTTP(w, r)
		return
	}
	t.reshare.ServeHTTP(w, r)
	if r.Method == http.MethodGet && library == "east" && strings.HasPrefix(r.URL.Path, "/rs/patronrequests/") {
		t.work()
	}
}

// work lets each library do one thing with each request that it has something to do with.
func (t *town) work() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, staff := range t.staff {
		for _, r := range t.reshare.Requests(name) {
			if action := staff[r.State]; action != "" {
				check(t.act(name, r.ID, action))
			}
		}
	}
}

// act performs an action as a library.
func (t *town) act(library, request, action string) error {
	params := map[string]string{
		"supplierCheckInToReshare": `{"itemBarcodes":[{"itemId":"39001"}]}`, "supplierRespondToCancel": `{"cancelResponse":"yes"}`,
	}[action]
	job := schema.NewJob("desk", reshare.ActionPerform, reshare.PerformArgs{
		Which: reshare.Which{ID: request}, Action: action, ActionParams: json.RawMessage(params),
	}, schema.WithTenant(library))
	return t.desk.Handle(context.Background(), job)
}
