-- name: ListPending :many
-- ListPending takes one step of a walk over all waiting jobs, along the primary
-- key from where the last step ended.
SELECT
  p.queue, p.priority, to_char(p.ready_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US"+00"')::text AS ready_at, p.job_id::text AS job_id, p.type
FROM onceq.pending AS p
WHERE (p.queue, p.priority, p.ready_at, p.job_id) > (@after_queue::text, @after_priority::smallint, sqlc.arg(after_ready_at)::text::timestamptz, @after_job_id::uuid)
ORDER BY p.queue, p.priority, p.ready_at, p.job_id
LIMIT @rows::bigint;

-- name: ListPendingOfQueue :many
-- ListPendingOfQueue is ListPending for one queue: a range of the primary key.
SELECT
  p.queue, p.priority, to_char(p.ready_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US"+00"')::text AS ready_at, p.job_id::text AS job_id, p.type
FROM onceq.pending AS p
WHERE p.queue = @queue::text
  AND (p.priority, p.ready_at, p.job_id) > (@after_priority::smallint, sqlc.arg(after_ready_at)::text::timestamptz, @after_job_id::uuid)
ORDER BY p.priority, p.ready_at, p.job_id
LIMIT @rows::bigint;

-- name: PurgeJobs :one
-- PurgeJobs deletes those of the given jobs that wait and pass the filters, with
-- their bindings, checkpoints and events. Where a job waits and what it is are
-- looked up anew, since a debounce may have changed both after the job was listed.
--
-- Bindings are locked first, in the order of all statements, then places. It
-- never waits: a job of which a binding or the place is locked, or has changed
-- since the snapshot, is being claimed, replaced, cancelled or taken over, and is
-- left alone; it is counted as busy, and the caller asks again. A claim passes
-- locked places by, so a job is either purged or claimed. Only a binding that
-- the job still owns goes with it.
--
-- The summary is one event of the nil job for each purge, grown in the
-- transaction of each step, so that it is right whenever the purge is broken off.
WITH target AS MATERIALIZED (
  SELECT t.job_id, j.key_scope, j.key_hash || coalesce(j.key_aliases, '{}') AS key_hashes, p.queue, p.priority, p.ready_at
  FROM (SELECT DISTINCT g.job_id FROM unnest(@job_ids::uuid[]) AS g (job_id)) AS t
  -- OFFSET 0 keeps these look-ups by primary key for each job, whatever the planner thinks of the tables.
  CROSS JOIN LATERAL (SELECT o.* FROM onceq.job AS o WHERE o.id = t.job_id OFFSET 0) AS j
  CROSS JOIN LATERAL (
    SELECT o.queue, o.priority, o.ready_at
    FROM onceq.pending AS o
    WHERE o.queue = j.queue AND o.priority = j.priority AND o.ready_at = greatest(j.run_at, j.accepted_at) AND o.job_id = j.id
    OFFSET 0
  ) AS p
  WHERE j.accepted_at <= sqlc.arg(until)::text::timestamptz
    AND (j.queue = @queue::text OR @queue::text = '')
    AND (j.type = @type::text OR @type::text = '')
),
owned AS MATERIALIZED (
  SELECT t.job_id, t.key_scope, b.key_hash
  FROM target AS t
  CROSS JOIN LATERAL unnest(t.key_hashes) AS h (key_hash)
  CROSS JOIN LATERAL (
    SELECT o.key_hash FROM onceq.binding AS o WHERE o.key_hash = h.key_hash AND o.job_id = t.job_id OFFSET 0
  ) AS b
),
bound AS MATERIALIZED (
  SELECT o.job_id, b.key_hash
  FROM (SELECT w.* FROM owned AS w ORDER BY w.key_scope COLLATE "C", w.key_hash OFFSET 0) AS o
  CROSS JOIN LATERAL (
    SELECT l.key_hash FROM onceq.binding AS l WHERE l.key_hash = o.key_hash AND l.job_id = o.job_id FOR UPDATE SKIP LOCKED
  ) AS b
),
busy AS MATERIALIZED (
  SELECT o.job_id FROM owned AS o WHERE o.key_hash NOT IN (SELECT bound.key_hash FROM bound)
),
place AS MATERIALIZED (
  SELECT p.place
  FROM target AS t
  CROSS JOIN LATERAL (
    SELECT o.ctid::tid AS place
    FROM onceq.pending AS o
    WHERE o.queue = t.queue AND o.priority = t.priority AND o.ready_at = t.ready_at AND o.job_id = t.job_id
    FOR UPDATE SKIP LOCKED
  ) AS p
  WHERE t.job_id NOT IN (SELECT busy.job_id FROM busy)
),
gone AS (
  DELETE FROM onceq.pending AS p
  USING place
  WHERE p.ctid = place.place
  RETURNING p.job_id
),
freed AS (
  DELETE FROM onceq.binding AS b
  USING bound
  WHERE b.key_hash = bound.key_hash AND bound.job_id IN (SELECT gone.job_id FROM gone)
),
definition AS (
  DELETE FROM onceq.job AS j
  USING gone
  WHERE j.id = gone.job_id
),
stages AS (
  DELETE FROM onceq.checkpoint AS c
  USING gone
  WHERE c.job_id = gone.job_id
),
step AS MATERIALIZED (
  -- What retention is deleting at this moment is not waited for either.
  SELECT e.place
  FROM gone
  CROSS JOIN LATERAL (SELECT o.ctid::tid AS place FROM onceq.event AS o WHERE o.job_id = gone.job_id FOR UPDATE SKIP LOCKED) AS e
),
timeline AS (
  DELETE FROM onceq.event AS e
  USING step
  WHERE e.ctid = step.place
),
counted AS MATERIALIZED (
  SELECT (SELECT count(*) FROM gone) AS purged, (SELECT count(*) FROM target) AS wanted
),
summary AS (
  INSERT INTO onceq.event AS e (at, job_id, id, attempt, kind, details)
  SELECT sqlc.arg(until)::text::timestamptz, '00000000-0000-0000-0000-000000000000'::uuid, @summary_id::uuid, 0, 'purged',
    jsonb_build_object('jobs', c.purged, 'filter', sqlc.arg(filter)::text::jsonb)
  FROM counted AS c
  WHERE c.purged > 0
  ON CONFLICT (job_id, at, id) DO UPDATE SET
    details = jsonb_set(e.details, '{jobs}', to_jsonb((e.details->>'jobs')::bigint + (EXCLUDED.details->>'jobs')::bigint))
)
SELECT c.purged::bigint AS purged, (c.wanted - c.purged)::bigint AS busy
FROM counted AS c;
