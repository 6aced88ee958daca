-- name: RunNow :one
-- RunNow moves a scheduled job's run time to now. A debounce window ends with it:
-- its binding is locked first, under every hash and in the order of all
-- statements, then the place, and the binding goes, so that the next request is
-- fresh. The clock is read after both. Like a replacement it deletes the place
-- and makes it anew: a claim whose snapshot is older finds nothing to lock.
--
-- moved is false, and nothing was written, when the job is not scheduled, or when
-- its place changed while it was waited for; scheduled tells the two apart.
WITH target AS MATERIALIZED (
  SELECT
    j.id, j.key_mode, j.key_hash || coalesce(j.key_aliases, '{}') AS key_hashes,
    p.queue, p.priority, p.ready_at, coalesce(p.ready_at > clock_timestamp(), false) AS scheduled
  FROM onceq.job AS j
  LEFT JOIN onceq.pending AS p
    ON p.queue = j.queue AND p.priority = j.priority AND p.ready_at = greatest(j.run_at, j.accepted_at) AND p.job_id = j.id
  WHERE j.id = @job_id::uuid
),
bound AS MATERIALIZED (
  SELECT b.key_hash
  FROM onceq.binding AS b
  JOIN target AS t ON b.key_hash = ANY (t.key_hashes) AND b.job_id = t.id
  WHERE t.scheduled AND t.key_mode = 2
  ORDER BY b.scope COLLATE "C", b.key_hash
  FOR UPDATE OF b
),
place AS MATERIALIZED (
  SELECT p.queue, p.priority, p.ready_at, p.job_id
  FROM target AS t
  CROSS JOIN (SELECT count(*) AS n FROM bound) AS locks
  JOIN onceq.pending AS p ON p.queue = t.queue AND p.priority = t.priority AND p.ready_at = t.ready_at AND p.job_id = t.id
  WHERE t.scheduled AND locks.n >= 0
  FOR UPDATE OF p
),
due AS MATERIALIZED (
  SELECT place.queue, place.priority, place.ready_at, place.job_id, clock.at
  FROM place
  CROSS JOIN LATERAL (SELECT clock_timestamp() AS at WHERE place.job_id IS NOT NULL) AS clock
  WHERE place.ready_at > clock.at
),
left_place AS (
  DELETE FROM onceq.pending AS p
  USING due
  WHERE p.queue = due.queue AND p.priority = due.priority AND p.ready_at = due.ready_at AND p.job_id = due.job_id
  RETURNING p.job_id, p.deadline, p.attempt, p.fence
),
moved AS (
  UPDATE onceq.job AS j
  SET run_at = due.at
  FROM due
  JOIN left_place AS l ON l.job_id = due.job_id
  WHERE j.id = due.job_id
  RETURNING j.id, j.accepted_at, j.run_at, j.priority, j.queue, j.type, j.concurrency_key, l.deadline, l.attempt, l.fence
),
queued AS (
  INSERT INTO onceq.pending (ready_at, job_id, deadline, attempt, priority, fence, queue, type, concurrency_key)
  SELECT greatest(m.run_at, m.accepted_at), m.id, m.deadline, m.attempt, m.priority, m.fence, m.queue, m.type, m.concurrency_key
  FROM moved AS m
),
freed AS (
  DELETE FROM onceq.binding AS b
  USING bound
  WHERE b.key_hash = bound.key_hash AND EXISTS (SELECT FROM moved)
),
noted AS (
  INSERT INTO onceq.event (at, job_id, attempt, kind, details)
  SELECT due.at, due.job_id, m.attempt, 'run_now', jsonb_build_object('before', due.ready_at)
  FROM due
  JOIN moved AS m ON m.id = due.job_id
)
SELECT
  t.scheduled::boolean AS scheduled,
  (SELECT count(*) FROM moved)::bigint AS moved,
  coalesce(t.queue, '')::text AS queue
FROM target AS t;
