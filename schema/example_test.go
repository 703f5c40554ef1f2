package schema_test

import (
	"errors"
	"fmt"

	"github.com/millbridge/millbridge/schema"
)

func ExampleNewJob() {
	job := schema.NewJob("mailer", "send", map[string]string{"to": "ann@example.org"}, schema.WithKey("welcome-ann"))
	fmt.Println(job.Subject())
	fmt.Println(string(job.Payload))
	fmt.Println(job.IdempotencyKey())
	// Output:
	// jobs.mailer.send
	// {"to":"ann@example.org"}
	// welcome-ann
}

func ExampleNewEvent() {
	event := schema.NewEvent("order.paid", []byte("7"), schema.WithPublic(), schema.WithOrderingKey("order-7"))
	fmt.Println(event.Subject())
	fmt.Println(event.Type())
	// Output:
	// events.public.order.paid
	// event.public.order.paid
}

func ExampleEnvelope_Validate() {
	job := schema.NewJob("Mailer", "send", nil, schema.WithID("7"), schema.WithMetadata(map[string]string{"my key": "x"}))
	err := job.Validate(schema.DefaultPayload)
	var invalid *schema.ValidationError
	if errors.As(err, &invalid) {
		for _, fault := range invalid.Faults {
			fmt.Println(fault)
		}
	}
	// Output:
	// target: "Mailer" must be a-z, 0-9, '-' and '_', starting with a letter or digit
	// metadata[my key]: a key must be printable ASCII without space and without any of "(),/:;<=>?@[\]{}
}
