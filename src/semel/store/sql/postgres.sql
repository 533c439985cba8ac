-- Every statement takes its values as parameters; lists come as arrays, sorted by their key, and are unnested in order.
-- Constants of a plan: the writer plans without statistics and without hash or merge joins (see pglink.py).

-- name: begin
BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;

-- name: commit
COMMIT;

-- name: rollback
ROLLBACK;

-- name: savepoint
SAVEPOINT claim;

-- name: release
RELEASE SAVEPOINT claim;

-- name: rollback_to
ROLLBACK TO SAVEPOINT claim;

-- name: set
SELECT set_config(s.name, s.value, %(local)s::boolean) FROM unnest(%(names)s::text[], %(values)s::text[]) AS s (name, value);

-- name: emit
-- A commit that writes nothing does not wait for a standby; with this it does, and for all that came before it.
SELECT pg_logical_emit_message(true, 'semel', '');

-- name: lock_living
SELECT id FROM semel.living WHERE id = ANY (%(ids)s::text[]) ORDER BY id FOR KEY SHARE;

-- name: guards
SELECT id, epoch, beat, fenced, (SELECT value::bigint FROM semel.meta WHERE name = 'epoch') FROM semel.session
WHERE id = ANY (%(ids)s::text[]);

-- name: lock_tasks
SELECT 1 FROM unnest(%(tenants)s::text[], %(streams)s::text[]) AS k (tenant, stream)
CROSS JOIN LATERAL (SELECT 1 FROM semel.task t WHERE t.tenant = k.tenant AND t.task = k.stream FOR SHARE) AS locked;

-- name: lock_tasks_to_write
SELECT 1 FROM unnest(%(tenants)s::text[], %(streams)s::text[]) AS k (tenant, stream)
CROSS JOIN LATERAL (SELECT 1 FROM semel.task t WHERE t.tenant = k.tenant AND t.task = k.stream FOR NO KEY UPDATE) AS locked;

-- name: lock_effects
SELECT 1 FROM unnest(%(tenants)s::text[], %(streams)s::text[]) AS k (tenant, stream)
CROSS JOIN LATERAL (SELECT 1 FROM semel.effect e WHERE e.tenant = k.tenant AND e.key = k.stream FOR SHARE) AS locked;

-- name: lock_effects_to_write
SELECT 1 FROM unnest(%(tenants)s::text[], %(streams)s::text[]) AS k (tenant, stream)
CROSS JOIN LATERAL (SELECT 1 FROM semel.effect e WHERE e.tenant = k.tenant AND e.key = k.stream FOR NO KEY UPDATE) AS locked;

-- name: heads
SELECT k.tenant, k.stream, h.seq, h.hash FROM unnest(%(tenants)s::text[], %(streams)s::text[]) AS k (tenant, stream)
CROSS JOIN LATERAL (
    SELECT j.seq, j.hash FROM semel.journal j WHERE j.tenant = k.tenant AND j.stream = k.stream ORDER BY j.seq DESC LIMIT 1
) AS h;

-- name: keys
SELECT k.tenant, k.kind, k.key, t.task
FROM unnest(%(tenants)s::text[], %(kinds)s::text[], %(keys)s::text[]) AS k (tenant, kind, key)
CROSS JOIN LATERAL (
    SELECT t.task FROM semel.task_key t WHERE t.tenant = k.tenant AND t.kind = k.kind AND t.key = k.key
) AS t;

-- name: hashes
-- As `witnessed`, of many rows.
SELECT k.tenant, k.stream, k.seq, j.hash
FROM unnest(%(tenants)s::text[], %(streams)s::text[], %(seqs)s::bigint[], %(hashes)s::bytea[]) AS k (tenant, stream, seq, hash)
CROSS JOIN LATERAL (
    SELECT j.hash FROM semel.journal j WHERE j.tenant = k.tenant AND j.stream = k.stream AND j.seq = k.seq
    UNION ALL
    SELECT k.hash FROM (
        SELECT j.seq, j.kind, j.body FROM semel.journal j WHERE j.tenant = k.tenant AND j.stream = k.stream
        ORDER BY j.tenant, j.stream, j.seq LIMIT 1
    ) AS f
    WHERE f.kind = 'pruned' AND f.seq > k.seq AND (f.seq > k.seq + 1 OR f.body::jsonb ->> 'hash' = encode(k.hash, 'hex'))
    LIMIT 1
) AS j;

-- name: as_expected
-- Fails, so that nothing after it is committed, unless: each stream ends with that row (a hash that is NULL may be any), each
-- session lives and beats in this epoch, and each row that was seen acknowledged is held (as `hashes`). A key that is taken
-- need not be asked for: its insert fails.
SELECT (CASE WHEN (
    SELECT count(*)
    FROM unnest(%(tenants)s::text[], %(streams)s::text[], %(seqs)s::bigint[], %(hashes)s::bytea[]) AS k (tenant, stream, seq, hash)
    LEFT JOIN LATERAL (
        SELECT j.seq, j.hash FROM semel.journal j WHERE j.tenant = k.tenant AND j.stream = k.stream ORDER BY j.seq DESC LIMIT 1
    ) AS h ON true
    WHERE coalesce(h.seq, 0) = k.seq AND (k.hash IS NULL OR h.hash = k.hash)
) = cardinality(%(streams)s::text[]) AND (
    SELECT count(*) FROM unnest(%(ids)s::text[], %(beats)s::bigint[]) AS g (id, beat)
    CROSS JOIN LATERAL (
        SELECT 1 FROM semel.living l JOIN semel.session s ON s.id = l.id
        WHERE l.id = g.id AND s.fenced = '' AND s.epoch = %(epoch)s::bigint AND s.beat >= g.beat
    ) AS s
    WHERE (SELECT m.value::bigint FROM semel.meta m WHERE m.name = 'epoch') = %(epoch)s::bigint
) = cardinality(%(ids)s::text[]) AND (
    SELECT count(*)
    FROM unnest(%(seen_tenants)s::text[], %(seen_streams)s::text[], %(seen_seqs)s::bigint[], %(seen_hashes)s::bytea[])
        AS k (tenant, stream, seq, hash)
    CROSS JOIN LATERAL (
        SELECT 1 FROM semel.journal j WHERE j.tenant = k.tenant AND j.stream = k.stream AND j.seq = k.seq AND j.hash = k.hash
        UNION ALL
        SELECT 1 FROM (
            SELECT j.seq, j.kind, j.body FROM semel.journal j WHERE j.tenant = k.tenant AND j.stream = k.stream
            ORDER BY j.tenant, j.stream, j.seq LIMIT 1
        ) AS f
        WHERE f.kind = 'pruned' AND f.seq > k.seq AND (f.seq > k.seq + 1 OR f.body::jsonb ->> 'hash' = encode(k.hash, 'hex'))
        LIMIT 1
    ) AS j
) = cardinality(%(seen_streams)s::text[]) THEN '1' ELSE 'what semel wrote on has moved on, and is looked at again' END)::int;

