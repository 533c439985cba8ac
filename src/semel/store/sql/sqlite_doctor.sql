-- name: doctor_store
SELECT (SELECT CAST(value AS INTEGER) FROM meta WHERE name = 'epoch'),
       coalesce(sum(fenced = ''), 0), coalesce(sum(fenced <> ''), 0), coalesce(max(CASE WHEN fenced = '' THEN ttl_ms END), 0),
       (SELECT count(*) FROM unknown), (SELECT coalesce(min(since), 0) FROM unknown)
FROM session;
