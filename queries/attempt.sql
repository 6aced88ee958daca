-- name: CompleteJobs :one
-- CompleteJobs ends attempts that succeeded and counts them; the leases of the
-- others are lost. Each is fenced: worker, fence, and a lease that has not run out
-- by the clock read after the row's lock. CompletePlain below is its everyday case.
--
-- Vacuum mostly meets running when it is all but empty, so the planner expects one
-- row in any number of pages and may find it as good to go through the whole
-- index. LATERAL, and = ANY (ARRAY[...]), for which there are no hash and merge
-- joins, leave it nothing but to look each row up; so in the statements below, in
-- claim.sql and in maintenance.sql.
WITH done AS MATERIALIZED (
  SELECT d.job_id::uuid AS job_id, d.fence, d.frees
  FROM ROWS FROM (unnest(@job_ids::text[]), unnest(@fences::integer[]), unnest(@frees::boolean[])) AS d (job_id, fence, frees)
  ORDER BY 1
),
locked AS MATERIALIZED (
  SELECT l.job_id, l.lease_until
  FROM done AS d
  CROSS JOIN LATERAL (
    SELECT r.job_id, r.lease_until
    FROM onceq.running AS r
    WHERE r.job_id = d.job_id AND r.fence = d.fence AND r.worker_id = @worker_id::text
    FOR UPDATE
  ) AS l
),
ended AS (
  DELETE FROM onceq.running AS r
  USING locked
  WHERE r.job_id = ANY (ARRAY[locked.job_id]) AND locked.lease_until > clock_timestamp()
  RETURNING r.job_id, r.claimed_at, r.attempt, r.worker_id
),
stored AS (
  INSERT INTO onceq.finished (finished_at, claimed_at, job_id, state, attempt, worker_id)
  SELECT clock_timestamp(), e.claimed_at, e.job_id, 1, e.attempt, e.worker_id
  FROM ended AS e
),
bound AS MATERIALIZED (
  -- Only for requests that asked for it (ReleaseFinished): the key is free with its job's end.
  -- The first condition spares batches without any the look at their jobs.
  -- An expired binding is free anyway, and whoever takes it over may hold its row for long.
  -- The order is that of every statement that locks several bindings.
  SELECT b.key_hash
  FROM ended AS e
  JOIN done AS d ON d.job_id = e.job_id
  JOIN onceq.job AS j ON j.id = e.job_id
  JOIN onceq.binding AS b ON b.key_hash = ANY (j.key_hash || coalesce(j.key_aliases, '{}')) AND b.job_id = j.id
  WHERE (SELECT bool_or(done.frees) FROM done) AND d.frees AND b.expires_at > clock_timestamp()
  ORDER BY b.scope COLLATE "C", b.key_hash
  FOR UPDATE OF b
),
freed AS (
  DELETE FROM onceq.binding AS b
  USING bound
  WHERE b.key_hash = bound.key_hash
)
SELECT count(*) AS ended
FROM ended AS e;

-- name: CompletePlain :one
-- CompletePlain is CompleteJobs for attempts that free no key. It locks each row
-- by deleting it, and reads the clock once more after that: a lease that was good
-- when the row was found, and ran out while the lock was waited for, makes it
-- refuse itself, and CompleteJobs decides.
WITH done AS MATERIALIZED (
  SELECT d.job_id::uuid AS job_id, d.fence
  FROM ROWS FROM (unnest(@job_ids::text[]), unnest(@fences::integer[])) AS d (job_id, fence)
  ORDER BY 1
),
ended AS (
  DELETE FROM onceq.running AS r
  USING done AS d
  WHERE r.job_id = ANY (ARRAY[d.job_id]) AND r.fence = d.fence AND r.worker_id = @worker_id::text AND r.lease_until > clock_timestamp()
  RETURNING r.job_id, r.claimed_at, r.attempt, r.worker_id, r.lease_until, clock_timestamp() AS at
),
stored AS (
  INSERT INTO onceq.finished (finished_at, claimed_at, job_id, state, attempt, worker_id)
  SELECT e.at, e.claimed_at, e.job_id, 1, e.attempt, e.worker_id
  FROM ended AS e
)
SELECT (CASE
  WHEN bool_and(e.lease_until > e.at) IS FALSE THEN ('onceq waited for another transaction and asks again: ' || count(*)::text)::bigint
  ELSE count(*)
END)::bigint AS ended
FROM ended AS e;

