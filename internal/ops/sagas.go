package ops

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/millbridge/millbridge/handlers/saga"
	"github.com/millbridge/millbridge/internal/deadletters"
	"github.com/millbridge/millbridge/schema"
)

// sagaStore is what a database knows of sagas.
type sagaStore interface {
	Saga(ctx context.Context, saga, id string) (schema.SagaRecord, bool, error)
	Sagas(ctx context.Context, f schema.SagaFilter) ([]schema.SagaRecord, error)
	SagaHistory(ctx context.Context, saga, id string) ([]schema.SagaEvent, error)
}

// A Saga is one saga as it stands.
type Saga struct {
	Saga      string            `json:"saga"`
	ID        string            `json:"id"`
	Tenant    string            `json:"tenant,omitempty"`
	Status    schema.SagaStatus `json:"status"`
	Step      string            `json:"step,omitempty"`
	Waits     []string          `json:"waits,omitempty"`  // what it is waiting for
	Reason    string            `json:"reason,omitempty"` // why it failed
	State     json.RawMessage   `json:"state"`
	Events    int               `json:"events"`
	CreatedAt time.Time         `json:"created_at"`
	UpdatedAt time.Time         `json:"updated_at"`
}

// A SagaEvent is a line of a saga's ledger.
type SagaEvent struct {
	N         int             `json:"n"`
	At        time.Time       `json:"at"`
	Step      string          `json:"step,omitempty"`
	Kind      string          `json:"kind"`
	Rationale string          `json:"rationale,omitempty"`
	Intents   json.RawMessage `json:"intents,omitempty"`
	State     json.RawMessage `json:"state,omitempty"`
}

// FoundSaga is a saga with its ledger and what keeps it from going on.
type FoundSaga struct {
	Saga
	Ledger  []SagaEvent  `json:"ledger"`
	Letters []PoisonItem `json:"dead_letters"` // of messages to it
	Unknown []string     `json:"unknown"`      // what could not be looked through
}

// Sagas lists sagas by name and id.
func (s *Service) Sagas(ctx context.Context, f schema.SagaFilter) ([]Saga, error) {
	records, err := s.store.Sagas(ctx, f)
	if err != nil {
		return nil, fmt.Errorf("list sagas: %w", err)
	}
	list := make([]Saga, len(records))
	for i, rec := range records {
		list[i] = sagaOf(rec)
	}
	return list, nil
}

// sagaOf reads a record. One that cannot be read says so, and does not keep others from being listed.
func sagaOf(rec schema.SagaRecord) Saga {
	got, err := saga.Decode[json.RawMessage](rec)
	if err != nil {
		got.Reason = schema.OneLine(err.Error())
	}
	return Saga{
		Saga: rec.Saga, ID: rec.ID, Tenant: rec.Tenant, Status: rec.Status, Step: rec.Step, Waits: got.Waits, Reason: got.Reason,
		State: got.State, Events: rec.Version, CreatedAt: rec.CreatedAt, UpdatedAt: rec.UpdatedAt,
	}
}

// Saga returns one saga with its ledger. [schema.ErrNotFound] if there is none.
func (s *Service) Saga(ctx context.Context, name, id string) (FoundSaga, error) {
	fail := func(err error) (FoundSaga, error) {
		return FoundSaga{}, fmt.Errorf("show saga %s/%s: %w", schema.OneLine(name), schema.OneLine(id), err)
	}
	rec, found, err := s.store.Saga(ctx, name, id)
	if err != nil {
		return fail(err)
	}
	if !found {
		return fail(schema.ErrNotFound)
	}
	events, err := s.store.SagaHistory(ctx, name, id)
	if err != nil {
		return fail(err)
	}
	f := FoundSaga{Saga: sagaOf(rec), Ledger: make([]SagaEvent, len(events)), Letters: []PoisonItem{}, Unknown: []string{}}
	for i, ev := range events {
		f.Ledger[i] = SagaEvent{N: ev.N, At: ev.At, Step: ev.Step, Kind: ev.Kind, Rationale: ev.Rationale, Intents: ev.Intents, State: ev.State}
	}
	if err := s.natsUp(); err != nil {
		f.Unknown = append(f.Unknown, "dead letters: "+schema.OneLine(err.Error()))
		return f, nil
	}
	if f.Letters, err = s.sagaLetters(ctx, name, id); err != nil {
		f.Unknown = append(f.Unknown, "dead letters: "+schema.OneLine(err.Error()))
	}
	return f, nil
}

// sagaLetters returns the messages to a saga that were given up.
func (s *Service) sagaLetters(ctx context.Context, name, id string) ([]PoisonItem, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.PartTimeout)
	defer cancel()
	items := []PoisonItem{}
	for after := uint64(0); ; {
		letters, next, err := s.box.List(ctx, deadletters.Filter{Handler: name, After: after})
		if err != nil {
			return items, err
		}
		for _, l := range letters {
			if saga.IDOf(l.Payload) == id {
				items = append(items, s.letterItem(l))
			}
		}
		if after = next; after == 0 {
			return items, nil
		}
	}
}
