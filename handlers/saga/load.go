package saga

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/millbridge/millbridge/schema"
)

// A Saga is one saga as it stands.
type Saga[T any] struct {
	Saga      string // the definition's name
	ID        string
	Tenant    string
	Status    schema.SagaStatus
	Step      string   // where it is
	State     T        // after its last event
	Reason    string   // why it failed
	Waits     []string // what it is waiting for
	Version   int      // number of its last event
	CreatedAt time.Time
	UpdatedAt time.Time
}

// Decode reads a record of a store. With [json.RawMessage] as T it needs no definition.
func Decode[T any](rec schema.SagaRecord) (Saga[T], error) {
	s := Saga[T]{
		Saga: rec.Saga, ID: rec.ID, Tenant: rec.Tenant, Status: rec.Status, Step: rec.Step,
		Version: rec.Version, CreatedAt: rec.CreatedAt, UpdatedAt: rec.UpdatedAt,
	}
	var kept stored
	err := json.Unmarshal(rec.State, &kept)
	if err == nil {
		err = json.Unmarshal(kept.Data, &s.State)
	}
	if err != nil {
		return s, schema.WithKind(schema.Permanent, fmt.Errorf("state of saga %s/%s: %w", rec.Saga, schema.OneLine(rec.ID), err))
	}
	s.Reason = kept.Why
	if w := kept.Wait; w != nil {
		for _, c := range w.Calls {
			s.Waits = append(s.Waits, "report of "+c.Job+", job "+c.ID)
		}
		if w.Signal != "" {
			s.Waits = append(s.Waits, "signal "+w.Signal)
		}
		if w.Timer && len(s.Waits) == 0 {
			s.Waits = append(s.Waits, "its time")
		}
	}
	return s, nil
}

// IDOf returns the id of the saga that a message to a saga's target is for, by the message's payload; empty if it names
// none. It is for those who look at messages, such as dead letters.
func IDOf(payload []byte) string {
	var args struct {
		ID  string `json:"id"`
		Ref string `json:"ref"`
	}
	if json.Unmarshal(payload, &args) != nil {
		return ""
	}
	if args.Ref == "" {
		return args.ID
	}
	id, err := sagaOf(args.Ref) // a report: its id is that of a job
	if err != nil {
		return ""
	}
	return id
}

// A Reader is a store that has sagas: *postgres.Store or *sqlite.Store.
type Reader interface {
	Saga(ctx context.Context, saga, id string) (schema.SagaRecord, bool, error)
}

// Load reads a saga. An unknown one is [schema.ErrNotFound].
func (d *Definition[T]) Load(ctx context.Context, from Reader, id string) (Saga[T], error) {
	rec, found, err := from.Saga(ctx, d.name, id)
	if err != nil {
		return Saga[T]{}, fmt.Errorf("load saga %s/%s: %w", d.name, schema.OneLine(id), err)
	}
	if !found {
		return Saga[T]{}, fmt.Errorf("saga %s/%s: %w", d.name, schema.OneLine(id), schema.ErrNotFound)
	}
	return Decode[T](rec)
}
