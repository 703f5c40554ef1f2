package httprelay_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/handlers/httprelay"
	"github.com/millbridge/millbridge/handlers/outbound"
	"github.com/millbridge/millbridge/schema"
)

// An API that answers 200 to everything, and has its errors inside.
func ExampleNew() {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Println(r.Method, r.URL, r.Header.Get("Idempotency-Key"), string(body))
		_, _ = io.WriteString(w, `{"ok": false, "error": {"code": "BUSY", "text": "closed for stock-taking"}}`)
	}))
	defer api.Close()
	base, err := url.Parse(api.URL + "/v1")
	if err != nil {
		panic(err)
	}
	relay, err := httprelay.New(httprelay.Config{
		BaseURL: base, IdempotencyHeader: httprelay.DefaultIdempotencyHeader, Settings: outbound.Settings{AllowPrivate: true},
		Actions: map[string]httprelay.Action{"hold": {
			Method: "PUT", Path: "/patrons/{{.payload.patron}}/holds", Body: `{"item": "{{.payload.item}}"}`,
			Success:   httprelay.Condition{JSON: &httprelay.Check{Path: "ok", Equals: json.RawMessage("true")}},
			Temporary: []httprelay.Condition{{JSON: &httprelay.Check{Path: "error.code", Equals: json.RawMessage(`"BUSY"`)}}},
			Reason:    "error.text",
		}},
	})
	if err != nil {
		panic(err)
	}
	job := schema.NewJob("ils", "hold", []byte(`{"patron": "a/7", "item": "4711"}`), schema.WithKey("o-7"))
	previews, err := relay.(handlers.Previewer).Preview(context.Background(), job)
	fmt.Println(previews[0].Body, err)
	err = relay.Handle(context.Background(), job)
	fmt.Println(schema.KindOf(err), "-", err)
	// Output:
	// {"item": "4711"} <nil>
	// PUT /v1/patrons/a%2F7/holds o-7 {"item": "4711"}
	// temporary - hold: answered 200, as temporary.0 says: closed for stock-taking
}
