package postgres

import (
	stdsql "database/sql"
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/millbridge/millbridge/schema"
)

// SchemaAdapter returns an adapter with which watermill-sql's Publisher writes to the outbox, in whatever transaction it
// was made with (pgx's stdlib driver is needed). Topics are those of [schema.FromTopic]; a message's UUID becomes its
// id; [schema.ContextWithOptions] on the message's context sets the rest. Messages with an explicit idempotency key or a
// time to wait for need several statements and are refused: use [Store.Append].
//
// It is for publishing only. Messages are read through the forwarder: a table that watermill-sql's Subscriber reads from
// must keep what was read, and ours does not.
//
// The Publisher prints the arguments of its statements, payloads included, to its logger at trace level: give it one
// that drops them.
func (s *Store) SchemaAdapter() sql.SchemaAdapter { return adapter{s} }

type adapter struct{ s *Store }

var errPublishOnly = errors.New("the outbox is read by Millbridge's forwarder, not by watermill-sql's Subscriber: subscribe to JetStream")

func (a adapter) InsertQuery(topic string, msgs message.Messages) (sql.Query, error) {
	envs := make([]schema.Envelope, len(msgs))
	var faults []error
	for i, msg := range msgs {
		e, err := schema.FromTopic(topic, msg.UUID, msg.Metadata, msg.Payload, schema.OptionsFrom(msg.Context())...)
		switch {
		case err != nil:
			faults = append(faults, err)
		case keyed(e):
			faults = append(faults, unsupported(e.ID, "key"))
		case !e.DueAt.IsZero() || e.Delay != 0:
			faults = append(faults, unsupported(e.ID, "due_at"))
		}
		envs[i] = e
	}
	if len(faults) > 0 {
		return sql.Query{}, errors.Join(faults...)
	}
	limit, err := a.s.limitAside()
	if err != nil {
		return sql.Query{}, err
	}
	w, err := newAppending(envs, limit)
	if err != nil {
		return sql.Query{}, err
	}
	if w.single() {
		one := w.one()
		return sql.Query{Query: one.sql, Args: one.args}, nil
	}
	return sql.Query{Query: sqlInsert, Args: w.chunk(0, len(envs)).args(w.locks())}, nil
}

func unsupported(id, field string) error {
	return &schema.ValidationError{ID: schema.OneLine(id), Faults: []schema.Fault{{
		Field: field, Reason: "is not possible through watermill-sql: publish through the outbox",
	}}}
}

// SelectQuery reads one row, so that UnmarshalMessage is asked and can say why there is no message.
func (adapter) SelectQuery(string, string, sql.OffsetsAdapter) sql.Query {
	return sql.Query{Query: `SELECT 1`}
}

func (adapter) UnmarshalMessage(sql.Scanner) (sql.Row, error) {
	return sql.Row{}, fmt.Errorf("subscribe: %w", errPublishOnly)
}

// SchemaInitializingQueries are none: the tables come with MigrateUp, and are the same for all topics.
func (adapter) SchemaInitializingQueries(string) []sql.Query { return nil }

func (adapter) SubscribeIsolationLevel() stdsql.IsolationLevel { return stdsql.LevelDefault }
