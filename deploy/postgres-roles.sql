-- Three roles with no more rights than their work needs. Run once, after `millbridge migrate up`, as the owner of the
-- tables. The roles cannot log in; grant them to the users that do.

-- Services that publish, cancel and reschedule in their own transactions. They cannot read messages of others.
CREATE ROLE millbridge_publisher NOLOGIN;
GRANT USAGE ON SCHEMA millbridge TO millbridge_publisher;
GRANT SELECT ON millbridge.meta, millbridge.migrations TO millbridge_publisher;
GRANT SELECT, INSERT, DELETE ON millbridge.keys TO millbridge_publisher;
GRANT USAGE ON SEQUENCE millbridge.outbox_seq TO millbridge_publisher;
GRANT INSERT ON millbridge.outbox, millbridge.scheduled TO millbridge_publisher;
GRANT SELECT (id, seq, key_hash), UPDATE (due_at), DELETE ON millbridge.scheduled TO millbridge_publisher;

-- `millbridge run`, and operators with the command line: every row, no table. (`millbridge migrate` needs the owner.)
CREATE ROLE millbridge_bridge NOLOGIN;
GRANT USAGE ON SCHEMA millbridge TO millbridge_bridge;
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA millbridge TO millbridge_bridge;
GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA millbridge TO millbridge_bridge;

-- Dashboards and alerts: `millbridge status`, `show` and the lists.
CREATE ROLE millbridge_reader NOLOGIN;
GRANT USAGE ON SCHEMA millbridge TO millbridge_reader;
GRANT SELECT ON ALL TABLES IN SCHEMA millbridge TO millbridge_reader;
GRANT SELECT ON ALL SEQUENCES IN SCHEMA millbridge TO millbridge_reader;
