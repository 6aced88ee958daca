-- name: GetJob :one
-- GetJob reads one job by primary key. Where it stands follows from the table
-- that holds its place: a row of pending is found by the primary key of its own
-- columns, and tells scheduled from ready by the clock.
SELECT
  j.id::text AS id, j.queue, j.type, j.priority, j.max_attempts, j.concurrency_key,
  j.accepted_at, j.run_at, j.deadline,
  j.payload::text AS payload, coalesce(to_jsonb(j.tags), '[]')::text AS tags,
  j.key_scope, j.key_preview, j.key_length, j.key_hash,
  p.attempt, (p.ready_at <= clock_timestamp())::boolean AS ready
FROM onceq.job AS j
JOIN onceq.pending AS p
  ON p.queue = j.queue AND p.priority = j.priority AND p.ready_at = greatest(j.run_at, j.accepted_at) AND p.job_id = j.id
WHERE j.id = @job_id::uuid;

-- name: GetBinding :one
-- GetBinding reads the live binding of a key by primary key, under whichever of
-- its hashes (newest first) it stands.
SELECT b.job_id::text AS job_id, b.mode, b.dead, b.accepted_at, b.expires_at, b.key_hash
FROM onceq.binding AS b
WHERE b.key_hash = ANY (@key_hashes::bytea[])
  AND b.expires_at > clock_timestamp()
ORDER BY array_position(@key_hashes::bytea[], b.key_hash)
LIMIT 1;
