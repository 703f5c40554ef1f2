CREATE TABLE IF NOT EXISTS millbridge_migrations (
  version    INTEGER PRIMARY KEY,
  applied_at INTEGER NOT NULL
) STRICT;

CREATE TABLE millbridge_meta (
  one               INTEGER PRIMARY KEY CHECK (one = 1),
  outbox_id         TEXT    NOT NULL,
  max_payload       INTEGER NOT NULL,
  jobs_generation   INTEGER NOT NULL,
  jobs_shards       INTEGER NOT NULL,
  events_generation INTEGER NOT NULL,
  events_shards     INTEGER NOT NULL,
  flushes           INTEGER NOT NULL
) STRICT;

INSERT INTO millbridge_meta VALUES (1, lower(hex(randomblob(8))), 983040, 1, 1, 1, 1, 0);

-- A row is a message that is not yet in its stream. AUTOINCREMENT, so that the number of a removed row is not used again.
CREATE TABLE millbridge_outbox (
  seq        INTEGER PRIMARY KEY AUTOINCREMENT,
  id         BLOB    NOT NULL CHECK (length(id) = 16),
  stream     TEXT    NOT NULL,
  slot       INTEGER NOT NULL,
  subject    TEXT    NOT NULL,
  order_lock INTEGER,
  created_at INTEGER NOT NULL,
  header     BLOB    NOT NULL,
  payload    BLOB    NOT NULL
) STRICT;

CREATE INDEX millbridge_outbox_stream ON millbridge_outbox (stream);
CREATE INDEX millbridge_outbox_order ON millbridge_outbox (order_lock) WHERE order_lock IS NOT NULL;

CREATE TABLE millbridge_scheduled (
  seq        INTEGER PRIMARY KEY AUTOINCREMENT,
  id         BLOB    NOT NULL CHECK (length(id) = 16),
  stream     TEXT    NOT NULL,
  slot       INTEGER NOT NULL,
  subject    TEXT    NOT NULL,
  order_lock INTEGER,
  created_at INTEGER NOT NULL,
  header     BLOB    NOT NULL,
  payload    BLOB    NOT NULL,
  due_at     INTEGER NOT NULL
) STRICT;

CREATE INDEX millbridge_scheduled_due ON millbridge_scheduled (due_at);
CREATE INDEX millbridge_scheduled_id ON millbridge_scheduled (id);

-- seq is the number the row had in the outbox; it keeps the order within a key.
CREATE TABLE millbridge_parked (
  seq        INTEGER NOT NULL,
  id         BLOB    NOT NULL CHECK (length(id) = 16),
  stream     TEXT    NOT NULL,
  slot       INTEGER NOT NULL,
  subject    TEXT    NOT NULL,
  order_lock INTEGER,
  created_at INTEGER NOT NULL,
  header     BLOB    NOT NULL,
  payload    BLOB    NOT NULL,
  reason     TEXT    NOT NULL,
  behind     INTEGER NOT NULL,
  parked_at  INTEGER NOT NULL,
  PRIMARY KEY (seq, id)
) STRICT;

CREATE INDEX millbridge_parked_id ON millbridge_parked (id);
CREATE INDEX millbridge_parked_order ON millbridge_parked (order_lock, seq) WHERE order_lock IS NOT NULL;