-- name: FailJob :one
-- FailJob ends an attempt that failed, fenced like CompleteJobs, and decides what
-- follows: cancelled when that was asked for; dead when the delay is NULL (never
-- again), the budget is spent or the deadline has passed; otherwise it waits for
-- its next attempt. A death is noted on the live binding, or frees the key where
-- the request asked for that.
WITH locked AS MATERIALIZED (
  SELECT r.job_id, r.lease_until
  FROM onceq.running AS r
  WHERE r.job_id = @job_id::uuid AND r.fence = @fence::integer AND r.worker_id = @worker_id::text
  FOR UPDATE
),
ended AS (
  DELETE FROM onceq.running AS r
  USING locked
  WHERE r.job_id = ANY (ARRAY[locked.job_id]) AND locked.lease_until > clock_timestamp()
  RETURNING r.job_id, r.claimed_at, r.attempt, r.fence, r.worker_id, r.deadline, r.cancel_requested_at
),
verdict AS MATERIALIZED (
  SELECT
    e.*, j.queue, j.type, j.priority, j.concurrency_key, j.key_release, j.key_hash || coalesce(j.key_aliases, '{}') AS key_hashes,
    clock.at, clock.at + coalesce(sqlc.narg(delay_us)::bigint, 0) * interval '1 microsecond' AS next_at,
    CASE
      WHEN e.cancel_requested_at IS NOT NULL THEN 'cancelled'
      WHEN sqlc.narg(delay_us)::bigint IS NULL OR e.attempt >= j.max_attempts OR e.deadline <= clock.at THEN 'dead'
      ELSE 'retry_scheduled'
    END AS kind,
    CASE WHEN e.cancel_requested_at IS NULL AND e.deadline <= clock.at THEN 'deadline exceeded' ELSE @error::text END AS error
  FROM ended AS e
  JOIN onceq.job AS j ON j.id = e.job_id
  CROSS JOIN LATERAL (SELECT clock_timestamp() AS at WHERE e.job_id IS NOT NULL) AS clock
),
moved AS (
  UPDATE onceq.job AS j
  SET run_at = v.next_at
  FROM verdict AS v
  WHERE j.id = v.job_id AND v.kind = 'retry_scheduled'
),
queued AS (
  INSERT INTO onceq.pending (ready_at, job_id, deadline, attempt, priority, fence, queue, type, concurrency_key)
  SELECT v.next_at, v.job_id, v.deadline, v.attempt, v.priority, v.fence, v.queue, v.type, v.concurrency_key
  FROM verdict AS v
  WHERE v.kind = 'retry_scheduled'
),
stored AS (
  INSERT INTO onceq.finished (finished_at, claimed_at, job_id, state, attempt, worker_id, error)
  SELECT v.at, v.claimed_at, v.job_id, CASE v.kind WHEN 'dead' THEN 2 ELSE 3 END, v.attempt, v.worker_id, v.error
  FROM verdict AS v
  WHERE v.kind <> 'retry_scheduled'
),
bound AS MATERIALIZED (
  SELECT b.key_hash, v.key_release
  FROM verdict AS v
  JOIN onceq.binding AS b ON b.key_hash = ANY (v.key_hashes) AND b.job_id = v.job_id
  WHERE v.kind <> 'retry_scheduled' AND b.expires_at > clock_timestamp()
  ORDER BY b.scope COLLATE "C", b.key_hash
  FOR UPDATE OF b
),
freed AS (
  DELETE FROM onceq.binding AS b
  USING bound
  WHERE b.key_hash = bound.key_hash AND bound.key_release > 0
),
marked AS (
  UPDATE onceq.binding AS b
  SET dead = true
  FROM bound
  WHERE b.key_hash = bound.key_hash AND bound.key_release = 0
),
noted AS (
  INSERT INTO onceq.event (at, job_id, attempt, kind, details)
  SELECT v.at, v.job_id, v.attempt, v.kind, jsonb_strip_nulls(jsonb_build_object(
    'claimed_at', v.claimed_at, 'worker', v.worker_id, 'error', left(v.error, 1000),
    'next_at', CASE WHEN v.kind = 'retry_scheduled' THEN v.next_at END))
  FROM verdict AS v
)
SELECT v.kind::text AS kind
FROM verdict AS v;

