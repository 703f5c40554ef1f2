DROP TABLE IF EXISTS
    millbridge.saga_events,
    millbridge.sagas,
    millbridge.circuits,
    millbridge.rates,
    millbridge.leases,
    millbridge.counts,
    millbridge.stock_left,
    millbridge.settled,
    millbridge.inbox,
    millbridge.owners,
    millbridge.shards,
    millbridge.keys,
    millbridge.parked,
    millbridge.scheduled,
    millbridge.outbox,
    millbridge.epoch,
    millbridge.meta,
    millbridge.migrations;

-- The schema goes too if it is ours and nobody else has put something into it.
DO $$
BEGIN
    IF EXISTS (
        SELECT FROM pg_catalog.pg_namespace AS n
         WHERE n.nspname = 'millbridge' AND pg_catalog.pg_has_role(n.nspowner, 'USAGE')
           AND NOT EXISTS (SELECT FROM pg_catalog.pg_class AS c WHERE c.relnamespace = n.oid)
           AND NOT EXISTS (SELECT FROM pg_catalog.pg_proc AS p WHERE p.pronamespace = n.oid)
    ) THEN
        DROP SCHEMA millbridge;
    END IF;
END
$$;
