package peer_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"net/url"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/handlers/configgroup"
	"github.com/millbridge/millbridge/handlers/outbound"
	"github.com/millbridge/millbridge/handlers/peer"
	"github.com/millbridge/millbridge/schema"
)

// Two bridges, one on each side of an HTTP connection.
func Example() {
	key := configgroup.NewSecret("whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD")

	// The branch takes jobs for its target "printer" from the head office. A real one stores with [peer.StoreIn].
	receiver, err := peer.NewReceiver(peer.ReceiverConfig{
		Origin:  "branch",
		Senders: map[string]peer.Sender{"head-office": {Secrets: []configgroup.Secret{key}, Allow: []string{"jobs.printer.>"}}},
		Store: func(_ context.Context, from string, env schema.Envelope) (bool, error) {
			fmt.Println("stored", env.Subject(), "of", from)
			return false, nil
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	server := httptest.NewServer(receiver)
	defer server.Close()

	// The head office has a target for the branch.
	address, _ := url.Parse(server.URL)
	branch, err := peer.New(peer.Config{
		URL: address, Origin: "head-office", Secrets: []configgroup.Secret{key}, Target: "printer",
		Settings: outbound.Settings{AllowPrivate: true},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	target := handlers.Target{Name: "branch", Handler: branch}
	if err := target.Validate(); err != nil {
		fmt.Println(err)
	}
	fmt.Println(branch.Handle(context.Background(), schema.NewJob("branch", "label", map[string]int{"order": 7})))
	// Output:
	// stored jobs.printer.label of head-office
	// <nil>
}
