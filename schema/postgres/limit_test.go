package postgres_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millbridge/millbridge/schema"
	"github.com/millbridge/millbridge/schema/postgres"
)

// A process that has not read the database's payload limit yet keeps it all the same, whichever way it publishes, also
// where the limit is above the default.
func TestPayloadLimit_holds_from_the_first_message(t *testing.T) {
	t.Parallel()
	setter, pool, db := setupSQL(t)
	small := repool(t, pool, func(c *pgxpool.Config) { c.MaxConns = 1 })
	ways := map[string]func(s *postgres.Store, payload []byte) error{
		"append": func(s *postgres.Store, payload []byte) error {
			return s.InTx(t.Context(), func(tx pgx.Tx) error {
				_, err := s.Append(t.Context(), tx, []schema.Envelope{schema.NewJob("crm", "x", payload)})
				return err
			})
		},
		"batch": func(s *postgres.Store, payload []byte) error {
			return s.InTx(t.Context(), func(tx pgx.Tx) error {
				b := &pgx.Batch{}
				if err := s.AppendBatch(b, []schema.Envelope{schema.NewJob("crm", "x", payload)}, nil); err != nil {
					return err
				}
				return tx.SendBatch(t.Context(), b).Close()
			})
		},
		"watermill-sql": func(s *postgres.Store, payload []byte) error {
			held, err := small.Acquire(context.Background()) // the caller's transaction has the pool's only connection
			if err != nil {
				return err
			}
			defer held.Release()
			return publisher(t, s, db).Publish("jobs.crm.x", message.NewMessage(schema.NewID(), payload))
		},
	}
	for name, publish := range ways {
		for _, c := range []struct {
			limit, size int
			fits        bool
		}{{1000, 1000, true}, {1000, 1001, false}, {4 << 20, 2 << 20, true}, {4 << 20, 4<<20 + 1, false}} {
			if err := setter.SetMaxPayload(t.Context(), c.limit); err != nil {
				t.Fatal(err)
			}
			err := publish(postgres.New(small, postgres.Options{}), make([]byte, c.size))
			var invalid *schema.ValidationError
			refused := errors.As(err, &invalid) && slices.ContainsFunc(invalid.Faults, func(f schema.Fault) bool { return f.Field == "payload" && f.Limit == c.limit })
			if c.fits && err != nil || !c.fits && !refused {
				t.Errorf("%s: %d bytes with a limit of %d: %v", name, c.size, c.limit, err)
			}
		}
	}
}
