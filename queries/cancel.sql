-- name: CancelPending :one
-- CancelPending cancels a job that waits, also one that waits for a retry. The
-- binding's row is locked before the job's place, as everywhere; the key goes on
-- answering, marked dead, unless the request freed it for this case.
WITH target AS MATERIALIZED (
  SELECT j.id, j.queue, j.priority, greatest(j.run_at, j.accepted_at) AS ready_at, j.key_release,
    j.key_hash || coalesce(j.key_aliases, '{}') AS key_hashes
  FROM onceq.job AS j
  WHERE j.id = @job_id::uuid
),
bound AS MATERIALIZED (
  SELECT b.key_hash
  FROM onceq.binding AS b
  JOIN target AS t ON b.key_hash = ANY (t.key_hashes) AND b.job_id = t.id
  WHERE b.expires_at > clock_timestamp()
  ORDER BY b.scope COLLATE "C", b.key_hash
  FOR UPDATE OF b
),
gone AS (
  DELETE FROM onceq.pending AS p
  USING target AS t
  CROSS JOIN (SELECT count(*) AS n FROM bound) AS locks
  WHERE p.queue = t.queue AND p.priority = t.priority AND p.ready_at = t.ready_at AND p.job_id = t.id AND locks.n >= 0
  RETURNING p.job_id, p.attempt
),
stored AS (
  INSERT INTO onceq.finished (finished_at, job_id, state, attempt, error)
  SELECT clock_timestamp(), g.job_id, 3, g.attempt, @reason::text
  FROM gone AS g
),
freed AS (
  DELETE FROM onceq.binding AS b
  USING bound, target AS t
  JOIN gone AS g ON g.job_id = t.id
  WHERE b.key_hash = bound.key_hash AND t.key_release > 0
),
marked AS (
  UPDATE onceq.binding AS b
  SET dead = true
  FROM bound, target AS t
  JOIN gone AS g ON g.job_id = t.id
  WHERE b.key_hash = bound.key_hash AND t.key_release = 0
),
noted AS (
  INSERT INTO onceq.event (at, job_id, attempt, kind, details)
  SELECT clock_timestamp(), g.job_id, g.attempt, 'cancelled', jsonb_build_object('reason', left(@reason::text, 1000))
  FROM gone AS g
)
SELECT g.job_id::text AS job_id
FROM gone AS g;

-- name: CancelRunning :one
-- CancelRunning asks the worker of a running job to stop it, once: the handler's
-- context ends at its next heartbeat. The lease's row is locked first and the
-- answer comes from it: a job that left while the lock was waited for has none,
-- and is looked for elsewhere.
WITH lease AS MATERIALIZED (
  SELECT r.job_id, r.cancel_requested_at
  FROM onceq.running AS r
  WHERE r.job_id = @job_id::uuid
  FOR UPDATE
),
asked AS (
  UPDATE onceq.running AS r
  SET cancel_requested_at = clock_timestamp()
  FROM lease
  WHERE r.job_id = lease.job_id AND lease.cancel_requested_at IS NULL
  RETURNING r.job_id, r.attempt, r.cancel_requested_at
),
noted AS (
  INSERT INTO onceq.event (at, job_id, attempt, kind, details)
  SELECT a.cancel_requested_at, a.job_id, a.attempt, 'cancel_requested', jsonb_build_object('reason', left(@reason::text, 1000))
  FROM asked AS a
)
SELECT lease.job_id::text AS job_id
FROM lease;

-- name: WhereIsJob :one
-- WhereIsJob tells which table holds a job's place: '' when it is gone.
SELECT (CASE
  WHEN EXISTS (SELECT FROM onceq.finished AS f WHERE f.job_id = @job_id::uuid) THEN 'finished'
  WHEN EXISTS (SELECT FROM onceq.job AS j WHERE j.id = @job_id::uuid) THEN 'waiting'
  ELSE ''
END)::text AS place;