-- name: ids
SELECT k.tenant, k.stream, k.seq, j.id
FROM unnest(%(tenants)s::text[], %(streams)s::text[], %(seqs)s::bigint[]) AS k (tenant, stream, seq)
CROSS JOIN LATERAL (
    SELECT j.id FROM semel.journal j WHERE j.tenant = k.tenant AND j.stream = k.stream AND j.seq = k.seq
) AS j;

-- name: rows_of
SELECT j.tenant, j.stream, j.seq, j.kind, j.actor, j.token, j.at, j.body, j.id, j.hash
FROM unnest(%(tenants)s::text[], %(streams)s::text[]) AS k (tenant, stream)
CROSS JOIN LATERAL (
    SELECT * FROM semel.journal j WHERE j.tenant = k.tenant AND j.stream = k.stream ORDER BY j.seq
) AS j;

-- name: delete_ready
DELETE FROM semel.ready r
USING unnest(%(queue)s::text[], %(kind)s::text[], %(rank)s::bigint[], %(due)s::bigint[], %(tenant)s::text[], %(task)s::text[])
    AS k (queue, kind, rank, due, tenant, task)
WHERE r.queue = k.queue AND r.kind = k.kind AND r.rank = k.rank AND r.due = k.due AND r.tenant = k.tenant AND r.task = k.task;

-- name: insert_key
INSERT INTO semel.task_key (tenant, kind, key, task)
SELECT * FROM unnest(%(tenant)s::text[], %(kind)s::text[], %(key)s::text[], %(task)s::text[]);

-- name: insert_born
-- Tasks that begin: all rows of each but its key, from what is not the same for all. Their keys were inserted before.
WITH k AS MATERIALIZED (
    SELECT * FROM unnest(%(tenant)s::text[], %(kind)s::text[], %(key)s::text[], %(task)s::text[], %(queue)s::text[],
                         %(priority)s::bigint[], %(due)s::bigint[], %(actor)s::text[], %(at)s::bigint[], %(body)s::text[],
                         %(id)s::text[], %(hash)s::bytea[])
        AS k (tenant, kind, key, task, queue, priority, due, actor, at, body, id, hash)
), waits AS (
    INSERT INTO semel.ready (queue, kind, rank, due, tenant, task)
    SELECT queue, kind, -priority, due, tenant, task FROM k WHERE queue <> ''
), stands AS (
    INSERT INTO semel.task (tenant, task, kind, key, queue, priority, due, delivery, execution, attempt, token, session, failures,
                            crashes, unknown, version, why)
    SELECT tenant, task, kind, key, queue, priority, due, 'queued', 'not_started', 0, 0, '', 0, 0, 0, 1, '' FROM k
)
INSERT INTO semel.journal (tenant, stream, seq, kind, actor, token, at, body, id, hash)
SELECT tenant, task, 1, 'enqueued', actor, 0, at, body, id, hash FROM k;

-- name: insert_journal
INSERT INTO semel.journal (tenant, stream, seq, kind, actor, token, at, body, id, hash)
SELECT * FROM unnest(%(tenant)s::text[], %(stream)s::text[], %(seq)s::bigint[], %(kind)s::text[], %(actor)s::text[],
                     %(token)s::bigint[], %(at)s::bigint[], %(body)s::text[], %(id)s::text[], %(hash)s::bytea[]);

-- name: insert_journal_row
-- One row by itself: an array costs the server twice as much.
INSERT INTO semel.journal (tenant, stream, seq, kind, actor, token, at, body, id, hash)
VALUES (%(tenant)s::text, %(stream)s::text, %(seq)s::bigint, %(kind)s::text, %(actor)s::text, %(token)s::bigint, %(at)s::bigint,
        %(body)s::text, %(id)s::text, %(hash)s::bytea);

-- name: take_away
-- What stands before a tombstone (R22).
DELETE FROM semel.journal j USING unnest(%(tenant)s::text[], %(stream)s::text[], %(seq)s::bigint[]) AS k (tenant, stream, seq)
WHERE j.tenant = k.tenant AND j.stream = k.stream AND j.seq < k.seq;

-- name: insert_task
-- Of tasks that begin: nobody else can have a row of them, since their keys were inserted before.
INSERT INTO semel.task (tenant, task, kind, key, queue, priority, due, delivery, execution, attempt, token, session, failures,
                        crashes, unknown, version, why)
SELECT k.*, 'queued', 'not_started', 0, 0, '', 0, 0, 0, 1, ''
FROM unnest(%(tenant)s::text[], %(task)s::text[], %(kind)s::text[], %(key)s::text[], %(queue)s::text[], %(priority)s::bigint[],
            %(due)s::bigint[]) AS k (tenant, task, kind, key, queue, priority, due);

