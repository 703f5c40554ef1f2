package postgres

const (
	// sqlOrderLocks holds ordering keys until the caller's transaction ends.
	sqlOrderLocks = `SELECT count(pg_advisory_xact_lock(n)) FROM unnest($1::bigint[]) AS n`

	// sqlTakeKeys waits for other transactions that are about to use one of the keys.
	sqlTakeKeys = `
		INSERT INTO millbridge.keys (hash, body_hash, message_id, call)
		SELECT hash, body_hash, message_id, $4::uuid
		  FROM unnest($1::bytea[], $2::bytea[], $3::text[]) AS t(hash, body_hash, message_id)
		ON CONFLICT (hash) DO NOTHING`

	// sqlReadKeys is a statement of its own because the one before cannot see what it waited for. OFFSET 0 has the keys
	// looked up one by one, however small the table was when the statement was planned.
	sqlReadKeys = `
		SELECT k.hash, k.message_id, k.body_hash, k.call = $2::uuid
		  FROM unnest($1::bytea[]) AS w(hash), LATERAL (SELECT * FROM millbridge.keys WHERE hash = w.hash OFFSET 0) AS k`

	sqlOutbox = `INSERT INTO millbridge.outbox (seq, stream, slot, id, subject, order_lock, header, payload)`

	// sqlFirst comes before the drawing of the sequences of many rows. Whoever has one has a transaction id, by which readers
	// can wait for the end, and holds the locks of the ordering keys, so that a key's sequences are in the order of its
	// commits.
	sqlFirst = `
		WITH x AS MATERIALIZED (
			SELECT pg_current_xact_id() IS NOT NULL AND count(pg_advisory_xact_lock(n)) IS NOT NULL AS ready FROM unnest($8::bigint[]) AS n
		)`

	// sqlRows are rows in their order.
	sqlRows = `
		unnest($1::text[]) AS stream, unnest($2::integer[]) AS slot, unnest($3::uuid[]) AS id, unnest($4::text[]) AS subject,
		unnest($5::bytea[]) AS header, unnest($6::bytea[]) AS payload, unnest($7::bigint[]) AS lock`

	sqlColumns = `r.stream, r.slot, r.id, r.subject, nullif(r.lock, 0), r.header, r.payload`

	sqlInsert = sqlFirst + sqlOutbox + `
		SELECT CASE WHEN r.ready THEN nextval('millbridge.outbox_seq') END, ` + sqlColumns + `
		  FROM (SELECT x.ready, ` + sqlRows + ` FROM x) AS r`
)

// What writes one message, as most calls have it. Values cost much less than a set. Each function and column that an
// insert names is prepared anew whenever it runs, so that what is only for ordering keys is only there.
var (
	sqlInsertOne          = sqlOne("", false)
	sqlInsertOrdered      = sqlOne("$7::bigint", false)
	sqlInsertKeyed        = sqlOne("", true)
	sqlInsertKeyedOrdered = sqlOne("$11::bigint", true)
)

// sqlOne writes one row, under the lock of an ordering key, if one is given. It is to one row what sqlFirst is to many.
// With an explicit idempotency key it writes it only if the key is new, and tells; it waits for other transactions that
// are about to use the key.
func sqlOne(lock string, keyed bool) string {
	ready, column, value := `pg_current_xact_id() IS NOT NULL`, ``, ``
	if lock != "" {
		ready, column, value = ready+` AND pg_advisory_xact_lock(`+lock+`) IS NOT NULL`, `, order_lock`, `, `+lock
	}
	into := `INSERT INTO millbridge.outbox (seq, stream, slot, id, subject, header, payload` + column + `)`
	row := `CASE WHEN ` + ready + ` THEN nextval('millbridge.outbox_seq') END,
		$1::text, $2::integer, $3::uuid, $4::text, $5::bytea, $6::bytea` + value
	if !keyed {
		return into + ` VALUES (` + row + `)`
	}
	return `
		WITH k AS (
			INSERT INTO millbridge.keys (hash, body_hash, message_id, call) VALUES ($7::bytea, $8::bytea, $9::text, $10::uuid)
			ON CONFLICT (hash) DO NOTHING RETURNING 1
		)
		` + into + ` SELECT ` + row + ` FROM k RETURNING true`
}

// sqlReused is whether one of the call's keys, in the parameters that are named, was used with other content. The scalar
// subquery, here and below, is for what OFFSET 0 is for above.
func sqlReused(hashes, bodies string) string {
	return `EXISTS (SELECT FROM unnest(` + hashes + `::bytea[], ` + bodies + `::bytea[]) AS w(hash, body_hash)
		WHERE (SELECT k.body_hash FROM millbridge.keys AS k WHERE k.hash = w.hash) <> w.body_hash)`
}

var (
	// sqlInsertSome also sorts out rows that wait for their time and rows whose key this call did not get. It writes
	// nothing if one of the call's keys was used with other content.
	sqlInsertSome = sqlFirst + `,
		r AS MATERIALIZED (
			SELECT r.*, CASE WHEN r.due > 0 THEN timestamptz 'epoch' + r.due * interval '1 microsecond'
			                 WHEN r.due < 0 THEN statement_timestamp() - r.due * interval '1 microsecond' END AS due_at
			  FROM (SELECT ` + sqlRows + `, unnest($9::bigint[]) AS due, unnest($10::bytea[]) AS key) AS r
			 WHERE (r.key = '' OR (SELECT k.call FROM millbridge.keys AS k WHERE k.hash = r.key) = $11::uuid)
			   AND NOT ` + sqlReused("$12", "$13") + `
		), later AS (
			INSERT INTO millbridge.scheduled (due_at, key_hash, stream, slot, id, subject, order_lock, header, payload)
			SELECT r.due_at, nullif(r.key, ''), ` + sqlColumns + ` FROM r WHERE r.due_at > statement_timestamp()
		)
		` + sqlOutbox + `
		SELECT nextval('millbridge.outbox_seq'), ` + sqlColumns + `
		  FROM x, r WHERE x.ready AND (r.due_at IS NULL OR r.due_at <= statement_timestamp())`

	// sqlReturnKeys undoes sqlTakeKeys if one of the keys was used with other content: the rows were not written.
	sqlReturnKeys = `
		DELETE FROM millbridge.keys WHERE hash = ANY ($1::bytea[]) AND call = $3::uuid AND ` + sqlReused("$1", "$2")
)
