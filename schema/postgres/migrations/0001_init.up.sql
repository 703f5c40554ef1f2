-- A DBA may have created the schema for us: CREATE SCHEMA IF NOT EXISTS would still ask for the right to create one.
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = 'millbridge') THEN
        CREATE SCHEMA millbridge;
    END IF;
END
$$;

CREATE TABLE millbridge.migrations (
    version    integer     PRIMARY KEY,
    applied_at timestamptz NOT NULL DEFAULT now()
);
INSERT INTO millbridge.migrations (version) VALUES (1);

-- One row: what belongs to the whole outbox. The system identifier and the database's oid show a copy for what it is.
CREATE TABLE millbridge.meta (
    only_row          boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    outbox_id         text    NOT NULL,
    system_id         bigint  NOT NULL,
    database_oid      bigint  NOT NULL,
    max_payload       integer NOT NULL DEFAULT 983040,
    jobs_generation   integer NOT NULL DEFAULT 1,
    jobs_shards       integer NOT NULL DEFAULT 2 CHECK (jobs_shards BETWEEN 1 AND 32),
    events_generation integer NOT NULL DEFAULT 1,
    events_shards     integer NOT NULL DEFAULT 2 CHECK (events_shards BETWEEN 1 AND 32)
);
INSERT INTO millbridge.meta (outbox_id, system_id, database_oid)
SELECT (SELECT string_agg(substr('abcdefghijklmnopqrstuvwxyz0123456789', 1 + floor(random() * 36)::integer, 1), '')
          FROM generate_series(1, 16)),
       (SELECT system_identifier FROM pg_catalog.pg_control_system()),
       (SELECT oid::bigint FROM pg_catalog.pg_database WHERE datname = current_database());

-- Emptied by the server whenever it recovers from a crash, a restore or a fail-over: that is how readers notice.
CREATE UNLOGGED TABLE millbridge.epoch (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    token    uuid    NOT NULL DEFAULT gen_random_uuid()
);
INSERT INTO millbridge.epoch DEFAULT VALUES;

-- CACHE 1: with a larger one a session would draw numbers below those of commits it has seen.
CREATE SEQUENCE millbridge.outbox_seq AS bigint CACHE 1;

-- Messages that are not yet in their stream. Rows live for milliseconds; vacuum must not wait for a share of the table.
-- No CHECK constraints: each statement that inserts parses and plans them anew, for a fifth of what a message costs. No
-- second index: a partial one costs a tenth of a message without an ordering key, too. The key begins with the number,
-- which costs less to compare than text.
CREATE TABLE millbridge.outbox (
    seq        bigint      NOT NULL DEFAULT nextval('millbridge.outbox_seq'),
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    order_lock bigint,
    id         uuid        NOT NULL,
    slot       integer     NOT NULL,
    stream     text        COLLATE "C" NOT NULL,
    subject    text        NOT NULL,
    header     bytea       NOT NULL,
    payload    bytea       NOT NULL,
    PRIMARY KEY (seq, stream, slot, id)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0,
        autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 50000);
ALTER TABLE millbridge.outbox ALTER COLUMN payload SET STORAGE EXTERNAL;
ALTER SEQUENCE millbridge.outbox_seq OWNED BY millbridge.outbox.seq;

CREATE TABLE millbridge.scheduled (
    seq        bigint      GENERATED ALWAYS AS IDENTITY,
    due_at     timestamptz NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    order_lock bigint,
    id         uuid        NOT NULL,
    slot       integer     NOT NULL,
    stream     text        COLLATE "C" NOT NULL,
    subject    text        NOT NULL,
    header     bytea       NOT NULL,
    payload    bytea       NOT NULL,
    key_hash   bytea,
    PRIMARY KEY (id, seq)
);
CREATE INDEX scheduled_due ON millbridge.scheduled (due_at, seq);

CREATE TABLE millbridge.parked (
    seq        bigint      NOT NULL,
    created_at timestamptz NOT NULL,
    parked_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    order_lock bigint,
    id         uuid        NOT NULL,
    slot       integer     NOT NULL,
    behind     boolean     NOT NULL,
    stream     text        COLLATE "C" NOT NULL,
    subject    text        NOT NULL,
    header     bytea       NOT NULL,
    payload    bytea       NOT NULL,
    reason     text        NOT NULL,
    PRIMARY KEY (id, seq)
);
CREATE INDEX parked_seq ON millbridge.parked (seq);
CREATE INDEX parked_order_lock ON millbridge.parked (order_lock, seq) WHERE order_lock IS NOT NULL;

-- Explicit idempotency keys that were published. call tells keys that a call has just written from those it found.
CREATE TABLE millbridge.keys (
    hash       bytea       PRIMARY KEY,
    body_hash  bytea       NOT NULL,
    call       uuid        NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    message_id text        NOT NULL
);
CREATE INDEX keys_created_at ON millbridge.keys (created_at);

-- Lease and ledger of each shard, and the tokens of those who owned it.
CREATE TABLE millbridge.shards (
    stream       text        COLLATE "C" NOT NULL,
    generation   integer     NOT NULL,
    shard        integer     NOT NULL,
    owner        text        NOT NULL DEFAULT '',
    leased_at    timestamptz NOT NULL DEFAULT '-infinity', -- or renewed
    lease_until  timestamptz NOT NULL DEFAULT '-infinity',
    ledger_owner text        NOT NULL DEFAULT '',
    batch        bigint      NOT NULL DEFAULT 0,
    total        bigint      NOT NULL DEFAULT 0,
    cursor_seq   bigint      NOT NULL DEFAULT 0,
    updated_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (stream, generation, shard)
) WITH (fillfactor = 50);
INSERT INTO millbridge.shards (stream, generation, shard)
SELECT stream, 1, shard FROM unnest(ARRAY['jobs', 'events']) AS stream, generate_series(0, 1) AS shard;