-- name: put_task
-- What is there is updated, the rest inserted; whoever writes either holds the stream's next place in the journal already, so
-- no rival is in between. (ON CONFLICT would lock each row first, and log that too.)
WITH k AS (
    SELECT * FROM unnest(%(tenant)s::text[], %(task)s::text[], %(kind)s::text[], %(key)s::text[], %(queue)s::text[],
                         %(priority)s::bigint[], %(due)s::bigint[], %(delivery)s::text[], %(execution)s::text[],
                         %(attempt)s::bigint[], %(token)s::bigint[], %(session)s::text[], %(failures)s::bigint[],
                         %(crashes)s::bigint[], %(unknown)s::bigint[], %(version)s::bigint[], %(why)s::text[])
        AS k (tenant, task, kind, key, queue, priority, due, delivery, execution, attempt, token, session, failures, crashes,
              unknown, version, why)
), known AS (
    UPDATE semel.task t SET
        due = k.due, delivery = k.delivery, execution = k.execution, attempt = k.attempt, token = k.token, session = k.session,
        failures = k.failures, crashes = k.crashes, unknown = k.unknown, version = k.version, why = k.why
    FROM k WHERE t.tenant = k.tenant AND t.task = k.task
)
INSERT INTO semel.task (tenant, task, kind, key, queue, priority, due, delivery, execution, attempt, token, session, failures,
                        crashes, unknown, version, why)
SELECT * FROM k WHERE NOT EXISTS (SELECT 1 FROM semel.task t WHERE t.tenant = k.tenant AND t.task = k.task);

-- name: put_task_row
-- As `put_task`, one row by itself.
WITH known AS (
    UPDATE semel.task SET
        due = %(due)s::bigint, delivery = %(delivery)s::text, execution = %(execution)s::text, attempt = %(attempt)s::bigint,
        token = %(token)s::bigint, session = %(session)s::text, failures = %(failures)s::bigint, crashes = %(crashes)s::bigint,
        unknown = %(unknown)s::bigint, version = %(version)s::bigint, why = %(why)s::text
    WHERE tenant = %(tenant)s::text AND task = %(task)s::text RETURNING 1
)
INSERT INTO semel.task (tenant, task, kind, key, queue, priority, due, delivery, execution, attempt, token, session, failures,
                        crashes, unknown, version, why)
SELECT %(tenant)s::text, %(task)s::text, %(kind)s::text, %(key)s::text, %(queue)s::text, %(priority)s::bigint, %(due)s::bigint,
       %(delivery)s::text, %(execution)s::text, %(attempt)s::bigint, %(token)s::bigint, %(session)s::text, %(failures)s::bigint,
       %(crashes)s::bigint, %(unknown)s::bigint, %(version)s::bigint, %(why)s::text
WHERE NOT EXISTS (SELECT 1 FROM known);

-- name: insert_ready
INSERT INTO semel.ready (queue, kind, rank, due, tenant, task)
SELECT * FROM unnest(%(queue)s::text[], %(kind)s::text[], %(rank)s::bigint[], %(due)s::bigint[], %(tenant)s::text[],
                     %(task)s::text[]);

-- name: delete_inflight
DELETE FROM semel.inflight i USING unnest(%(session)s::text[], %(tenant)s::text[], %(task)s::text[]) AS k (session, tenant, task)
WHERE i.session = k.session AND i.tenant = k.tenant AND i.task = k.task;

-- name: insert_inflight
INSERT INTO semel.inflight (session, tenant, task)
SELECT * FROM unnest(%(session)s::text[], %(tenant)s::text[], %(task)s::text[]);

-- name: put_effect
-- As `put_task`.
WITH k AS (
    SELECT * FROM unnest(%(tenant)s::text[], %(key)s::text[], %(task)s::text[], %(stream)s::text[], %(name)s::text[],
                         %(state)s::text[], %(version)s::bigint[]) AS k (tenant, key, task, stream, name, state, version)
), known AS (
    UPDATE semel.effect e SET task = k.task, state = k.state, version = k.version
    FROM k WHERE e.tenant = k.tenant AND e.key = k.key
)
INSERT INTO semel.effect (tenant, key, task, stream, name, state, version)
SELECT * FROM k WHERE NOT EXISTS (SELECT 1 FROM semel.effect e WHERE e.tenant = k.tenant AND e.key = k.key);

-- name: put_effect_row
-- As `put_effect`, one row by itself.
WITH known AS (
    UPDATE semel.effect SET task = %(task)s::text, state = %(state)s::text, version = %(version)s::bigint
    WHERE tenant = %(tenant)s::text AND key = %(key)s::text RETURNING 1
)
INSERT INTO semel.effect (tenant, key, task, stream, name, state, version)
SELECT %(tenant)s::text, %(key)s::text, %(task)s::text, %(stream)s::text, %(name)s::text, %(state)s::text, %(version)s::bigint
WHERE NOT EXISTS (SELECT 1 FROM known);

-- name: delete_unknown
DELETE FROM semel.unknown u USING unnest(%(tenant)s::text[], %(key)s::text[]) AS k (tenant, key)
WHERE u.tenant = k.tenant AND u.key = k.key;

-- name: insert_unknown
INSERT INTO semel.unknown (tenant, key, task, name, since)
SELECT * FROM unnest(%(tenant)s::text[], %(key)s::text[], %(task)s::text[], %(name)s::text[], %(since)s::bigint[]);

-- name: look
-- The distinct ranks of each (queue, kind), by jumps, and the least due of each: as many steps as there are ranks.
WITH RECURSIVE jump (queue, kind, rank) AS (
    SELECT p.queue, p.kind, (SELECT min(r.rank) FROM semel.ready r WHERE r.queue = p.queue AND r.kind = p.kind)
    FROM unnest(%(queues)s::text[], %(kinds)s::text[]) AS p (queue, kind)
    UNION ALL
    SELECT j.queue, j.kind,
           (SELECT min(r.rank) FROM semel.ready r WHERE r.queue = j.queue AND r.kind = j.kind AND r.rank > j.rank)
    FROM jump j WHERE j.rank IS NOT NULL
)
SELECT j.queue, j.kind, j.rank, r.due FROM jump j
CROSS JOIN LATERAL (
    SELECT r.due FROM semel.ready r WHERE r.queue = j.queue AND r.kind = j.kind AND r.rank = j.rank
    ORDER BY r.queue, r.kind, r.rank, r.due LIMIT 1
) AS r WHERE j.rank IS NOT NULL;

