-- name: DeleteExpiredBindings :one
-- DeleteExpiredBindings takes one step of a walk over the table: the next rows
-- after the cursor in their physical order (a range of row addresses, so no
-- index and no scan of the whole), of which the expired ones are deleted. Rows
-- that somebody is taking over at this moment are passed by, so a step never
-- waits, and so can't deadlock. A step that looked at nothing ends the walk.
--
-- An expired debounce binding whose job has never started stays: it is what
-- keeps a second pending job of its key from appearing. A job that has started
-- never waits like that again, so the look before the lock is enough. CASE keeps
-- it from being made for any other row.
WITH step AS MATERIALIZED (
  SELECT b.ctid::tid AS place
  FROM onceq.binding AS b
  WHERE b.ctid > sqlc.arg(after)::text::tid
  LIMIT @rows::bigint
),
expired AS MATERIALIZED (
  SELECT b.ctid::tid AS place
  FROM onceq.binding AS b
  JOIN step ON step.place = b.ctid
  WHERE b.expires_at <= clock_timestamp()
    AND CASE WHEN b.mode = 2 THEN (
      SELECT p.job_id
      FROM onceq.job AS j
      JOIN onceq.pending AS p
        ON p.queue = j.queue AND p.priority = j.priority AND p.ready_at = greatest(j.run_at, j.accepted_at) AND p.job_id = j.id AND p.fence = 0
      WHERE j.id = b.job_id
    ) IS NULL ELSE true END
  FOR UPDATE OF b SKIP LOCKED
),
deleted AS (
  DELETE FROM onceq.binding AS b
  USING expired
  WHERE b.ctid = expired.place
  RETURNING 1
)
SELECT
  coalesce((SELECT max(step.place) FROM step)::text, '')::text AS reached,
  (SELECT count(*) FROM step)::bigint AS looked_at,
  (SELECT count(*) FROM deleted)::bigint AS deleted;

-- name: TakeUpkeep :one
-- TakeUpkeep takes the turn of maintenance if it is due and nobody is taking it,
-- and sets when it is due next. No row: not now.
INSERT INTO onceq.upkeep AS u (name, due_at)
SELECT @name::text, clock_timestamp() + sqlc.arg(cadence_us)::bigint * interval '1 microsecond'
WHERE NOT EXISTS (SELECT FROM onceq.upkeep AS o WHERE o.name = @name::text AND o.due_at > clock_timestamp())
ON CONFLICT (name) DO UPDATE SET due_at = EXCLUDED.due_at
WHERE u.due_at <= clock_timestamp()
RETURNING u.name;

