package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/millbridge/millbridge/schema"
)

// ShardRows lists rows of a shard without their payloads, by sequence and id, after the named one. Rows that are not
// ready to be sent are among them.
func (s *Store) ShardRows(ctx context.Context, ref schema.ShardRef, shards int, after schema.RowName, limit int) ([]schema.Row, error) {
	first, last := ref.Slots(shards)
	var all []schema.Row
	err := pgxRunner{s.pool}.run(ctx, byIndex, statement{
		sql: `SELECT seq, id, slot, subject, coalesce(order_lock, 0), header, created_at FROM millbridge.outbox
			WHERE stream = $1::text AND seq >= $2::bigint AND slot BETWEEN $3::integer AND $4::integer
			  AND (seq > $2::bigint OR id > $5::text::uuid)
			ORDER BY seq, id LIMIT $6::bigint`,
		args: []any{string(ref.Stream), after.Seq, first, last, after.ID.String(), limit},
		each: func(rows rowSet) error {
			row := schema.Row{Stream: ref.Stream}
			var id [16]byte
			var slot int32
			var created time.Time
			err := rows.Scan(&row.Seq, &id, &slot, &row.Subject, &row.OrderLock, &row.Header, &created)
			row.ID, row.Slot, row.CreatedAt = id, uint16(slot), created.UTC()
			all = append(all, row)
			return err
		},
	})
	return all, wrap("list rows of shard", err)
}

// RepairShard sets a shard's ledger, whatever it was, and removes and parks rows. [schema.ErrLeaseLost] if the shard
// has another owner.
func (s *Store) RepairShard(ctx context.Context, p schema.RepairParams) error {
	err := s.InTx(ctx, func(tx pgx.Tx) error {
		if err := (pgxRunner{tx}).run(ctx, durablyByIndex); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, `
			UPDATE millbridge.shards
			   SET batch = $5::bigint, total = $6::bigint, cursor_seq = $7::bigint, ledger_owner = $4::text, updated_at = clock_timestamp()
			 WHERE stream = $1::text AND generation = $2::integer AND shard = $3::integer AND owner = $4::text`,
			string(p.Stream), p.Generation, p.Shard, p.Owner, p.Batch, p.Total, int64(p.CursorSeq))
		if err != nil {
			return err
		}
		if tag.RowsAffected() != 1 {
			return leaseLost()
		}
		for _, do := range []struct {
			sql   string
			names []schema.RowName
			more  []any
		}{
			{sqlRepairRemove, p.Remove, nil},
			{sqlRepairPark, p.Park, []any{schema.OneLine(p.Reason)}},
			{sqlRepairRemoveScheduled, p.RemoveScheduled, nil},
			{sqlRepairParkScheduled, p.ParkScheduled, []any{schema.OneLine(p.Reason)}},
		} {
			if len(do.names) == 0 {
				continue
			}
			seqs, ids := columns(do.names)
			if _, err := tx.Exec(ctx, do.sql, append([]any{string(p.Stream), seqs, ids}, do.more...)...); err != nil {
				return err
			}
		}
		return nil
	})
	return wrap(fmt.Sprintf("repair shard %s/%d", p.Stream, p.Shard), err)
}

const (
	sqlRepairRemove = `
		DELETE FROM millbridge.outbox AS o USING unnest($2::bigint[], $3::uuid[]) AS n(seq, id)
		 WHERE o.stream = $1::text AND o.seq = n.seq AND o.id = n.id`
	sqlRepairPark = `
		WITH gone AS (
			DELETE FROM millbridge.outbox AS o USING unnest($2::bigint[], $3::uuid[]) AS n(seq, id)
			 WHERE o.stream = $1::text AND o.seq = n.seq AND o.id = n.id
			RETURNING o.*
		)
		INSERT INTO millbridge.parked (seq, created_at, order_lock, id, slot, behind, stream, subject, header, payload, reason)
		SELECT seq, created_at, order_lock, id, slot, false, stream, subject, header, payload, $4::text FROM gone`
	sqlRepairRemoveScheduled = `
		DELETE FROM millbridge.scheduled AS s USING unnest($2::bigint[], $3::uuid[]) AS n(seq, id)
		 WHERE s.stream = $1::text AND s.seq = n.seq AND s.id = n.id`
	// A parked row has a number of the outbox, by which it holds back what follows it in its ordering key.
	sqlRepairParkScheduled = `
		WITH gone AS (
			DELETE FROM millbridge.scheduled AS s USING unnest($2::bigint[], $3::uuid[]) AS n(seq, id)
			 WHERE s.stream = $1::text AND s.seq = n.seq AND s.id = n.id
			RETURNING s.*
		)
		INSERT INTO millbridge.parked (seq, created_at, order_lock, id, slot, behind, stream, subject, header, payload, reason)
		SELECT nextval('millbridge.outbox_seq'), r.created_at, r.order_lock, r.id, r.slot, false, r.stream, r.subject, r.header, r.payload, $4::text
		  FROM (SELECT * FROM gone ORDER BY due_at, seq) AS r`
)

// Rebind says that this database is the one that the outbox id belongs to: it replaces the original.
func (s *Store) Rebind(ctx context.Context) error {
	_, err := s.pool.Exec(ctx, `
		UPDATE millbridge.meta
		   SET system_id = (SELECT system_identifier FROM pg_catalog.pg_control_system()),
		       database_oid = (SELECT oid::bigint FROM pg_catalog.pg_database WHERE datname = current_database())`)
	return wrap("bind outbox", err)
}

// NewOutbox gives this database's outbox an id of its own, with ledgers that begin anew. Rows stay. The former id is
// left to the original that this database was copied from.
func (s *Store) NewOutbox(ctx context.Context) (id string, err error) {
	err = pgxRunner{s.pool}.run(ctx, durably,
		statement{sql: `UPDATE millbridge.shards SET owner = '', lease_until = '-infinity', ledger_owner = '', batch = 0, total = 0,
			cursor_seq = 0, updated_at = clock_timestamp()`},
		statement{sql: `DELETE FROM millbridge.owners`},
		// What was settled before was sent by the other.
		statement{sql: `UPDATE millbridge.inbox SET stream_seq = NULL WHERE stream_seq IS NOT NULL`},
		statement{sql: `DELETE FROM millbridge.settled WHERE stream_seq > 0`},
		statement{sql: `DELETE FROM millbridge.counts`},
		// What the other's processes have agreed on.
		statement{sql: `DELETE FROM millbridge.leases`},
		statement{sql: `DELETE FROM millbridge.rates`},
		statement{sql: `DELETE FROM millbridge.circuits WHERE disabled_at IS NULL`}, // what is disabled waits for a person
		statement{sql: `
			UPDATE millbridge.meta
			   SET outbox_id = (SELECT string_agg(substr('abcdefghijklmnopqrstuvwxyz0123456789', 1 + floor(random() * 36)::integer, 1), '')
			                      FROM generate_series(1, 16)),
			       system_id = (SELECT system_identifier FROM pg_catalog.pg_control_system()),
			       database_oid = (SELECT oid::bigint FROM pg_catalog.pg_database WHERE datname = current_database())
			RETURNING outbox_id`, each: scan(&id)})
	return id, wrap("begin a new outbox", err)
}