-- name: dues
SELECT r.due
FROM unnest(%(queues)s::text[], %(kinds)s::text[], %(ranks)s::bigint[], %(floors)s::bigint[]) AS k (queue, kind, rank, floor)
CROSS JOIN LATERAL (
    SELECT r.due FROM semel.ready r
    WHERE r.queue = k.queue AND r.kind = k.kind AND r.rank = k.rank AND r.due >= k.floor
      AND (%(tenant)s::text IS NULL OR r.tenant = %(tenant)s::text)
    ORDER BY r.queue, r.kind, r.rank, r.due LIMIT 1
) AS r;

-- name: candidates
-- Rank by rank, and no further than `limit` goes. Locked one by one as the index gives them; what a rival holds is skipped,
-- what it has deleted is not there any more. With each comes its journal, a row at a time.
WITH found AS MATERIALIZED (
    SELECT r.queue, r.kind, r.rank, r.due, r.tenant, r.task
    FROM (SELECT DISTINCT u.rank FROM unnest(%(ranks)s::bigint[]) AS u (rank) ORDER BY u.rank) AS x
    CROSS JOIN LATERAL (
        SELECT w.*
        FROM unnest(%(queues)s::text[], %(kinds)s::text[], %(ranks)s::bigint[], %(dues)s::bigint[], %(tenants)s::text[],
                    %(tasks)s::text[]) AS k (queue, kind, rank, due, tenant, task)
        CROSS JOIN LATERAL (
            SELECT r.queue, r.kind, r.rank, r.due, r.tenant, r.task FROM semel.ready r
            WHERE r.queue = k.queue AND r.kind = k.kind AND r.rank = k.rank AND (r.due, r.tenant, r.task) > (k.due, k.tenant, k.task)
              AND r.due <= %(at)s::bigint AND (%(tenant)s::text IS NULL OR r.tenant = %(tenant)s::text)
            ORDER BY r.queue, r.kind, r.rank, r.due, r.tenant, r.task LIMIT %(limit)s::bigint FOR UPDATE SKIP LOCKED
        ) AS w
        WHERE k.rank = x.rank ORDER BY w.due, w.queue, w.kind, w.tenant, w.task LIMIT %(limit)s::bigint
    ) AS r
    LIMIT %(limit)s::bigint
)
SELECT f.queue, f.kind, f.rank, f.due, f.tenant, f.task, j.seq, j.kind, j.actor, j.token, j.at, j.body, j.id, j.hash
FROM found f CROSS JOIN LATERAL (
    SELECT * FROM semel.journal j WHERE j.tenant = f.tenant AND j.stream = f.task ORDER BY j.seq
) AS j;

-- name: few
-- As `look` and `candidates` in one: for claims that find little, so that what was just queued is had in one trip.
WITH found AS MATERIALIZED (
    WITH RECURSIVE jump (queue, kind, rank) AS (
        SELECT p.queue, p.kind, (SELECT min(r.rank) FROM semel.ready r WHERE r.queue = p.queue AND r.kind = p.kind)
        FROM unnest(%(queues)s::text[], %(kinds)s::text[]) AS p (queue, kind)
        UNION ALL
        SELECT j.queue, j.kind,
               (SELECT min(r.rank) FROM semel.ready r WHERE r.queue = j.queue AND r.kind = j.kind AND r.rank > j.rank)
        FROM jump j WHERE j.rank IS NOT NULL
    ), place AS MATERIALIZED (
        SELECT j.queue, j.kind, j.rank FROM jump j WHERE j.rank IS NOT NULL
    )
    SELECT r.queue, r.kind, r.rank, r.due, r.tenant, r.task
    FROM (SELECT DISTINCT p.rank FROM place p ORDER BY p.rank) AS x
    CROSS JOIN LATERAL (
        SELECT w.*
        FROM place k
        CROSS JOIN LATERAL (
            SELECT r.queue, r.kind, r.rank, r.due, r.tenant, r.task FROM semel.ready r
            WHERE r.queue = k.queue AND r.kind = k.kind AND r.rank = k.rank
              AND r.due <= %(at)s::bigint AND (%(tenant)s::text IS NULL OR r.tenant = %(tenant)s::text)
            ORDER BY r.queue, r.kind, r.rank, r.due, r.tenant, r.task LIMIT %(limit)s::bigint FOR UPDATE SKIP LOCKED
        ) AS w
        WHERE k.rank = x.rank ORDER BY w.due, w.queue, w.kind, w.tenant, w.task LIMIT %(limit)s::bigint
    ) AS r
    LIMIT %(limit)s::bigint
)
SELECT f.queue, f.kind, f.rank, f.due, f.tenant, f.task, j.seq, j.kind, j.actor, j.token, j.at, j.body, j.id, j.hash
FROM found f CROSS JOIN LATERAL (
    SELECT * FROM semel.journal j WHERE j.tenant = f.tenant AND j.stream = f.task ORDER BY j.seq
) AS j;

-- name: longest_waiting
-- What has waited longest, whatever its rank: it is in those groups whose first are the oldest.
WITH found AS MATERIALIZED (
    SELECT w.*
    FROM (
        SELECT k.*
        FROM unnest(%(queues)s::text[], %(kinds)s::text[], %(ranks)s::bigint[], %(dues)s::bigint[], %(tenants)s::text[],
                    %(tasks)s::text[]) AS k (queue, kind, rank, due, tenant, task)
        CROSS JOIN LATERAL (
            SELECT r.due FROM semel.ready r
            WHERE r.queue = k.queue AND r.kind = k.kind AND r.rank = k.rank AND (r.due, r.tenant, r.task) > (k.due, k.tenant, k.task)
              AND r.due <= %(at)s::bigint AND (%(tenant)s::text IS NULL OR r.tenant = %(tenant)s::text)
            ORDER BY r.queue, r.kind, r.rank, r.due, r.tenant, r.task LIMIT 1
        ) AS first
        ORDER BY first.due, k.rank, k.queue, k.kind LIMIT %(limit)s::bigint
    ) AS k
    CROSS JOIN LATERAL (
        SELECT r.queue, r.kind, r.rank, r.due, r.tenant, r.task FROM semel.ready r
        WHERE r.queue = k.queue AND r.kind = k.kind AND r.rank = k.rank AND (r.due, r.tenant, r.task) > (k.due, k.tenant, k.task)
          AND r.due <= %(at)s::bigint AND (%(tenant)s::text IS NULL OR r.tenant = %(tenant)s::text)
        ORDER BY r.queue, r.kind, r.rank, r.due, r.tenant, r.task LIMIT %(limit)s::bigint FOR UPDATE SKIP LOCKED
    ) AS w
)
SELECT queue, kind, rank, due, tenant, task FROM found ORDER BY due, rank, queue, kind, tenant, task LIMIT %(limit)s::bigint;