-- name: EndExpiredLeases :one
-- EndExpiredLeases takes jobs back whose worker is gone: the attempt counts. They
-- are cancelled when that was asked for, dead when the budget is spent or the
-- deadline has passed, and otherwise ready at once. Rows that somebody is
-- working on are passed by; the lease is looked at again under the row's lock.
-- Expired bindings are let be: they are free anyway. A job whose live binding is
-- locked (a FollowUp in a caller's transaction may hold it for long) is passed by
-- too, or it would hold up the whole pass: its turn comes again in a second.
WITH clock AS MATERIALIZED (
  SELECT clock_timestamp() AS at
),
expired AS MATERIALIZED (
  SELECT r.job_id, r.claimed_at, r.attempt, r.fence, r.worker_id, r.deadline, r.cancel_requested_at
  FROM onceq.running AS r
  CROSS JOIN clock
  WHERE r.lease_until <= clock.at
  LIMIT @rows::bigint
  FOR UPDATE OF r SKIP LOCKED
),
verdict AS MATERIALIZED (
  SELECT
    e.*, j.queue, j.type, j.priority, j.concurrency_key, j.key_release, j.key_hash || coalesce(j.key_aliases, '{}') AS key_hashes, clock.at,
    CASE
      WHEN e.cancel_requested_at IS NOT NULL THEN 'cancelled'
      WHEN e.deadline <= clock.at THEN 'deadline exceeded'
      WHEN e.attempt >= j.max_attempts THEN 'lease expired'
    END AS ending
  FROM expired AS e
  JOIN onceq.job AS j ON j.id = e.job_id
  CROSS JOIN clock
),
bound AS MATERIALIZED (
  SELECT b.key_hash, b.job_id, v.key_release
  FROM verdict AS v
  JOIN onceq.binding AS b ON b.key_hash = ANY (v.key_hashes) AND b.job_id = v.job_id
  WHERE v.ending IS NOT NULL AND b.expires_at > (SELECT clock.at FROM clock)
  ORDER BY b.scope COLLATE "C", b.key_hash
  FOR UPDATE OF b SKIP LOCKED
),
blocked AS MATERIALIZED (
  SELECT v.job_id
  FROM verdict AS v
  JOIN onceq.binding AS b ON b.key_hash = ANY (v.key_hashes) AND b.job_id = v.job_id
  WHERE v.ending IS NOT NULL AND b.expires_at > (SELECT clock.at FROM clock)
    AND (b.key_hash IN (SELECT bound.key_hash FROM bound)) IS NOT TRUE
),
ended AS MATERIALIZED (
  SELECT v.*
  FROM verdict AS v
  WHERE (v.job_id IN (SELECT blocked.job_id FROM blocked)) IS NOT TRUE
),
gone AS (
  DELETE FROM onceq.running AS r
  USING expired AS e
  WHERE r.job_id = ANY (ARRAY[e.job_id]) AND (e.job_id IN (SELECT blocked.job_id FROM blocked)) IS NOT TRUE
),
moved AS (
  UPDATE onceq.job AS j
  SET run_at = e.at
  FROM ended AS e
  WHERE j.id = e.job_id AND e.ending IS NULL
),
queued AS (
  INSERT INTO onceq.pending (ready_at, job_id, deadline, attempt, priority, fence, queue, type, concurrency_key)
  SELECT e.at, e.job_id, e.deadline, e.attempt, e.priority, e.fence, e.queue, e.type, e.concurrency_key
  FROM ended AS e
  WHERE e.ending IS NULL
),
stored AS (
  INSERT INTO onceq.finished (finished_at, claimed_at, job_id, state, attempt, worker_id, error)
  SELECT e.at, e.claimed_at, e.job_id, CASE e.ending WHEN 'cancelled' THEN 3 ELSE 2 END, e.attempt, e.worker_id, e.ending
  FROM ended AS e
  WHERE e.ending IS NOT NULL
),
freed AS (
  DELETE FROM onceq.binding AS b
  USING bound
  WHERE b.key_hash = bound.key_hash AND bound.key_release > 0 AND (bound.job_id IN (SELECT ended.job_id FROM ended)) IS TRUE
),
marked AS (
  UPDATE onceq.binding AS b
  SET dead = true
  FROM bound
  WHERE b.key_hash = bound.key_hash AND bound.key_release = 0 AND (bound.job_id IN (SELECT ended.job_id FROM ended)) IS TRUE
),
noted AS (
  INSERT INTO onceq.event (at, job_id, attempt, kind, details)
  SELECT e.at, e.job_id, e.attempt, 'lease_expired', jsonb_build_object('claimed_at', e.claimed_at, 'worker', e.worker_id)
  FROM ended AS e
  UNION ALL
  SELECT e.at + interval '1 microsecond', e.job_id, e.attempt, CASE e.ending WHEN 'cancelled' THEN 'cancelled' ELSE 'dead' END,
    jsonb_build_object('error', e.ending)
  FROM ended AS e
  WHERE e.ending IS NOT NULL
)
SELECT count(*)::bigint AS ended
FROM ended;

-- name: EndPassedDeadlines :one
-- EndPassedDeadlines makes waiting jobs dead whose deadline has passed. Bindings
-- are locked before places, in their order; a job that is being claimed or
-- cancelled at this moment is passed by, and so is one whose live binding is
-- locked, as in EndExpiredLeases. The clock is a subquery of its own, and
-- one limit a number: so the planner knows that few deadlines have passed, and that
-- the index leads to them.
WITH clock AS MATERIALIZED (
  SELECT clock_timestamp() AS at
),
passed AS MATERIALIZED (
  SELECT l.queue, l.priority, l.ready_at, l.job_id, j.key_release, j.key_hash || coalesce(j.key_aliases, '{}') AS key_hashes
  FROM (
    SELECT p.queue, p.priority, p.ready_at, p.job_id
    FROM onceq.pending AS p
    WHERE p.deadline <= (SELECT clock.at FROM clock)
    ORDER BY p.deadline
    LIMIT 1000
  ) AS l
  CROSS JOIN LATERAL (SELECT o.key_release, o.key_hash, o.key_aliases FROM onceq.job AS o WHERE o.id = l.job_id OFFSET 0) AS j
  LIMIT @rows::bigint
),
bound AS MATERIALIZED (
  SELECT b.key_hash, b.job_id
  FROM onceq.binding AS b
  JOIN passed ON b.key_hash = ANY (passed.key_hashes) AND b.job_id = passed.job_id
  WHERE b.expires_at > (SELECT clock.at FROM clock)
  ORDER BY b.scope COLLATE "C", b.key_hash
  FOR UPDATE OF b SKIP LOCKED
),
blocked AS MATERIALIZED (
  SELECT passed.job_id
  FROM passed
  JOIN onceq.binding AS b ON b.key_hash = ANY (passed.key_hashes) AND b.job_id = passed.job_id
  WHERE b.expires_at > (SELECT clock.at FROM clock)
    AND (b.key_hash IN (SELECT bound.key_hash FROM bound)) IS NOT TRUE
),
locked AS MATERIALIZED (
  SELECT l.queue, l.priority, l.ready_at, l.job_id
  FROM (SELECT count(*) AS n FROM bound) AS locks
  CROSS JOIN passed AS t
  CROSS JOIN LATERAL (
    SELECT p.queue, p.priority, p.ready_at, p.job_id
    FROM onceq.pending AS p
    WHERE p.queue = t.queue AND p.priority = t.priority AND p.ready_at = t.ready_at AND p.job_id = t.job_id AND locks.n >= 0
    FOR UPDATE SKIP LOCKED
  ) AS l
  WHERE (t.job_id IN (SELECT blocked.job_id FROM blocked)) IS NOT TRUE
),
gone AS (
  DELETE FROM onceq.pending AS p
  USING locked AS l
  WHERE p.queue = ANY (ARRAY[l.queue]) AND p.priority = l.priority AND p.ready_at = l.ready_at AND p.job_id = l.job_id
  RETURNING p.job_id, p.attempt
),
stored AS (
  INSERT INTO onceq.finished (finished_at, job_id, state, attempt, error)
  SELECT clock.at, g.job_id, 2, g.attempt, 'deadline exceeded'
  FROM gone AS g
  CROSS JOIN clock
),
freed AS (
  DELETE FROM onceq.binding AS b
  USING bound
  JOIN gone AS g ON g.job_id = bound.job_id
  JOIN passed ON passed.job_id = g.job_id
  WHERE b.key_hash = bound.key_hash AND passed.key_release > 0
),
marked AS (
  UPDATE onceq.binding AS b
  SET dead = true
  FROM bound
  JOIN gone AS g ON g.job_id = bound.job_id
  JOIN passed ON passed.job_id = g.job_id
  WHERE b.key_hash = bound.key_hash AND passed.key_release = 0
),
noted AS (
  INSERT INTO onceq.event (at, job_id, attempt, kind, details)
  SELECT clock.at, g.job_id, g.attempt, 'dead', jsonb_build_object('error', 'deadline exceeded')
  FROM gone AS g
  CROSS JOIN clock
)
SELECT count(*)::bigint AS ended
FROM gone;

-- name: DeleteOldFinished :one
-- DeleteOldFinished takes one step of a walk over the ended jobs, like
-- DeleteExpiredBindings, and deletes those past their retention with all that
-- belongs to them but their events, which have a retention of their own.
WITH step AS MATERIALIZED (
  SELECT f.ctid::tid AS place
  FROM onceq.finished AS f
  WHERE f.ctid > sqlc.arg(after)::text::tid
  LIMIT @rows::bigint
),
old AS MATERIALIZED (
  SELECT f.job_id
  FROM onceq.finished AS f
  JOIN step ON step.place = f.ctid
  WHERE f.finished_at <= clock_timestamp() - (CASE f.state WHEN 1 THEN sqlc.arg(succeeded_us)::bigint WHEN 2 THEN sqlc.arg(dead_us)::bigint ELSE sqlc.arg(cancelled_us)::bigint END) * interval '1 microsecond'
  FOR UPDATE OF f SKIP LOCKED
),
deleted AS (
  DELETE FROM onceq.finished AS f
  USING old
  WHERE f.job_id = old.job_id
  RETURNING f.job_id
),
definition AS (
  DELETE FROM onceq.job AS j
  USING old
  WHERE j.id = old.job_id
),
stages AS (
  DELETE FROM onceq.checkpoint AS c
  USING old
  WHERE c.job_id = old.job_id
)
SELECT
  coalesce((SELECT max(step.place) FROM step)::text, '')::text AS reached,
  (SELECT count(*) FROM step)::bigint AS looked_at,
  (SELECT count(*) FROM deleted)::bigint AS deleted;

-- name: DeleteOldEvents :one
-- DeleteOldEvents takes one step of a walk over the events and deletes those past
-- their retention.
WITH step AS MATERIALIZED (
  SELECT e.ctid::tid AS place
  FROM onceq.event AS e
  WHERE e.ctid > sqlc.arg(after)::text::tid
  LIMIT @rows::bigint
),
deleted AS (
  DELETE FROM onceq.event AS e
  USING step
  WHERE e.ctid = step.place AND e.at <= clock_timestamp() - sqlc.arg(retention_us)::bigint * interval '1 microsecond'
  RETURNING 1
)
SELECT
  coalesce((SELECT max(step.place) FROM step)::text, '')::text AS reached,
  (SELECT count(*) FROM step)::bigint AS looked_at,
  (SELECT count(*) FROM deleted)::bigint AS deleted;