-- Explicit idempotency keys.
CREATE TABLE millbridge_keys (
  key_hash   BLOB    PRIMARY KEY CHECK (length(key_hash) = 32),
  message_id TEXT    NOT NULL,
  body_hash  BLOB    NOT NULL,
  used_at    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX millbridge_keys_used ON millbridge_keys (used_at);

-- The ledger.
CREATE TABLE millbridge_shards (
  stream       TEXT    NOT NULL,
  generation   INTEGER NOT NULL,
  shard        INTEGER NOT NULL,
  owner        TEXT    NOT NULL DEFAULT '',
  ledger_owner TEXT    NOT NULL DEFAULT '',
  batch        INTEGER NOT NULL DEFAULT 0,
  total        INTEGER NOT NULL DEFAULT 0,
  cursor_seq   INTEGER NOT NULL DEFAULT 0,
  updated_at   INTEGER NOT NULL,
  PRIMARY KEY (stream, generation, shard)
) STRICT;

INSERT INTO millbridge_shards (stream, generation, shard, updated_at)
VALUES ('jobs', 1, 0, unixepoch() * 1000000000), ('events', 1, 0, unixepoch() * 1000000000);

-- Every token that was handed out since the one the ledger names.
CREATE TABLE millbridge_owners (
  number      INTEGER PRIMARY KEY AUTOINCREMENT,
  token       TEXT    NOT NULL,
  stream      TEXT    NOT NULL,
  generation  INTEGER NOT NULL,
  shard       INTEGER NOT NULL,
  acquired_at INTEGER NOT NULL,
  UNIQUE (stream, generation, shard, token)
) STRICT;

CREATE TABLE millbridge_inbox (
  key_hash    BLOB    PRIMARY KEY CHECK (length(key_hash) = 32),
  handler     TEXT    NOT NULL,
  state       TEXT    NOT NULL,
  message_id  TEXT    NOT NULL,
  body_hash   BLOB    NOT NULL,
  attempts    INTEGER NOT NULL DEFAULT 0,
  deliveries  INTEGER NOT NULL DEFAULT 0,
  replay      INTEGER NOT NULL DEFAULT 0,
  cause       TEXT    NOT NULL DEFAULT '',
  last_error  TEXT    NOT NULL DEFAULT '',
  lease_owner TEXT,
  lease_until INTEGER NOT NULL DEFAULT 0,
  next_try    INTEGER NOT NULL DEFAULT 0,
  updated_at  INTEGER NOT NULL,
  since       INTEGER NOT NULL, -- from when on its age counts; the end of a run does not change it, nor any index
  stream_seq  INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

CREATE INDEX millbridge_inbox_message ON millbridge_inbox (message_id);
CREATE INDEX millbridge_inbox_since ON millbridge_inbox (since);

-- Rows of the inbox by handler and state: counting millions of them would take seconds.
CREATE TABLE millbridge_inbox_counts (
  handler TEXT    NOT NULL,
  state   TEXT    NOT NULL,
  rows    INTEGER NOT NULL,
  PRIMARY KEY (handler, state)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER millbridge_inbox_insert AFTER INSERT ON millbridge_inbox BEGIN
  INSERT INTO millbridge_inbox_counts VALUES (new.handler, new.state, 1)
  ON CONFLICT (handler, state) DO UPDATE SET rows = rows + 1;
END;

CREATE TRIGGER millbridge_inbox_update AFTER UPDATE OF state ON millbridge_inbox WHEN old.state <> new.state BEGIN
  UPDATE millbridge_inbox_counts SET rows = rows - 1 WHERE handler = old.handler AND state = old.state;
  INSERT INTO millbridge_inbox_counts VALUES (new.handler, new.state, 1)
  ON CONFLICT (handler, state) DO UPDATE SET rows = rows + 1;
END;

CREATE TRIGGER millbridge_inbox_delete AFTER DELETE ON millbridge_inbox BEGIN
  UPDATE millbridge_inbox_counts SET rows = rows - 1 WHERE handler = old.handler AND state = old.state;
END;

-- What verify needs to know of messages that no inbox row stands for any more: earlier lives of those that were replayed,
-- second messages of a key, what could not be read. Without a sequence: parked rows that an operator dropped.
CREATE TABLE millbridge_settled (
  message_id TEXT    NOT NULL,
  stream_seq INTEGER NOT NULL,
  handler    TEXT    NOT NULL,
  settled_at INTEGER NOT NULL,
  PRIMARY KEY (message_id, stream_seq)
) STRICT, WITHOUT ROWID;

CREATE INDEX millbridge_settled_seq ON millbridge_settled (stream_seq);
CREATE INDEX millbridge_settled_age ON millbridge_settled (settled_at);

-- What is only counted: settled jobs that were forgotten after their time (by handler), differences that an operator
-- has accepted (by stream).
CREATE TABLE millbridge_counts (
  what TEXT    NOT NULL,
  name TEXT    NOT NULL,
  n    INTEGER NOT NULL,
  PRIMARY KEY (what, name)
) STRICT, WITHOUT ROWID;

-- Who has what only one process is to have at a time.
CREATE TABLE millbridge_leases (
  name        TEXT    PRIMARY KEY,
  owner       TEXT    NOT NULL,
  taken_at    INTEGER NOT NULL, -- or renewed
  lease_until INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX millbridge_leases_age ON millbridge_leases (lease_until);

-- When what is limited in its rate over all processes may start next.
CREATE TABLE millbridge_rates (
  name     TEXT    PRIMARY KEY,
  next_at  INTEGER NOT NULL,
  taken_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Handlers that have failed, how often in a row and since when; since when nothing but a probe is handed to them, or
-- nothing at all until an operator enables them. A time of 0 is none.
CREATE TABLE millbridge_circuits (
  handler     TEXT    PRIMARY KEY,
  failures    INTEGER NOT NULL,
  failing_at  INTEGER NOT NULL,
  opened_at   INTEGER NOT NULL,
  probe_at    INTEGER NOT NULL,
  disabled_at INTEGER NOT NULL,
  reason      TEXT    NOT NULL
) STRICT, WITHOUT ROWID;

-- Sagas as they stand, and what led there. State and intents are JSON.
CREATE TABLE millbridge_sagas (
  saga       TEXT    NOT NULL,
  id         TEXT    NOT NULL,
  tenant     TEXT    NOT NULL,
  status     TEXT    NOT NULL,
  step       TEXT    NOT NULL,
  state      TEXT    NOT NULL,
  version    INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  PRIMARY KEY (saga, id)
) STRICT, WITHOUT ROWID;

CREATE INDEX millbridge_sagas_age ON millbridge_sagas (updated_at) WHERE status IN ('done', 'compensated');

CREATE TABLE millbridge_saga_events (
  saga      TEXT    NOT NULL,
  id        TEXT    NOT NULL,
  n         INTEGER NOT NULL,
  at        INTEGER NOT NULL,
  step      TEXT    NOT NULL,
  kind      TEXT    NOT NULL,
  rationale TEXT    NOT NULL,
  intents   TEXT    NOT NULL,
  state     TEXT    NOT NULL,
  PRIMARY KEY (saga, id, n)
) STRICT, WITHOUT ROWID;

INSERT INTO millbridge_migrations VALUES (1, unixepoch() * 1000000000);