-- name: lines
-- The next (tenant, rank) of each (queue, kind), behind one of the first of these, by jumps; and the least due of each.
WITH RECURSIVE jump (found, n, tenant, rank, due) AS (
    SELECT 0, 1, %(tenant)s::text COLLATE "C", %(rank)s::bigint, NULL::bigint
    UNION ALL
    SELECT j.found + (l.tenant IS NOT NULL)::int, j.n + (l.tenant IS NULL)::int, coalesce(l.tenant, ''),
           coalesce(l.rank, -9223372036854775808), l.due
    FROM jump j LEFT JOIN LATERAL (
        SELECT r.tenant, r.rank, r.due FROM semel.ready r
        WHERE r.queue = (%(queues)s::text[])[j.n] AND r.kind = (%(kinds)s::text[])[j.n]
          AND (r.tenant, r.rank, r.due) > (j.tenant, j.rank, 9223372036854775807)
        ORDER BY r.queue, r.kind, r.tenant, r.rank, r.due LIMIT 1
    ) AS l ON true
    WHERE j.found < %(most)s::bigint AND j.n <= cardinality(%(queues)s::text[])
)
SELECT (%(queues)s::text[])[n], (%(kinds)s::text[])[n], tenant, rank, due FROM jump WHERE due IS NOT NULL;

-- name: in_turn
-- As `candidates`, of lines: the first few of each.
WITH found AS MATERIALIZED (
    SELECT w.*
    FROM unnest(%(queues)s::text[], %(kinds)s::text[], %(tenants)s::text[], %(ranks)s::bigint[], %(dues)s::bigint[],
                %(tasks)s::text[]) AS k (queue, kind, tenant, rank, due, task)
    CROSS JOIN LATERAL (
        SELECT r.queue, r.kind, r.rank, r.due, r.tenant, r.task FROM semel.ready r
        WHERE r.queue = k.queue AND r.kind = k.kind AND r.tenant = k.tenant AND r.rank = k.rank AND r.due <= %(at)s::bigint
          AND (r.due, r.task) > (k.due, k.task)
        ORDER BY r.queue, r.kind, r.tenant, r.rank, r.due, r.task LIMIT %(each)s::bigint FOR UPDATE SKIP LOCKED
    ) AS w
)
SELECT queue, kind, rank, due, tenant, task FROM found;

-- name: kinds
-- The distinct kinds in each queue, by jumps.
WITH RECURSIVE jump (queue, kind) AS (
    SELECT p.queue, (SELECT r.kind FROM semel.ready r
                     WHERE r.queue = p.queue AND (%(tenant)s::text IS NULL OR r.tenant = %(tenant)s::text)
                     ORDER BY r.queue, r.kind LIMIT 1)
    FROM unnest(%(queues)s::text[]) AS p (queue)
    UNION ALL
    SELECT j.queue, (SELECT r.kind FROM semel.ready r
                     WHERE r.queue = j.queue AND r.kind > j.kind AND (%(tenant)s::text IS NULL OR r.tenant = %(tenant)s::text)
                     ORDER BY r.queue, r.kind LIMIT 1)
    FROM jump j WHERE j.kind IS NOT NULL
)
SELECT queue, kind FROM jump WHERE kind IS NOT NULL;

-- name: open_session
-- Given again after a lost reply, it finds itself.
WITH opened AS (
    INSERT INTO semel.session (id, beat, nonce, ttl_ms, epoch, host, boot_id, pid_ns, time_ns, pid, start_time, fenced, started)
    VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s) ON CONFLICT (id) DO NOTHING RETURNING id, fenced
)
INSERT INTO semel.living (id) SELECT id FROM opened WHERE fenced = '';

-- name: beat
UPDATE semel.session SET beat = %(number)s, nonce = %(nonce)s
WHERE id = %(id)s AND fenced = '' AND nonce = ANY (%(known)s::text[])
  AND epoch = (SELECT value::bigint FROM semel.meta WHERE name = 'epoch');

-- name: lock_to_fence
-- First, so that the session's own row, on which it beats, is not held while a guarded transaction is waited for.
SELECT id FROM semel.living WHERE id = %(id)s FOR UPDATE;

-- name: fence
WITH gone AS (
    UPDATE semel.session SET fenced = %(how)s
    WHERE id = %(id)s AND fenced = '' AND (%(nonce)s::text IS NULL OR nonce = %(nonce)s::text) RETURNING id
), pointers AS (
    DELETE FROM semel.living l USING gone WHERE l.id = gone.id
)
SELECT id FROM gone;

-- name: living
SELECT s.id, s.beat, s.nonce, s.ttl_ms, s.epoch, s.host, s.boot_id, s.pid_ns, s.time_ns, s.pid, s.start_time, s.fenced, s.started
FROM semel.living l JOIN semel.session s ON s.id = l.id WHERE s.fenced = '' ORDER BY s.id;

-- name: session
SELECT id, beat, nonce, ttl_ms, epoch, host, boot_id, pid_ns, time_ns, pid, start_time, fenced, started FROM semel.session
WHERE id = %s;

-- name: held
SELECT session, tenant, task FROM semel.inflight WHERE session = %s ORDER BY tenant, task;

