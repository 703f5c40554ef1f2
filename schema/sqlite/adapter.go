package sqlite

import (
	"context"
	stdsql "database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millbridge/millbridge/schema"
)

// SchemaAdapter returns an adapter with which watermill-sql's Publisher writes to the outbox, in whatever transaction it
// was made with. Topics are those of [schema.FromTopic]; a message's UUID becomes its id; [schema.ContextWithOptions] on
// the message's context sets the rest. Messages with an explicit idempotency key or a time to wait for need several
// statements and are refused: use [Store.Append].
//
// It is for publishing only. Messages are read through the forwarder: a table that watermill-sql's Subscriber reads from
// must keep what was read, and ours does not.
//
// The Publisher prints the arguments of its statements, payloads included, to its logger at trace level: give it one
// that drops them.
func (s *Store) SchemaAdapter() sql.SchemaAdapter { return adapter{s} }

type adapter struct{ s *Store }

var errPublishOnly = errors.New("the outbox is read by Millbridge's forwarder, not by watermill-sql's Subscriber: subscribe to JetStream")

// adapterWait bounds the look for the payload limit: the Publisher has no context to pass.
const adapterWait = 5 * time.Second

func (a adapter) InsertQuery(topic string, msgs message.Messages) (sql.Query, error) {
	envs, err := fromMessages(topic, msgs)
	if err != nil {
		return sql.Query{}, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), adapterWait)
	defer cancel()
	now := a.s.opts.Now()
	limit, err := a.s.limit.get(ctx, a.s.read, limitReading, now)
	if err != nil {
		return sql.Query{}, wrap("read payload limit", err)
	}
	envs = withTime(envs, now)
	if err := validate(envs, limit); err != nil {
		return sql.Query{}, err
	}
	return insertQuery(envs, now)
}

func fromMessages(topic string, msgs message.Messages) ([]schema.Envelope, error) {
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
	return envs, errors.Join(faults...)
}

func unsupported(id, field string) error {
	return &schema.ValidationError{ID: schema.OneLine(id), Faults: []schema.Fault{{
		Field: field, Reason: "is not possible through watermill-sql: publish through the outbox",
	}}}
}

// insertQuery puts all rows into one variable, since the Publisher runs one statement and a statement has few variables.
func insertQuery(envs []schema.Envelope, now time.Time) (sql.Query, error) {
	rows := make([][rowFields]any, len(envs))
	for i, e := range envs {
		r := schema.NewRow(e)
		rows[i] = [rowFields]any{
			hex.EncodeToString(r.ID[:]), r.Stream, r.Slot, r.Subject, orderLock(r), now.UnixNano(),
			hex.EncodeToString(r.Header), hex.EncodeToString(r.Payload),
		}
	}
	text, err := json.Marshal(rows)
	if err != nil {
		return sql.Query{}, fmt.Errorf("encode rows: %w", err)
	}
	return sql.Query{
		Query: "INSERT INTO millbridge_outbox (" + rowColumns + `)
			SELECT unhex(value ->> 0), value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, unhex(value ->> 6), unhex(value ->> 7)
			FROM json_each(?) ORDER BY key`,
		Args: []any{string(text)},
	}, nil
}

// SelectQuery reads one row, so that UnmarshalMessage is asked and can say why there is no message.
func (adapter) SelectQuery(string, string, sql.OffsetsAdapter) sql.Query {
	return sql.Query{Query: "SELECT 1"}
}

func (adapter) UnmarshalMessage(sql.Scanner) (sql.Row, error) {
	return sql.Row{}, fmt.Errorf("subscribe: %w", errPublishOnly)
}

// SchemaInitializingQueries are none: the tables come with MigrateUp, and are the same for all topics.
func (adapter) SchemaInitializingQueries(string) []sql.Query { return nil }

func (adapter) SubscribeIsolationLevel() stdsql.IsolationLevel { return stdsql.LevelDefault }
