// Package carrier is a target: it books parcels with a carrier that has an HTTP API.
package carrier

import (
	"context"
	"fmt"
	"time"

	"github.com/millbridge/millbridge/handlers"
	"github.com/millbridge/millbridge/schema"
)

// Parcel is what is to be booked.
type Parcel struct {
	Order string `json:"order"`
	Grams int    `json:"grams"`
}

// Booked is what the carrier answers.
type Booked struct {
	Number string `json:"number"`
}

// Book is the job; those who publish it import it from here.
var Book = schema.JobType[Parcel]{Target: "carrier", Action: "book", Needs: schema.OnSQLite}

// API is what the target needs of the carrier. [Client] has it, and so have the fakes of tests.
type API interface {
	Book(ctx context.Context, key string, p Parcel) (Booked, error)
}

// New returns the target.
func New(api API) handlers.Target {
	var actions handlers.Actions
	handlers.OnJob(&actions, Book, func(ctx context.Context, p Parcel, key string) error {
		if p.Grams <= 0 {
			return handlers.Permanent(fmt.Errorf("a parcel of %d grams", p.Grams))
		}
		booked, err := api.Book(ctx, key, p)
		if err != nil {
			return err
		}
		return handlers.Report(ctx, booked) // to whoever published the job WithReplyTo
	})
	return handlers.Target{Name: Book.Target, Handler: &actions, Policy: handlers.Policy{
		Retry:   schema.CappedBackoff(time.Second, 2, 10*time.Minute, 12),
		Timeout: 30 * time.Second,
		Rate:    50, // a second: what the carrier allows us
	}}
}