-- name: ReleaseJobs :many
-- ReleaseJobs hands jobs back as ready, fenced like CompleteJobs: the attempt
-- does not count. A job that was asked to stop is cancelled instead, as by
-- FailJob.
WITH back AS MATERIALIZED (
  SELECT d.job_id::uuid AS job_id, d.fence
  FROM ROWS FROM (unnest(@job_ids::text[]), unnest(@fences::integer[])) AS d (job_id, fence)
  ORDER BY 1
),
locked AS MATERIALIZED (
  SELECT l.job_id, l.lease_until
  FROM back AS d
  CROSS JOIN LATERAL (
    SELECT r.job_id, r.lease_until
    FROM onceq.running AS r
    WHERE r.job_id = d.job_id AND r.fence = d.fence AND r.worker_id = @worker_id::text
    FOR UPDATE
  ) AS l
),
ended AS (
  DELETE FROM onceq.running AS r
  USING locked
  WHERE r.job_id = ANY (ARRAY[locked.job_id]) AND locked.lease_until > clock_timestamp()
  RETURNING r.job_id, r.claimed_at, r.attempt, r.fence, r.worker_id, r.deadline, r.cancel_requested_at
),
verdict AS MATERIALIZED (
  SELECT
    e.*, j.queue, j.type, j.priority, j.concurrency_key, j.key_release, j.key_hash || coalesce(j.key_aliases, '{}') AS key_hashes, clock.at,
    CASE WHEN e.cancel_requested_at IS NULL THEN 'released' ELSE 'cancelled' END AS kind
  FROM ended AS e
  JOIN onceq.job AS j ON j.id = e.job_id
  CROSS JOIN (SELECT clock_timestamp() AS at FROM (SELECT count(*) AS n FROM ended) AS counted) AS clock
),
moved AS (
  UPDATE onceq.job AS j
  SET run_at = v.at
  FROM verdict AS v
  WHERE j.id = v.job_id AND v.kind = 'released'
),
queued AS (
  INSERT INTO onceq.pending (ready_at, job_id, deadline, attempt, priority, fence, queue, type, concurrency_key)
  SELECT v.at, v.job_id, v.deadline, v.attempt - 1, v.priority, v.fence, v.queue, v.type, v.concurrency_key
  FROM verdict AS v
  WHERE v.kind = 'released'
),
stored AS (
  INSERT INTO onceq.finished (finished_at, claimed_at, job_id, state, attempt, worker_id, error)
  SELECT v.at, v.claimed_at, v.job_id, 3, v.attempt, v.worker_id, v.kind
  FROM verdict AS v
  WHERE v.kind = 'cancelled'
),
bound AS MATERIALIZED (
  SELECT b.key_hash, v.key_release
  FROM verdict AS v
  JOIN onceq.binding AS b ON b.key_hash = ANY (v.key_hashes) AND b.job_id = v.job_id
  WHERE v.kind = 'cancelled' AND b.expires_at > clock_timestamp()
  ORDER BY b.scope COLLATE "C", b.key_hash
  FOR UPDATE OF b
),
freed AS (
  DELETE FROM onceq.binding AS b
  USING bound
  WHERE b.key_hash = bound.key_hash AND bound.key_release > 0
),
marked AS (
  UPDATE onceq.binding AS b
  SET dead = true
  FROM bound
  WHERE b.key_hash = bound.key_hash AND bound.key_release = 0
),
noted AS (
  INSERT INTO onceq.event (at, job_id, attempt, kind, details)
  SELECT v.at, v.job_id, v.attempt, v.kind, jsonb_build_object('claimed_at', v.claimed_at, 'worker', v.worker_id)
  FROM verdict AS v
)
SELECT v.job_id::text AS job_id
FROM verdict AS v;

-- name: RenewLeases :many
-- RenewLeases is the heartbeat of all of a worker's attempts in one statement,
-- fenced like CompleteJobs: a lease that has run out is not revived. It never
-- waits: a row that is locked (by a checkpoint or a completion in the handler's
-- own transaction) is present but not renewed. An attempt that is not present
-- has lost its lease. It also tells which attempts were asked to stop. Which were
-- renewed is asked with IN, which is hashed, so the work grows with the leases and
-- not with their square.
WITH held AS MATERIALIZED (
  SELECT d.job_id::uuid AS job_id, d.fence
  FROM ROWS FROM (unnest(@job_ids::text[]), unnest(@fences::integer[])) AS d (job_id, fence)
),
present AS MATERIALIZED (
  SELECT l.job_id, l.cancel_requested_at
  FROM held AS d
  CROSS JOIN LATERAL (
    SELECT r.job_id, r.cancel_requested_at
    FROM onceq.running AS r
    WHERE r.job_id = d.job_id AND r.fence = d.fence AND r.worker_id = @worker_id::text
    OFFSET 0
  ) AS l
),
locked AS MATERIALIZED (
  SELECT l.job_id, l.lease_until
  FROM held AS d
  CROSS JOIN LATERAL (
    SELECT r.job_id, r.lease_until
    FROM onceq.running AS r
    WHERE r.job_id = d.job_id AND r.fence = d.fence AND r.worker_id = @worker_id::text
    FOR UPDATE SKIP LOCKED
  ) AS l
),
renewed AS (
  UPDATE onceq.running AS r
  SET lease_until = clock.at + sqlc.arg(lease_us)::bigint * interval '1 microsecond'
  FROM locked
  CROSS JOIN LATERAL (SELECT clock_timestamp() AS at WHERE locked.job_id IS NOT NULL) AS clock
  WHERE r.job_id = ANY (ARRAY[locked.job_id]) AND locked.lease_until > clock.at
  RETURNING r.job_id
)
SELECT
  p.job_id::text AS job_id,
  (p.cancel_requested_at IS NOT NULL)::boolean AS cancel_requested,
  ((p.job_id IN (SELECT renewed.job_id FROM renewed)) IS TRUE)::boolean AS renewed
FROM present AS p;

-- name: HoldsLease :one
-- HoldsLease tells whether an attempt's lease still has its row.
SELECT EXISTS (
  SELECT FROM onceq.running AS r
  WHERE r.job_id = @job_id::uuid AND r.fence = @fence::integer AND r.worker_id = @worker_id::text
)::boolean AS holds;
