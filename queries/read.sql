-- name: GetJobs :many
-- GetJobs reads jobs by primary key, in the order asked for. Instants are seconds since
-- 1970 in decimal digits, which no DateStyle, TimeZone or driver reads otherwise.
-- Where a job stands follows from the table that holds its place, each found by
-- primary key; a waiting job's own columns are that key, and the clock tells
-- scheduled from ready. OFFSET 0 keeps the look-ups one by one, whatever the
-- planner thinks of the tables. Payloads are read by GetPayloads, so that a role
-- without the right to them can read all else.
SELECT
  j.id::text AS id, j.queue, j.type, j.priority, j.max_attempts, j.concurrency_key,
  extract(epoch FROM j.accepted_at)::text AS accepted_at, extract(epoch FROM j.run_at)::text AS run_at,
  coalesce(extract(epoch FROM j.deadline)::text, '')::text AS deadline,
  coalesce(to_jsonb(j.tags), '[]')::text AS tags,
  j.key_scope, j.key_preview, j.key_length, coalesce(encode(j.key_hash, 'hex'), '')::text AS key_hash,
  (CASE
    WHEN f.state = 1 THEN 'succeeded'
    WHEN f.state = 2 THEN 'dead'
    WHEN f.state = 3 THEN 'cancelled'
    WHEN r.job_id IS NOT NULL THEN 'running'
    WHEN p.ready_at <= clock_timestamp() THEN 'ready'
    ELSE 'scheduled'
  END)::text AS state,
  coalesce(f.attempt, r.attempt, p.attempt, 0)::smallint AS attempt,
  coalesce(f.worker_id, r.worker_id, '')::text AS worker_id,
  coalesce(extract(epoch FROM f.finished_at)::text, '')::text AS finished_at,
  coalesce(extract(epoch FROM f.claimed_at)::text, '')::text AS last_claimed_at,
  coalesce(extract(epoch FROM r.claimed_at)::text, '')::text AS running_since,
  coalesce(f.error, (
    SELECT e.details->>'error' FROM onceq.event AS e
    WHERE e.job_id = j.id AND e.kind = 'retry_scheduled' ORDER BY e.at DESC LIMIT 1
  ), '')::text AS last_error,
  coalesce((SELECT d.source_id FROM onceq.redrive AS d WHERE d.target_id = j.id)::text, '')::text AS redrive_of,
  coalesce((SELECT d.target_id FROM onceq.redrive AS d WHERE d.source_id = j.id ORDER BY d.ordinal DESC LIMIT 1)::text, '')::text AS redriven_as
FROM ROWS FROM (unnest(@ids::uuid[])) WITH ORDINALITY AS asked (id, ord)
CROSS JOIN LATERAL (
  SELECT
    o.id, o.accepted_at, o.run_at, o.deadline, o.priority, o.max_attempts, o.queue, o.type, o.tags, o.concurrency_key,
    o.key_scope, o.key_preview, o.key_length, o.key_hash
  FROM onceq.job AS o
  WHERE o.id = asked.id
  OFFSET 0
) AS j
LEFT JOIN LATERAL (SELECT o.* FROM onceq.finished AS o WHERE o.job_id = j.id OFFSET 0) AS f ON true
LEFT JOIN LATERAL (SELECT o.* FROM onceq.running AS o WHERE o.job_id = j.id OFFSET 0) AS r ON true
LEFT JOIN LATERAL (
  SELECT o.*
  FROM onceq.pending AS o
  WHERE o.queue = j.queue AND o.priority = j.priority AND o.ready_at = greatest(j.run_at, j.accepted_at) AND o.job_id = j.id
  OFFSET 0
) AS p ON true
ORDER BY asked.ord;

-- name: GetPayloads :many
-- GetPayloads reads the payloads of jobs by primary key.
SELECT j.id::text AS id, j.payload::text AS payload
FROM ROWS FROM (unnest(@ids::uuid[])) AS asked (id)
CROSS JOIN LATERAL (SELECT o.id, o.payload FROM onceq.job AS o WHERE o.id = asked.id OFFSET 0) AS j;

-- name: GetEvents :many
-- GetEvents reads the events of a job, oldest first.
SELECT e.kind, extract(epoch FROM e.at)::text AS at, e.attempt, e.details::text AS details
FROM onceq.event AS e
WHERE e.job_id = @job_id::uuid
ORDER BY e.at, e.id;

-- name: GetBinding :one
-- GetBinding reads the live binding of a key by primary key, under whichever of
-- its hashes (newest first) it stands.
SELECT b.job_id::text AS job_id, b.mode, b.dead, extract(epoch FROM b.accepted_at)::text AS accepted_at, extract(epoch FROM b.expires_at)::text AS expires_at, encode(b.key_hash, 'hex')::text AS key_hash
FROM onceq.binding AS b
WHERE b.key_hash = ANY (@key_hashes::bytea[])
  AND b.expires_at > clock_timestamp()
ORDER BY array_position(@key_hashes::bytea[], b.key_hash)
LIMIT 1;