-- name: orphans
-- The distinct sessions that hold something, by jumps, so that what the living hold costs nothing.
WITH RECURSIVE jump (session) AS (
    SELECT (SELECT i.session FROM semel.inflight i WHERE i.session >= %(session)s::text ORDER BY i.session LIMIT 1)
    UNION ALL
    SELECT (SELECT i.session FROM semel.inflight i WHERE i.session > j.session ORDER BY i.session LIMIT 1)
    FROM jump j WHERE j.session IS NOT NULL
), gone (session, how) AS (
    SELECT j.session, coalesce(s.fenced, 'missing')
    FROM jump j LEFT JOIN LATERAL (SELECT s.id, s.fenced FROM semel.session s WHERE s.id = j.session) AS s ON true
    WHERE j.session IS NOT NULL AND (s.id IS NULL OR s.fenced <> '') ORDER BY j.session
)
SELECT i.session, i.tenant, i.task, g.how
FROM gone g CROSS JOIN LATERAL (
    SELECT i.session, i.tenant, i.task FROM semel.inflight i
    WHERE i.session = g.session AND (i.session, i.tenant, i.task) > (%(session)s::text, %(after)s::text, %(task)s::text)
      AND (%(tenant)s::text IS NULL OR i.tenant = %(tenant)s::text)
    ORDER BY i.session, i.tenant, i.task LIMIT %(limit)s::bigint
) AS i
ORDER BY i.session, i.tenant, i.task LIMIT %(limit)s::bigint;

-- name: around
-- `meta`, `server`, `head` of the store's own stream, `living`, `held`, whether there are `orphans`, `unknown`.
WITH RECURSIVE jump (session) AS (
    SELECT (SELECT i.session FROM semel.inflight i WHERE i.session >= '' ORDER BY i.session LIMIT 1)
    UNION ALL
    SELECT (SELECT i.session FROM semel.inflight i WHERE i.session > j.session ORDER BY i.session LIMIT 1)
    FROM jump j WHERE j.session IS NOT NULL
)
SELECT (SELECT json_object_agg(m.name, m.value)::text FROM semel.meta m),
       current_setting('server_version_num')::int, current_setting('server_encoding'), current_setting('synchronous_commit'),
       current_setting('fsync'), current_setting('full_page_writes'), current_setting('synchronous_standby_names'),
       current_setting('transaction_read_only'), pg_is_in_recovery(), (SELECT count(*)::int FROM pg_stat_replication),
       own.seq, own.hash,
       (SELECT coalesce(json_agg(json_build_array(
                   s.id, s.beat, s.nonce, s.ttl_ms, s.epoch, s.host, s.boot_id, s.pid_ns, s.time_ns, s.pid, s.start_time,
                   s.fenced, s.started
               ) ORDER BY s.id), '[]')::text
        FROM semel.living l
        CROSS JOIN LATERAL (SELECT * FROM semel.session s WHERE s.id = l.id AND s.fenced = '' ORDER BY s.id LIMIT 1) AS s),
       (SELECT coalesce(json_agg(json_build_array(i.session, i.tenant, i.task) ORDER BY i.tenant, i.task), '[]')::text
        FROM semel.inflight i WHERE i.session = %(own)s::text),
       EXISTS (
           SELECT 1 FROM jump j
           LEFT JOIN LATERAL (
               SELECT s.id, s.fenced FROM semel.session s WHERE s.id = j.session ORDER BY s.id LIMIT 1
           ) AS s ON true
           CROSS JOIN LATERAL (
               SELECT 1 FROM semel.inflight i
               WHERE i.session = j.session AND (%(tenant)s::text IS NULL OR i.tenant = %(tenant)s::text)
               ORDER BY i.session, i.tenant, i.task LIMIT 1
           ) AS i
           WHERE j.session IS NOT NULL AND (s.id IS NULL OR s.fenced <> '')
       ),
       (SELECT coalesce(json_agg(json_build_array(u.tenant, u.key, u.task, u.name, u.since) ORDER BY u.since, u.key), '[]')::text
        FROM (
            SELECT * FROM semel.unknown u WHERE (%(tenant)s::text IS NULL OR u.tenant = %(tenant)s::text)
            ORDER BY u.since, u.key LIMIT %(most)s::bigint
        ) AS u)
FROM (SELECT 1) AS one LEFT JOIN LATERAL (
    SELECT j.seq, j.hash FROM semel.journal j WHERE j.tenant = %(epochs)s::text AND j.stream = %(standing)s::text
    ORDER BY j.seq DESC LIMIT 1
) AS own ON true;

-- name: head
SELECT seq, hash FROM semel.journal WHERE tenant = %s AND stream = %s ORDER BY seq DESC LIMIT 1;

-- name: rows
SELECT tenant, stream, seq, kind, actor, token, at, body, id, hash FROM semel.journal
WHERE tenant = %s AND stream = %s AND seq > %s ORDER BY seq;

-- name: task
SELECT * FROM semel.task WHERE tenant = %s AND task = %s;

-- name: find_task
SELECT task FROM semel.task_key WHERE tenant = %s AND kind = %s AND key = %s;

-- name: tasks
SELECT * FROM semel.task
WHERE (%(tenant)s::text IS NULL OR tenant = %(tenant)s::text)
  AND (%(delivery)s::text = '' OR delivery = %(delivery)s::text) AND (%(execution)s::text = '' OR execution = %(execution)s::text)
  AND (%(kind)s::text = '' OR kind = %(kind)s::text) AND (%(queue)s::text = '' OR queue = %(queue)s::text)
  AND (%(after)s::text = '' OR task < %(after)s::text)
ORDER BY task DESC LIMIT %(limit)s;

-- name: tasks_of
-- The same of one tenant, as they lie in the index.
SELECT * FROM semel.task
WHERE tenant = %(tenant)s::text
  AND task < coalesce(nullif(%(after)s::text, ''), (SELECT max(m.task) || '.' FROM semel.task m WHERE m.tenant = %(tenant)s::text))
  AND (%(delivery)s::text = '' OR delivery = %(delivery)s::text) AND (%(execution)s::text = '' OR execution = %(execution)s::text)
  AND (%(kind)s::text = '' OR kind = %(kind)s::text) AND (%(queue)s::text = '' OR queue = %(queue)s::text)
