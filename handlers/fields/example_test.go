package fields_test

import (
	"fmt"

	"github.com/millbridge/millbridge/handlers/fields"
	"github.com/millbridge/millbridge/schema"
)

// A URL and a body that each message fills in for itself.
func Example() {
	address, err := fields.Parse("https://crm.example/contacts/{{.payload.id}}?by={{.key}}", fields.URL)
	if err != nil {
		panic(err)
	}
	body, err := fields.Parse(`{"name": "{{.payload.name}}", "tags": {{.payload.tags}}}`, fields.JSON)
	if err != nil {
		panic(err)
	}
	job := schema.NewJob("crm", "update", []byte(`{"id": "a/7", "name": "Ada \"L.\"", "tags": ["new", 1]}`), schema.WithKey("order 7"))
	message := fields.Of(job)
	for _, t := range []*fields.Template{address, body} {
		text, err := t.Render(message)
		if err != nil {
			panic(err)
		}
		fmt.Println(text)
	}
	_, err = fields.Parse("https://{{.payload.host}}/", fields.URL)
	fmt.Println(err)
	// Output:
	// https://crm.example/contacts/a%2F7?by=order%207
	// {"name": "Ada \"L.\"", "tags": ["new", 1]}
	// no field may decide which host is called
}
