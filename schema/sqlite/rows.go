package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/millbridge/millbridge/schema"
)

// rowColumns are the columns that outbox, scheduled and parked share, but for seq.
const rowColumns = "id, stream, slot, subject, order_lock, created_at, header, payload"

const rowFields = 8 // number of rowColumns

// chunk is how many rows one statement inserts or names; at 10 variables a row that is far from SQLite's limit of 32,766.
const chunk = 500

// insertRows writes rows into table in their order, with extra columns whose values more returns.
func insertRows(ctx context.Context, tx *sql.Tx, table string, rows []schema.Row, now int64, extra string, more func(i int) any) error {
	columns, fields := rowColumns, rowFields
	if extra != "" {
		columns, fields = columns+", "+extra, fields+1
	}
	marks := "(" + strings.TrimSuffix(strings.Repeat("?,", fields), ",") + ")"
	args := make([]any, 0, min(len(rows), chunk)*fields)
	for start := 0; start < len(rows); start += chunk {
		end := min(start+chunk, len(rows))
		args = args[:0]
		for i, r := range rows[start:end] {
			args = append(args, rowArgs(r, now)...)
			if more != nil {
				args = append(args, more(start+i))
			}
		}
		query := "INSERT INTO " + table + " (" + columns + ") VALUES " + marks + strings.Repeat(","+marks, end-start-1)
		if _, err := tx.ExecContext(ctx, query, args...); err != nil {
			return err
		}
	}
	return nil
}

// rowArgs returns the values of rowColumns.
func rowArgs(r schema.Row, now int64) []any {
	payload := r.Payload
	if payload == nil {
		payload = []byte{} // nil is NULL
	}
	return []any{r.ID[:], string(r.Stream), int64(r.Slot), r.Subject, orderLock(r), now, r.Header, payload}
}

func orderLock(r schema.Row) any {
	if r.OrderLock == 0 {
		return nil
	}
	return r.OrderLock
}

// scanRow reads seq, rowColumns and then more.
func scanRow(rows *sql.Rows, r *schema.Row, more ...any) error {
	var id []byte
	var stream string
	var order sql.NullInt64
	var created int64
	dest := append([]any{&r.Seq, &id, &stream, &r.Slot, &r.Subject, &order, &created, &r.Header, &r.Payload}, more...)
	if err := rows.Scan(dest...); err != nil {
		return err
	}
	if len(id) != len(r.ID) {
		return fmt.Errorf("row %d has an id of %d bytes", r.Seq, len(id))
	}
	r.ID, r.Stream, r.OrderLock, r.CreatedAt = schema.UUID(id), schema.Stream(stream), order.Int64, at(created)
	return nil
}
