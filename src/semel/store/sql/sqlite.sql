-- name: head
SELECT seq, hash FROM journal WHERE tenant = ? AND stream = ? ORDER BY seq DESC LIMIT 1;

-- name: insert_journal
INSERT INTO journal (tenant, stream, seq, kind, actor, token, at, body, id, hash) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: take_away
-- What stands before a tombstone (R22).
DELETE FROM journal WHERE tenant = ? AND stream = ? AND seq < ?;

-- name: insert_task
-- Of a task that begins: nobody else has a row of it, since its key was inserted before.
INSERT INTO task (tenant, task, kind, key, queue, priority, due, delivery, execution, attempt, token, session, failures, crashes,
                  unknown, version, why)
VALUES (?, ?, ?, ?, ?, ?, ?, 'queued', 'not_started', 0, 0, '', 0, 0, 0, 1, '');

-- name: put_task
INSERT INTO task (tenant, task, kind, key, queue, priority, due, delivery, execution, attempt, token, session, failures,
                  crashes, unknown, version, why)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (tenant, task) DO UPDATE SET
    due = excluded.due, delivery = excluded.delivery, execution = excluded.execution, attempt = excluded.attempt,
    token = excluded.token, session = excluded.session, failures = excluded.failures, crashes = excluded.crashes,
    unknown = excluded.unknown, version = excluded.version, why = excluded.why;

-- name: insert_key
INSERT INTO task_key (tenant, kind, key, task) VALUES (?, ?, ?, ?);

-- name: find_task
SELECT task FROM task_key WHERE tenant = ? AND kind = ? AND key = ?;

-- name: find_tasks
-- Of several keys at once; the place of one is there as often as there are keys.
WITH k (tenant, kind, key) AS (VALUES (?, ?, ?))
SELECT t.tenant, t.kind, t.key, t.task
FROM k CROSS JOIN task_key t ON t.tenant = k.tenant AND t.kind = k.kind AND t.key = k.key;

-- name: delete_ready
DELETE FROM ready WHERE queue = ? AND kind = ? AND rank = ? AND due = ? AND tenant = ? AND task = ?;

-- name: insert_ready
INSERT INTO ready (queue, kind, rank, due, tenant, task) VALUES (?, ?, ?, ?, ?, ?);

-- name: delete_inflight
DELETE FROM inflight WHERE session = ? AND tenant = ? AND task = ?;

-- name: insert_inflight
INSERT INTO inflight (session, tenant, task) VALUES (?, ?, ?);

-- name: put_effect
INSERT INTO effect (tenant, key, task, stream, name, state, version) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (tenant, key) DO UPDATE SET task = excluded.task, state = excluded.state, version = excluded.version;

-- name: delete_unknown
DELETE FROM unknown WHERE tenant = ? AND key = ?;

-- name: insert_unknown
INSERT INTO unknown (tenant, key, task, name, since) VALUES (?, ?, ?, ?, ?);

-- name: guard
SELECT epoch, beat, fenced, (SELECT CAST(value AS INTEGER) FROM meta WHERE name = 'epoch') FROM session WHERE id = ?;

-- name: set_epoch
UPDATE meta SET value = ? WHERE name = 'epoch';

