-- What `semel doctor` asks. Each is a statement by itself, on a primary and on a standby, through a pool or not, by any role.

-- name: doctor_settings
SELECT name, setting FROM pg_catalog.pg_settings WHERE name = ANY (%(names)s::text[]);

-- name: doctor_now
SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint;

-- name: doctor_here
SELECT pg_backend_pid(), current_user::text, pg_is_in_recovery(), pg_has_role('pg_read_all_stats', 'USAGE'),
       to_regnamespace('semel') IS NOT NULL, age(d.datfrozenxid), pg_database_size(d.oid)
FROM pg_catalog.pg_database d WHERE d.datname = current_database();

-- name: doctor_standbys
SELECT coalesce(application_name, ''), coalesce(state, ''), coalesce(sync_state, ''),
       coalesce(extract(epoch FROM replay_lag) * 1000, 0)::bigint,
       coalesce(pg_wal_lsn_diff(CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END,
                                replay_lsn), 0)::bigint
FROM pg_catalog.pg_stat_replication WHERE state IS DISTINCT FROM 'backup' ORDER BY 1;

-- name: doctor_connections
SELECT count(*) FROM pg_catalog.pg_stat_activity WHERE backend_type IS NULL OR backend_type = 'client backend';

-- name: doctor_snapshot
SELECT pid, coalesce(application_name, ''), coalesce(state, ''), (extract(epoch FROM clock_timestamp() - xact_start) * 1000)::bigint
FROM pg_catalog.pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND xact_start IS NOT NULL AND backend_type = 'client backend'
ORDER BY xact_start LIMIT 1;

-- name: doctor_prepared
SELECT gid, (extract(epoch FROM clock_timestamp() - prepared) * 1000)::bigint FROM pg_catalog.pg_prepared_xacts
WHERE database = current_database() ORDER BY prepared LIMIT 1;

-- name: doctor_slots
SELECT slot_name::text, active, coalesce(wal_status, ''), greatest(coalesce(age(xmin), 0), coalesce(age(catalog_xmin), 0)),
       coalesce(pg_wal_lsn_diff(CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END,
                                restart_lsn), 0)::bigint
FROM pg_catalog.pg_replication_slots ORDER BY 1;

-- name: doctor_tables
SELECT relname::text, n_live_tup, n_dead_tup,
       coalesce((extract(epoch FROM greatest(last_autovacuum, last_vacuum)) * 1000)::bigint, 0)
FROM pg_catalog.pg_stat_all_tables WHERE schemaname = 'semel' ORDER BY 1;

-- name: doctor_store
SELECT count(*) FILTER (WHERE fenced = ''), count(*) FILTER (WHERE fenced <> ''),
       coalesce(max(ttl_ms) FILTER (WHERE fenced = ''), 0),
       (SELECT count(*) FROM semel.unknown), (SELECT coalesce(min(since), 0) FROM semel.unknown)
FROM semel.session;
