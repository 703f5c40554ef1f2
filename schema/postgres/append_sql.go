package postgres

const (
	// sqlOrderLocks holds ordering keys until the caller's transaction ends.
	sqlOrderLocks = `SELECT count(pg_advisory_xact_lock(n)) FROM unnest($1::bigint[]) AS n`

	sqlOutbox = `INSERT INTO millbridge.outbox (seq, stream, slot, id, subject, order_lock, header, payload)`

	// sqlDrawn draws a sequence. Whoever has one has a transaction id, by which readers can wait for the end, and holds the
	// lock of the ordering key, if there is one, so that a key's sequences are in the order of its commits.
	sqlDrawn = `CASE WHEN pg_current_xact_id() IS NOT NULL AND ($5::bigint IS NULL OR pg_advisory_xact_lock($5::bigint) IS NOT NULL)
		THEN nextval('millbridge.outbox_seq') END`

	// sqlInsertOne is for one message, as most calls have it: values cost much less than a set.
	sqlInsertOne = sqlOutbox + `
		VALUES (` + sqlDrawn + `, $1::text, $2::integer, $3::uuid, $4::text, $5::bigint, $6::bytea, $7::bytea)`

	// sqlInsertKeyed writes one message if its key is new, and tells. It waits for other transactions that are about to use
	// the key.
	sqlInsertKeyed = `
		WITH k AS (
			INSERT INTO millbridge.keys (hash, body_hash, message_id, call) VALUES ($8::bytea, $9::bytea, $10::text, $11::uuid)
			ON CONFLICT (hash) DO NOTHING RETURNING 1
		)
		` + sqlOutbox + `
		SELECT ` + sqlDrawn + `, $1::text, $2::integer, $3::uuid, $4::text, $5::bigint, $6::bytea, $7::bytea FROM k
		RETURNING true`

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

	// sqlFirst comes before the drawing of the sequences of many rows, and is to them what sqlDrawn is to one.
	sqlFirst = `
		WITH x AS MATERIALIZED (
			SELECT pg_current_xact_id() IS NOT NULL AND count(pg_advisory_xact_lock(n)) IS NOT NULL AS ready FROM unnest($10::bigint[]) AS n
		)`

	// sqlRows are rows in their order. Headers and payloads come as one value, which costs both sides less than arrays.
	sqlRows = `
		unnest($1::text[]) AS stream, unnest($2::integer[]) AS slot, unnest($3::uuid[]) AS id, unnest($4::text[]) AS subject,
		unnest($5::bigint[]) AS lock, unnest($7::integer[]) AS at, unnest($8::integer[]) AS header, unnest($9::integer[]) AS payload`

	sqlColumns = `r.stream, r.slot, r.id, r.subject, nullif(r.lock, 0), substring($6::bytea, r.at, r.header),
		substring($6::bytea, r.at + r.header, r.payload)`

	sqlInsert = sqlFirst + sqlOutbox + `
		SELECT CASE WHEN r.ready THEN nextval('millbridge.outbox_seq') END, ` + sqlColumns + `
		  FROM (SELECT x.ready, ` + sqlRows + ` FROM x) AS r`
)

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
			  FROM (SELECT ` + sqlRows + `, unnest($11::bigint[]) AS due, unnest($12::bytea[]) AS key) AS r
			 WHERE (r.key = '' OR (SELECT k.call FROM millbridge.keys AS k WHERE k.hash = r.key) = $13::uuid)
			   AND NOT ` + sqlReused("$14", "$15") + `
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