CREATE TABLE millbridge.owners (
    n           bigint      GENERATED ALWAYS AS IDENTITY,
    stream      text        COLLATE "C" NOT NULL,
    generation  integer     NOT NULL,
    shard       integer     NOT NULL,
    token       text        NOT NULL,
    acquired_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (stream, generation, shard, token)
);

-- What has been handled, per handler and idempotency key. Nothing that is indexed changes between the claim of a key and
-- its end, so that the end costs no index entries: since is when the key came first, and infinity while it is dead.
CREATE TABLE millbridge.inbox (
    hash        bytea       PRIMARY KEY,
    body_hash   bytea       NOT NULL,
    since       timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    lease_until timestamptz,
    next_try    timestamptz,
    deliveries  bigint      NOT NULL DEFAULT 0,
    attempts    integer     NOT NULL DEFAULT 0,
    replay      integer     NOT NULL DEFAULT 0,
    state       text        COLLATE "C" NOT NULL, -- running, done, dead, dropped; a CHECK would be planned at each insert
    handler     text        NOT NULL,
    message_id  text        NOT NULL,
    cause       text        NOT NULL DEFAULT '',
    last_error  text        NOT NULL DEFAULT '',
    owner       text,
    stream_seq  bigint
) WITH (fillfactor = 75);
CREATE INDEX inbox_message_id ON millbridge.inbox (message_id);
CREATE INDEX inbox_since ON millbridge.inbox (since);

-- What verify needs to know of messages that no inbox row stands for any more: earlier lives of those that were replayed,
-- second messages of a key, what could not be read. Without a sequence: parked rows that an operator dropped.
CREATE TABLE millbridge.settled (
    stream_seq bigint      NOT NULL,
    message_id text        NOT NULL,
    handler    text        NOT NULL,
    settled_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (message_id, stream_seq)
);
CREATE INDEX settled_seq ON millbridge.settled (stream_seq);
CREATE INDEX settled_at ON millbridge.settled (settled_at);

-- Rows of a stock Watermill outbox that hold no message that can be sent. They stay in their own table.
CREATE TABLE millbridge.stock_left (
    topic          text        COLLATE "C" NOT NULL,
    transaction_id xid8        NOT NULL,
    "offset"       bigint      NOT NULL,
    reason         text        NOT NULL,
    noted_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (topic, "offset", transaction_id)
);

-- What is only counted: settled jobs that were forgotten after their time (by handler), differences that an operator
-- has accepted (by stream).
CREATE TABLE millbridge.counts (
    what text   COLLATE "C" NOT NULL,
    name text   COLLATE "C" NOT NULL,
    n    bigint NOT NULL,
    PRIMARY KEY (what, name)
);

-- Who has what only one process is to have at a time.
CREATE TABLE millbridge.leases (
    name        text        COLLATE "C" PRIMARY KEY,
    owner       text        NOT NULL,
    taken_at    timestamptz NOT NULL, -- or renewed
    lease_until timestamptz NOT NULL
);
CREATE INDEX leases_expiry ON millbridge.leases (lease_until);

-- When what is limited in its rate over all processes may start next.
CREATE TABLE millbridge.rates (
    name     text        COLLATE "C" PRIMARY KEY,
    next_at  timestamptz NOT NULL,
    taken_at timestamptz NOT NULL
) WITH (fillfactor = 50);

-- Handlers that have failed, how often in a row and since when; since when nothing but a probe is handed to them, or
-- nothing at all until an operator enables them.
CREATE TABLE millbridge.circuits (
    handler     text        COLLATE "C" PRIMARY KEY,
    failures    integer     NOT NULL,
    failing_at  timestamptz,
    opened_at   timestamptz,
    probe_at    timestamptz,
    disabled_at timestamptz,
    reason      text        NOT NULL
) WITH (fillfactor = 50);

-- Sagas as they stand, and what led there. State and intents are JSON, as text: it comes back as it was.
CREATE TABLE millbridge.sagas (
    saga       text        COLLATE "C" NOT NULL,
    id         text        COLLATE "C" NOT NULL,
    tenant     text        NOT NULL,
    status     text        COLLATE "C" NOT NULL CHECK (status IN ('running', 'waiting', 'compensating', 'done', 'compensated', 'stuck')),
    step       text        NOT NULL,
    state      text        NOT NULL,
    version    integer     NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (saga, id)
);
CREATE INDEX sagas_expiry ON millbridge.sagas (updated_at) WHERE status IN ('done', 'compensated');

CREATE TABLE millbridge.saga_events (
    saga      text        COLLATE "C" NOT NULL,
    id        text        COLLATE "C" NOT NULL,
    n         integer     NOT NULL,
    at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    step      text        NOT NULL,
    kind      text        NOT NULL,
    rationale text        NOT NULL,
    intents   text        NOT NULL,
    state     text        NOT NULL,
    PRIMARY KEY (saga, id, n)
);