-- name: put_meta
INSERT INTO meta (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value;

-- name: meta
SELECT name, value FROM meta;

-- name: hash_at
-- What was pruned is held: its stream begins with a tombstone, which names the hash of the last row that went.
SELECT hash FROM journal WHERE tenant = ?1 AND stream = ?2 AND seq = ?3
UNION ALL
SELECT ?4 FROM (SELECT seq, kind, body FROM journal WHERE tenant = ?1 AND stream = ?2 ORDER BY seq LIMIT 1)
WHERE kind = 'pruned' AND seq > ?3 AND (seq > ?3 + 1 OR body ->> 'hash' = lower(hex(?4))) LIMIT 1;

-- name: beat_of
SELECT beat FROM session WHERE id = ?;

-- name: highest_at
SELECT coalesce(max(at), 0) FROM journal WHERE at <= ? OR (? IS NULL AND actor LIKE 'session:%');

-- name: ranks
-- The distinct ranks of one kind in one queue, and when the first of each falls due, by jumps: as many steps as there are
-- ranks, however many rows.
WITH RECURSIVE jump(rank) AS (
    SELECT (SELECT min(rank) FROM ready WHERE queue = ?1 AND kind = ?2 AND (?3 IS NULL OR tenant = ?3))
    UNION ALL
    SELECT (SELECT min(r.rank) FROM ready r WHERE r.queue = ?1 AND r.kind = ?2 AND r.rank > jump.rank
              AND (?3 IS NULL OR r.tenant = ?3))
    FROM jump WHERE jump.rank IS NOT NULL
)
SELECT rank, (SELECT min(r.due) FROM ready r WHERE r.queue = ?1 AND r.kind = ?2 AND r.rank = jump.rank
                AND (?3 IS NULL OR r.tenant = ?3)) FROM jump
WHERE rank IS NOT NULL;

-- name: candidates
SELECT queue, kind, rank, due, tenant, task FROM ready
WHERE queue = ?1 AND kind = ?2 AND rank = ?3 AND due <= ?4 AND (due, tenant, task) > (?7, ?8, ?9)
  AND (?6 IS NULL OR tenant = ?6) ORDER BY due, tenant, task LIMIT ?5;

-- name: next_line
-- The next (tenant, rank) behind one, and when the first of them falls due. The third value takes it past all of that one:
-- SQLite looks up where a row value begins.
SELECT tenant, rank, due FROM ready WHERE queue = ?1 AND kind = ?2 AND (tenant, rank, due) > (?3, ?4, 9223372036854775807)
ORDER BY tenant, rank, due LIMIT 1;

-- name: in_turn
SELECT queue, kind, rank, due, tenant, task FROM ready
WHERE queue = ?1 AND kind = ?2 AND tenant = ?3 AND rank = ?4 AND due <= ?5 AND (due, task) > (?6, ?7)
ORDER BY due, task LIMIT ?8;

-- name: queues
WITH RECURSIVE jump(queue) AS (
    SELECT (SELECT min(queue) FROM ready)
    UNION ALL
    SELECT (SELECT min(r.queue) FROM ready r WHERE r.queue > jump.queue) FROM jump WHERE jump.queue IS NOT NULL
)
SELECT queue FROM jump WHERE queue IS NOT NULL;

-- name: kinds
WITH RECURSIVE jump(kind) AS (
    SELECT (SELECT min(kind) FROM ready WHERE queue = ?1 AND (?2 IS NULL OR tenant = ?2))
    UNION ALL
    SELECT (SELECT min(r.kind) FROM ready r WHERE r.queue = ?1 AND r.kind > jump.kind AND (?2 IS NULL OR r.tenant = ?2))
    FROM jump WHERE jump.kind IS NOT NULL
)
SELECT kind FROM jump WHERE kind IS NOT NULL;

-- name: rows
SELECT tenant, stream, seq, kind, actor, token, at, body, id, hash FROM journal
WHERE tenant = ? AND stream = ? AND seq > ? ORDER BY seq;

-- name: id_at
SELECT id FROM journal WHERE tenant = ? AND stream = ? AND seq = ?;

-- name: open_session
INSERT INTO session (id, beat, nonce, ttl_ms, epoch, host, boot_id, pid_ns, time_ns, pid, start_time, fenced, started)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: beat
UPDATE session SET beat = ?, nonce = ? WHERE id = ? AND fenced = '' AND nonce IN (SELECT value FROM json_each(?))
  AND epoch = (SELECT CAST(value AS INTEGER) FROM meta WHERE name = 'epoch');

-- name: fence
UPDATE session SET fenced = ?2 WHERE id = ?1 AND fenced = '' AND (?3 IS NULL OR nonce = ?3);

-- name: living
SELECT id, beat, nonce, ttl_ms, epoch, host, boot_id, pid_ns, time_ns, pid, start_time, fenced, started FROM session
WHERE fenced = '';

-- name: session
SELECT id, beat, nonce, ttl_ms, epoch, host, boot_id, pid_ns, time_ns, pid, start_time, fenced, started FROM session
WHERE id = ?;

-- name: held
SELECT session, tenant, task FROM inflight WHERE session = ?;

-- name: orphans
-- The distinct sessions that hold something, by jumps, so that what the living hold costs nothing. The jumps go upwards one
-- at a time and CROSS JOIN keeps them outermost, so the rows come in order by themselves.
WITH RECURSIVE jump(session) AS (
    SELECT (SELECT min(session) FROM inflight WHERE session >= ?1)
    UNION ALL
    SELECT (SELECT min(i.session) FROM inflight i WHERE i.session > jump.session) FROM jump WHERE jump.session IS NOT NULL
)
SELECT i.session, i.tenant, i.task, coalesce(s.fenced, 'missing')
FROM jump LEFT JOIN session s ON s.id = jump.session CROSS JOIN inflight i ON i.session = jump.session
WHERE (s.id IS NULL OR s.fenced <> '') AND (i.session, i.tenant, i.task) > (?1, ?2, ?3) AND (?5 IS NULL OR i.tenant = ?5)
LIMIT ?4;

-- name: task
SELECT * FROM task WHERE tenant = ? AND task = ?;

-- name: tasks
SELECT * FROM task
WHERE (?1 IS NULL OR tenant = ?1) AND (?2 = '' OR delivery = ?2) AND (?3 = '' OR execution = ?3) AND (?4 = '' OR kind = ?4)
  AND (?5 = '' OR queue = ?5) AND (?6 = '' OR task < ?6)
ORDER BY task DESC LIMIT ?7;

-- name: tasks_of
-- The same of one tenant, as they lie.
SELECT * FROM task
WHERE tenant = ?1 AND task < coalesce(nullif(?6, ''), (SELECT max(task) || '.' FROM task WHERE tenant = ?1))
  AND (?2 = '' OR delivery = ?2) AND (?3 = '' OR execution = ?3) AND (?4 = '' OR kind = ?4) AND (?5 = '' OR queue = ?5)
ORDER BY task DESC LIMIT ?7;

-- name: tasks_after
SELECT * FROM task WHERE (tenant, task) > (?, ?) ORDER BY tenant, task LIMIT ?;

-- name: tenants
-- The first and the last of those that have tasks.
SELECT (SELECT min(tenant) FROM task), (SELECT max(tenant) FROM task);

-- name: nth_task
-- Where a page of so many tasks ends.
SELECT tenant, task FROM task
WHERE (tenant, task) > (?2, ?3) AND tenant <= coalesce(?1, (SELECT max(tenant) FROM task)) ORDER BY tenant, task LIMIT 1 OFFSET ?4;

-- name: last_task
SELECT tenant, task FROM task
WHERE (tenant, task) > (?2, ?3) AND tenant <= coalesce(?1, (SELECT max(tenant) FROM task)) ORDER BY tenant DESC, task DESC LIMIT 1;

-- name: unfinished
SELECT * FROM task
WHERE (tenant, task) > (?1, ?2) AND (tenant, task) <= (?3, ?4) AND delivery IN ('queued', 'leased', 'blocked')
  AND (attempt > 0 AND kind IN (SELECT value FROM json_each(?5)) OR kind IN (SELECT value FROM json_each(?6)))
ORDER BY tenant, task;

-- name: ages
-- Tasks in order, a page at a time, with the time and the kind of the last row of each.
SELECT t.tenant, t.task, t.delivery, coalesce(j.at, 9223372036854775807), coalesce(j.kind, '')
FROM (SELECT tenant, task, delivery, version FROM task WHERE (?1 IS NULL OR tenant = ?1) AND (tenant, task) > (?2, ?3)
      ORDER BY tenant, task LIMIT ?4) AS t
LEFT JOIN journal j ON j.tenant = t.tenant AND j.stream = t.task AND j.seq = t.version ORDER BY t.tenant, t.task;

-- name: key_ages
-- The same of effects; one that stands in its task's stream is of no age by itself.
SELECT e.tenant, e.key, e.state, coalesce(j.at, 9223372036854775807), coalesce(j.kind, '')
FROM (SELECT tenant, key, stream, state FROM effect WHERE (?1 IS NULL OR tenant = ?1) AND (tenant, key) > (?2, ?3)
      ORDER BY tenant, key LIMIT ?4) AS e
LEFT JOIN journal j ON e.stream = e.key AND j.tenant = e.tenant AND j.stream = e.key
  AND j.seq = (SELECT max(l.seq) FROM journal l WHERE l.tenant = e.tenant AND l.stream = e.key) ORDER BY e.tenant, e.key;

-- name: effect
SELECT * FROM effect WHERE tenant = ? AND key = ?;

-- name: effect_of_any_tenant
-- For a person who has a key and nothing else: walks the table.
SELECT * FROM effect WHERE key = ? LIMIT 1;

-- name: effects
SELECT * FROM effect
WHERE (?1 IS NULL OR tenant = ?1) AND (?2 = '' OR state = ?2) AND (?3 = '' OR task = ?3) AND (?4 = '' OR key > ?4)
ORDER BY key LIMIT ?5;

-- name: effects_of
-- The same of one tenant, as they lie.
SELECT * FROM effect WHERE tenant = ?1 AND key > ?4 AND (?2 = '' OR state = ?2) AND (?3 = '' OR task = ?3) ORDER BY key LIMIT ?5;

-- name: effects_after
SELECT * FROM effect WHERE (tenant, key) > (?, ?) ORDER BY tenant, key LIMIT ?;

-- name: unknown
SELECT * FROM unknown WHERE (?1 IS NULL OR tenant = ?1) ORDER BY since, key LIMIT ?2;

-- name: count_delivery
SELECT delivery, count(*) FROM task WHERE (?1 IS NULL OR tenant = ?1) GROUP BY delivery;

-- name: count_execution
SELECT execution, count(*) FROM task WHERE (?1 IS NULL OR tenant = ?1) GROUP BY execution;

-- name: count_effect
SELECT state, count(*) FROM effect WHERE (?1 IS NULL OR tenant = ?1) GROUP BY state;

-- name: streams
SELECT DISTINCT tenant, stream FROM journal WHERE (tenant, stream) > (?, ?) ORDER BY tenant, stream LIMIT ?;

-- name: heads_after
SELECT s.tenant, s.stream, j.seq, j.hash
FROM (SELECT DISTINCT tenant, stream FROM journal WHERE (tenant, stream) > (?, ?) ORDER BY tenant, stream LIMIT ?) AS s
CROSS JOIN journal j ON j.tenant = s.tenant AND j.stream = s.stream
  AND j.seq = (SELECT max(l.seq) FROM journal l WHERE l.tenant = s.tenant AND l.stream = s.stream);

-- name: has_ready
SELECT 1 FROM ready WHERE queue = ? AND kind = ? AND rank = ? AND due = ? AND tenant = ? AND task = ?;

-- name: has_inflight
SELECT 1 FROM inflight WHERE session = ? AND tenant = ? AND task = ?;

-- name: unknown_row
SELECT * FROM unknown WHERE tenant = ? AND key = ?;

-- name: tally_unknown
SELECT count(*), coalesce(min(since), 0) FROM unknown WHERE (?1 IS NULL OR tenant = ?1);

-- name: tally_tasks
SELECT (SELECT count(*) FROM task WHERE delivery = 'blocked' AND instr(why, 'waits for approval') > 0 AND (?1 IS NULL OR tenant = ?1)),
       (SELECT count(*) FROM inflight WHERE (?1 IS NULL OR tenant = ?1));

-- name: tally_depths
SELECT queue, kind, count(*), min(due) FROM ready WHERE (?1 IS NULL OR tenant = ?1) GROUP BY queue, kind ORDER BY queue, kind;

-- name: tally_sessions
SELECT fenced, count(*) FROM session GROUP BY fenced;

-- name: sizes
SELECT (SELECT count(*) FROM task), (SELECT count(*) FROM ready), (SELECT count(*) FROM inflight),
       (SELECT count(*) FROM effect), (SELECT count(*) FROM unknown), (SELECT count(*) FROM task_key);