ORDER BY tenant DESC, task DESC LIMIT %(limit)s::bigint;

-- name: tasks_after
SELECT * FROM semel.task WHERE (tenant, task) > (%s::text, %s::text) ORDER BY tenant, task LIMIT %s;

-- name: tenants
-- The first and the last of those that have tasks.
SELECT (SELECT min(tenant) FROM semel.task), (SELECT max(tenant) FROM semel.task);

-- name: unfinished
-- A page of so many tasks, of which what matters is handed over, and the last, to go on after it.
SELECT * FROM (
    SELECT t.*, row_number() OVER (ORDER BY t.tenant, t.task) AS n,
           t.delivery IN ('queued', 'leased', 'blocked')
           AND (t.attempt > 0 AND t.kind = ANY (%(begun)s::text[]) OR t.kind = ANY (%(every)s::text[])) AS matters
    FROM semel.task t
    WHERE (t.tenant, t.task) > (%(owner)s::text, %(after)s::text)
      AND t.tenant <= coalesce(%(tenant)s::text, (SELECT max(m.tenant) FROM semel.task m))
    ORDER BY t.tenant, t.task LIMIT %(visits)s::bigint
) AS page WHERE matters OR n = %(visits)s::bigint ORDER BY n;

-- name: ages
-- Tasks in order, a page at a time, with the time and the kind of the last row of each.
SELECT t.tenant, t.task, t.delivery, coalesce(j.at, 9223372036854775807), coalesce(j.kind, '')
FROM (
    SELECT t.tenant, t.task, t.delivery, t.version FROM semel.task t
    WHERE (%(tenant)s::text IS NULL OR t.tenant = %(tenant)s::text) AND (t.tenant, t.task) > (%(owner)s::text, %(after)s::text)
    ORDER BY t.tenant, t.task LIMIT %(limit)s::bigint
) AS t
LEFT JOIN LATERAL (
    SELECT j.at, j.kind FROM semel.journal j WHERE j.tenant = t.tenant AND j.stream = t.task AND j.seq = t.version
) AS j ON true ORDER BY t.tenant, t.task;

-- name: key_ages
-- The same of effects; one that stands in its task's stream is of no age by itself.
SELECT e.tenant, e.key, e.state, coalesce(j.at, 9223372036854775807), coalesce(j.kind, '')
FROM (
    SELECT e.tenant, e.key, e.stream, e.state FROM semel.effect e
    WHERE (%(tenant)s::text IS NULL OR e.tenant = %(tenant)s::text) AND (e.tenant, e.key) > (%(owner)s::text, %(after)s::text)
    ORDER BY e.tenant, e.key LIMIT %(limit)s::bigint
) AS e
LEFT JOIN LATERAL (
    SELECT j.at, j.kind FROM semel.journal j WHERE e.stream = e.key AND j.tenant = e.tenant AND j.stream = e.key
    ORDER BY j.tenant DESC, j.stream DESC, j.seq DESC LIMIT 1
) AS j ON true ORDER BY e.tenant, e.key;

-- name: effect
SELECT * FROM semel.effect WHERE tenant = %s AND key = %s;

-- name: effect_of_any_tenant
-- For a person who has a key and nothing else: walks the table.
SELECT * FROM semel.effect WHERE key = %s LIMIT 1;

-- name: effects
SELECT * FROM semel.effect
WHERE (%(tenant)s::text IS NULL OR tenant = %(tenant)s::text) AND (%(state)s::text = '' OR state = %(state)s::text)
  AND (%(task)s::text = '' OR task = %(task)s::text) AND (%(after)s::text = '' OR key > %(after)s::text)
ORDER BY key LIMIT %(limit)s;

-- name: effects_of
-- The same of one tenant, as they lie in the index.
SELECT * FROM semel.effect
WHERE tenant = %(tenant)s::text AND key > %(after)s::text
  AND (%(state)s::text = '' OR state = %(state)s::text) AND (%(task)s::text = '' OR task = %(task)s::text)
ORDER BY tenant, key LIMIT %(limit)s::bigint;

-- name: effects_after
SELECT * FROM semel.effect WHERE (tenant, key) > (%s::text, %s::text) ORDER BY tenant, key LIMIT %s;

-- name: unknown
SELECT * FROM semel.unknown WHERE (%(tenant)s::text IS NULL OR tenant = %(tenant)s::text) ORDER BY since, key LIMIT %(limit)s;

-- name: count_delivery
SELECT delivery, count(*) FROM semel.task WHERE (%(tenant)s::text IS NULL OR tenant = %(tenant)s::text) GROUP BY delivery;

-- name: count_execution
SELECT execution, count(*) FROM semel.task WHERE (%(tenant)s::text IS NULL OR tenant = %(tenant)s::text) GROUP BY execution;

-- name: count_effect
SELECT state, count(*) FROM semel.effect WHERE (%(tenant)s::text IS NULL OR tenant = %(tenant)s::text) GROUP BY state;

-- name: streams
SELECT DISTINCT tenant, stream FROM semel.journal WHERE (tenant, stream) > (%s::text, %s::text) ORDER BY tenant, stream LIMIT %s;

-- name: heads_after
SELECT s.tenant, s.stream, h.seq, h.hash
FROM (
    SELECT DISTINCT j.tenant, j.stream FROM semel.journal j WHERE (j.tenant, j.stream) > (%s::text, %s::text)
    ORDER BY j.tenant, j.stream LIMIT %s
) AS s
CROSS JOIN LATERAL (
    SELECT j.seq, j.hash FROM semel.journal j WHERE j.tenant = s.tenant AND j.stream = s.stream ORDER BY j.seq DESC LIMIT 1
) AS h ORDER BY s.tenant, s.stream;

-- name: has_ready
SELECT 1 FROM semel.ready WHERE queue = %s AND kind = %s AND rank = %s AND due = %s AND tenant = %s AND task = %s;

