package postgres

const (
	// sqlOrderLocks holds ordering keys until the caller's transaction ends.
	sqlOrderLocks = `SELECT count(pg_advisory_xact_lock(n)) FROM unnest($1::bigint[]) AS n`

	// sqlTakeKeys waits for other transactions that are about to use one of the keys.
	sqlTakeKeys = `
		INSERT INTO millbridge.keys (hash, body_hash, message_id, call)
		SELECT hash, body_hash, message_id, $4::text::uuid
		  FROM unnest($1::bytea[], $2::bytea[], $3::text[]) AS t(hash, body_hash, message_id)
		ON CONFLICT (hash) DO NOTHING`

	// sqlReadKeys is a statement of its own because the one before cannot see what it waited for.
	sqlReadKeys = `
		SELECT hash, message_id, body_hash, call = $2::text::uuid
		  FROM millbridge.keys WHERE hash = ANY ($1::bytea[])`

	// sqlReturnKeys undoes sqlTakeKeys if one of the keys was used with other content: the rows were not written.
	sqlReturnKeys = `
		DELETE FROM millbridge.keys
		 WHERE hash = ANY ($1::bytea[]) AND call = $3::text::uuid
		   AND EXISTS (SELECT FROM unnest($1::bytea[], $2::bytea[]) AS w(hash, body_hash)
		                 JOIN millbridge.keys AS k ON k.hash = w.hash WHERE k.body_hash <> w.body_hash)`

	// sqlFirst comes before the drawing of sequences. Whoever draws one has a transaction id, by which readers can wait for
	// the end, and holds the locks of the ordering keys, so that a key's sequences are in the order of its commits.
	sqlFirst = `
		WITH x AS MATERIALIZED (
			SELECT pg_current_xact_id() AS id, (SELECT count(pg_advisory_xact_lock(n)) FROM unnest($8::bigint[]) AS n) AS locks
		)`

	sqlInsert = sqlFirst + `
		INSERT INTO millbridge.outbox (seq, stream, slot, id, subject, order_lock, header, payload)
		SELECT nextval('millbridge.outbox_seq'), r.stream, r.slot, r.id::uuid, r.subject, nullif(r.order_lock, 0), r.header, r.payload
		  FROM (SELECT t.*
		          FROM x, unnest($1::text[], $2::integer[], $3::text[], $4::text[], $5::bigint[], $6::bytea[], $7::bytea[])
		               WITH ORDINALITY AS t(stream, slot, id, subject, order_lock, header, payload, n)
		         WHERE x.id IS NOT NULL AND x.locks IS NOT NULL
		         ORDER BY t.n) AS r`

	// sqlInsertSome also sorts out rows that wait for their time and rows whose key this call did not get. It writes
	// nothing if one of the call's keys was used with other content.
	sqlInsertSome = sqlFirst + `,
		t AS MATERIALIZED (
			SELECT t.*, CASE WHEN t.due > 0 THEN timestamptz 'epoch' + t.due * interval '1 microsecond'
			                 WHEN t.due < 0 THEN statement_timestamp() - t.due * interval '1 microsecond' END AS due_at
			  FROM unnest($1::text[], $2::integer[], $3::text[], $4::text[], $5::bigint[], $6::bytea[], $7::bytea[], $9::bigint[], $10::bytea[])
			       WITH ORDINALITY AS t(stream, slot, id, subject, order_lock, header, payload, due, key, n)
			 WHERE (t.key = '' OR EXISTS (SELECT FROM millbridge.keys AS k WHERE k.hash = t.key AND k.call = $11::text::uuid))
			   AND NOT EXISTS (SELECT FROM unnest($12::bytea[], $13::bytea[]) AS w(hash, body_hash)
			                     JOIN millbridge.keys AS k ON k.hash = w.hash WHERE k.body_hash <> w.body_hash)
		), later AS (
			INSERT INTO millbridge.scheduled (due_at, stream, slot, id, subject, order_lock, header, payload, key_hash)
			SELECT due_at, stream, slot, id::uuid, subject, nullif(order_lock, 0), header, payload, nullif(key, '')
			  FROM t WHERE due_at > statement_timestamp() ORDER BY n
		)
		INSERT INTO millbridge.outbox (seq, stream, slot, id, subject, order_lock, header, payload)
		SELECT nextval('millbridge.outbox_seq'), r.stream, r.slot, r.id::uuid, r.subject, nullif(r.order_lock, 0), r.header, r.payload
		  FROM (SELECT t.* FROM x, t
		         WHERE x.id IS NOT NULL AND x.locks IS NOT NULL AND (t.due_at IS NULL OR t.due_at <= statement_timestamp())
		         ORDER BY t.n) AS r`
)