-- name: has_inflight
SELECT 1 FROM semel.inflight WHERE session = %s AND tenant = %s AND task = %s;

-- name: unknown_row
SELECT * FROM semel.unknown WHERE tenant = %s AND key = %s;

-- name: tally_unknown
SELECT count(*), coalesce(min(since), 0)::bigint FROM semel.unknown WHERE (%(tenant)s::text IS NULL OR tenant = %(tenant)s::text);

-- name: tally_tasks
SELECT (SELECT count(*) FROM semel.task WHERE delivery = 'blocked' AND strpos(why, 'waits for approval') > 0
            AND (%(tenant)s::text IS NULL OR tenant = %(tenant)s::text)),
       (SELECT count(*) FROM semel.inflight WHERE (%(tenant)s::text IS NULL OR tenant = %(tenant)s::text));

-- name: tally_depths
SELECT queue, kind, count(*), min(due) FROM semel.ready WHERE (%(tenant)s::text IS NULL OR tenant = %(tenant)s::text) GROUP BY queue, kind ORDER BY queue, kind;

-- name: tally_sessions
SELECT fenced, count(*) FROM semel.session GROUP BY fenced;

-- name: sizes
SELECT (SELECT count(*) FROM semel.task), (SELECT count(*) FROM semel.ready), (SELECT count(*) FROM semel.inflight),
       (SELECT count(*) FROM semel.effect), (SELECT count(*) FROM semel.unknown), (SELECT count(*) FROM semel.task_key);

-- name: listen
LISTEN semel;

-- name: notify
NOTIFY semel;

-- name: notify_queued
NOTIFY semel, 'queued';

-- name: has_meta
SELECT to_regclass('semel.meta') IS NOT NULL;

-- name: meta
SELECT name, value FROM semel.meta;

-- name: set_epoch
UPDATE semel.meta SET value = %s WHERE name = 'epoch';

-- name: witnessed
-- The hash of a row, and the number of a session's beat; none: NULL. What was pruned is held: its stream begins with a
-- tombstone, which names the hash of the last row that went.
SELECT (
    SELECT h.hash FROM (
        SELECT j.hash FROM semel.journal j
        WHERE j.tenant = %(tenant)s::text AND j.stream = %(stream)s::text AND j.seq = %(seq)s::bigint
        UNION ALL
        SELECT %(hash)s::bytea FROM (
            SELECT j.seq, j.kind, j.body FROM semel.journal j WHERE j.tenant = %(tenant)s::text AND j.stream = %(stream)s::text
            ORDER BY j.tenant, j.stream, j.seq LIMIT 1
        ) AS f
        WHERE f.kind = 'pruned' AND f.seq > %(seq)s::bigint
          AND (f.seq > %(seq)s::bigint + 1 OR f.body::jsonb ->> 'hash' = encode(%(hash)s::bytea, 'hex'))
        LIMIT 1
    ) AS h
), (SELECT s.beat FROM semel.session s WHERE s.id = %(session)s::text);

-- name: highest_at
SELECT coalesce(max(at), 0) FROM semel.journal
WHERE at <= %(until)s::bigint OR (%(until)s::bigint IS NULL AND starts_with(actor, 'session:'));

-- name: whose
-- Whether policies hold for this role, and whose it is.
SELECT row_security_active('semel.journal'), semel.my_tenant(), current_user::text;

-- name: roles
-- The role, if there is one; whether no policy holds for it; and whose it is already.
SELECT r.rolsuper OR r.rolbypassrls OR pg_has_role(r.rolname, c.relowner, 'USAGE'), t.tenant
FROM pg_roles r JOIN pg_class c ON c.oid = 'semel.journal'::regclass LEFT JOIN semel.tenant_role t ON t.role = r.rolname
WHERE r.rolname = %s::name;

-- name: let_in
SELECT semel.let_in(%s::name, %s::text);

-- name: has_schema
SELECT to_regnamespace('semel') IS NOT NULL;

-- name: create_schema
CREATE SCHEMA IF NOT EXISTS semel;

-- name: create_meta
CREATE TABLE IF NOT EXISTS semel.meta (name text COLLATE "C" PRIMARY KEY, value text NOT NULL);

-- name: lock_meta
LOCK TABLE semel.meta IN EXCLUSIVE MODE;

-- name: put_meta
INSERT INTO semel.meta (name, value) VALUES (%s, %s) ON CONFLICT (name) DO UPDATE SET value = excluded.value;

-- name: server
SELECT current_setting('server_version_num')::int, current_setting('server_encoding'), current_setting('synchronous_commit'),
       current_setting('fsync'), current_setting('full_page_writes'), current_setting('synchronous_standby_names'),
       current_setting('transaction_read_only'), pg_is_in_recovery(), (SELECT count(*)::int FROM pg_stat_replication);

-- name: borrowed_schema
-- In a transaction that is not ours, before anything is named that may not be there: an error would end it for its owner.
SELECT count(*) > 0, coalesce(bool_and(pg_catalog.has_schema_privilege(n.oid, 'USAGE')), false)
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = 'semel' AND c.relname = 'meta';

-- name: borrowed_key
SELECT m.value, (
    SELECT t.task FROM semel.task_key t
    WHERE t.tenant = %(tenant)s::text AND t.kind = %(kind)s::text AND t.key = %(key)s::text
) FROM semel.meta m WHERE m.name = 'id';

-- name: borrowed_insert_key
-- Waits for another transaction that has the key in hand; if that one commits, nothing is written, and there is no row.
INSERT INTO semel.task_key (tenant, kind, key, task)
SELECT * FROM unnest(%(tenant)s::text[], %(kind)s::text[], %(key)s::text[], %(task)s::text[])
ON CONFLICT (tenant, kind, key) DO NOTHING RETURNING task;

-- name: atomic_begin
INSERT INTO semel.unconfirmed (id) VALUES (%s);

-- name: atomic_end
DELETE FROM semel.unconfirmed WHERE id = %s RETURNING id;

-- name: discard
DISCARD ALL;

-- name: constraints_now
SET CONSTRAINTS ALL IMMEDIATE;
