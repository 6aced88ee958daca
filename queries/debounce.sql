-- name: Debounce :one
-- Debounce decides one debounced request. What the statement sees is enough to
-- refuse: another admission owns the key, the retained job has started or ended,
-- or its window is over while it still waits. A refusal writes and locks nothing.
-- It holds at the moment of the snapshot: live was read after it, and over is
-- by the statement's own time, which came before it. What lies between the two
-- is not refused but decided under the lock. Under REPEATABLE READ the snapshot
-- is the transaction's and may be older than the window's end: the job may have
-- left its place since, so there the place is locked before the window is called
-- over, and PostgreSQL refuses (40001) where it is gone.
--
-- To replace, the binding's row is locked, then the job's place: a claim that is
-- under way is waited for, and one that comes later passes a locked place by.
-- The clock is read after both. The place is deleted and made anew, never
-- updated, so a claim whose snapshot is older finds nothing to lock: the
-- definition that it would read with the place is the old one. If the binding or
-- the place changed while it was waited for, or the window ended, there is no
-- answer (no row), nothing was written, and the caller asks again on a new
-- snapshot; inside a transaction the lock is then its own.
--
-- A fresh job is accepted for a free key, for an expired one whose job no longer
-- waits, and, with follow_up, for one whose job has started or ended: neither
-- can be undone, so the look before the lock is enough once the binding is
-- locked and still the same. The run time is the end of the window, which is
-- also when the binding expires.
WITH seen AS MATERIALIZED (
  SELECT
    b.job_id, b.mode, b.dead, b.accepted_at, b.fingerprint,
    b.expires_at > clock_timestamp() AS live,
    b.expires_at <= statement_timestamp() AND current_setting('transaction_isolation') IN ('read committed', 'read uncommitted') AS over,
    b.mode = 2 AND p.job_id IS NOT NULL AS waits,
    p.queue, p.priority, p.ready_at
  FROM onceq.binding AS b
  LEFT JOIN onceq.job AS j ON j.id = b.job_id
  LEFT JOIN onceq.pending AS p
    ON p.queue = j.queue AND p.priority = j.priority AND p.ready_at = greatest(j.run_at, j.accepted_at) AND p.job_id = j.id AND p.fence = 0
  WHERE b.key_hash = @key_hash::bytea
),
refused AS MATERIALIZED (
  SELECT
    seen.job_id, seen.dead,
    CASE
      WHEN seen.live AND seen.mode <> 2 THEN 'incompatible_mode'
      WHEN seen.live AND NOT seen.waits AND NOT @follow_up::boolean THEN 'not_pending'
      WHEN seen.over AND seen.waits THEN 'window_elapsed'
    END AS reason
  FROM seen
),
locked AS MATERIALIZED (
  SELECT b.job_id, b.accepted_at, b.expires_at
  FROM onceq.binding AS b
  WHERE b.key_hash = @key_hash::bytea AND EXISTS (SELECT FROM refused WHERE refused.reason IS NULL)
  FOR UPDATE
),
owned AS MATERIALIZED (
  SELECT s.job_id, s.accepted_at, l.expires_at, s.fingerprint, s.waits, s.queue, s.priority, s.ready_at
  FROM locked AS l
  JOIN seen AS s ON s.job_id = l.job_id AND s.accepted_at = l.accepted_at
),
place AS MATERIALIZED (
  SELECT p.queue, p.priority, p.ready_at, p.job_id
  FROM onceq.pending AS p
  JOIN owned AS o ON p.queue = o.queue AND p.priority = o.priority AND p.ready_at = o.ready_at AND p.job_id = o.job_id
  WHERE o.waits AND p.fence = 0
  FOR UPDATE OF p
),
replaced AS MATERIALIZED (
  SELECT
    o.job_id, o.fingerprint, place.queue, place.priority, place.ready_at, clock.at,
    CASE WHEN @hold::boolean THEN o.expires_at ELSE least(
      clock.at + sqlc.arg(window_us)::bigint * interval '1 microsecond',
      o.accepted_at + sqlc.narg(max_wait_us)::bigint * interval '1 microsecond')
    END AS due
  FROM place
  JOIN owned AS o ON o.job_id = place.job_id
  CROSS JOIN LATERAL (SELECT clock_timestamp() AS at WHERE place.job_id IS NOT NULL) AS clock
  WHERE o.expires_at > clock.at
),
left_place AS (
  DELETE FROM onceq.pending AS p
  USING replaced AS r
  WHERE p.queue = r.queue AND p.priority = r.priority AND p.ready_at = r.ready_at AND p.job_id = r.job_id
  RETURNING p.job_id
),
redefined AS (
  UPDATE onceq.job AS j
  SET
    run_at = r.due, deadline = sqlc.narg(deadline)::text::timestamptz,
    execution_timeout = sqlc.narg(execution_timeout_us)::bigint * interval '1 microsecond',
    priority = @priority::smallint, max_attempts = @max_attempts::smallint, queue = @queue::text, type = @type::text,
    payload = sqlc.arg(payload)::text::jsonb, retry = sqlc.narg(retry)::text::jsonb, tags = sqlc.narg(tags)::text::text[],
    concurrency_key = sqlc.narg(concurrency_key)::text
  FROM replaced AS r
  JOIN left_place AS l ON l.job_id = r.job_id
  WHERE j.id = r.job_id
  RETURNING j.id, j.accepted_at, j.run_at, j.deadline, j.priority, j.queue, j.type, j.concurrency_key
),
rebound AS (
  UPDATE onceq.binding AS b
  SET expires_at = r.due, fingerprint = @fingerprint::bytea
  FROM replaced AS r
  WHERE b.key_hash = @key_hash::bytea
),
noted AS (
  INSERT INTO onceq.event (at, job_id, attempt, kind, details)
  SELECT r.at, r.job_id, 0, 'replaced', jsonb_build_object(
    'run_at', r.due,
    'fingerprint', encode(substring(@fingerprint::bytea FROM 2 FOR 6), 'hex'),
    'before', encode(substring(r.fingerprint FROM 2 FOR 6), 'hex'))
  FROM replaced AS r
),
freed AS (
  DELETE FROM onceq.binding AS b
  USING owned AS o
  WHERE b.key_hash = @key_hash::bytea AND NOT o.waits
  RETURNING b.key_hash
),
bound AS (
  INSERT INTO onceq.binding AS b (accepted_at, expires_at, job_id, mode, key_hash, scope, fingerprint)
  SELECT
    asked.at, asked.at + sqlc.arg(window_us)::bigint * interval '1 microsecond', @job_id::uuid, 2, @key_hash::bytea, @scope::text, @fingerprint::bytea
  FROM (SELECT clock_timestamp() AS at WHERE NOT EXISTS (SELECT FROM seen) OR EXISTS (SELECT FROM freed)) AS asked
  ON CONFLICT (key_hash) DO NOTHING
  RETURNING b.job_id, b.accepted_at, b.expires_at
),
accepted AS (
  INSERT INTO onceq.job (
    id, accepted_at, run_at, deadline, execution_timeout, priority, max_attempts, queue, type, payload, retry, tags, concurrency_key,
    key_mode, key_release, key_length, key_hash, key_scope, key_preview)
  SELECT
    b.job_id, b.at, b.expires_at,
    sqlc.narg(deadline)::text::timestamptz, sqlc.narg(execution_timeout_us)::bigint * interval '1 microsecond',
    @priority::smallint, @max_attempts::smallint, @queue::text, @type::text, sqlc.arg(payload)::text::jsonb,
    sqlc.narg(retry)::text::jsonb, sqlc.narg(tags)::text::text[], sqlc.narg(concurrency_key)::text,
    2, 0, @key_length::smallint, @key_hash::bytea, @scope::text, @key_preview::text
  FROM (SELECT bound.job_id, bound.expires_at, clock_timestamp() AS at FROM bound) AS b
  RETURNING id, accepted_at, run_at, deadline, priority, queue, type, concurrency_key
),
queued AS (
  INSERT INTO onceq.pending (ready_at, job_id, deadline, priority, queue, type, concurrency_key)
  SELECT greatest(a.run_at, a.accepted_at), a.id, a.deadline, a.priority, a.queue, a.type, a.concurrency_key
  FROM (SELECT * FROM accepted UNION ALL SELECT * FROM redefined) AS a
)
SELECT 'accepted' AS outcome, a.id::text AS job_id, '' AS reason, false AS dead,
  (CASE WHEN a.accepted_at - b.accepted_at > sqlc.arg(slack_us)::bigint * interval '1 microsecond' THEN
    CASE WHEN @alone::boolean THEN ('onceq waited for another transaction and asks again: ' || a.id::text)::bigint ELSE 1 END
  ELSE 0 END > 0)::boolean AS waited
FROM accepted AS a
JOIN bound AS b ON b.job_id = a.id
UNION ALL
SELECT 'replaced', r.id::text, '', false, false
FROM redefined AS r
UNION ALL
SELECT 'non_replaceable', r.job_id::text, r.reason, r.dead, false
FROM refused AS r
WHERE r.reason IS NOT NULL
UNION ALL
SELECT 'non_replaceable', o.job_id::text, 'window_elapsed', false, false
FROM place
JOIN owned AS o ON o.job_id = place.job_id
WHERE o.expires_at <= statement_timestamp();

-- name: RestartWindows :exec
-- RestartWindows is RestartBindings for requests of which some are debounced: a
-- debounced job's run time is the end of its window, so it moves with it.
-- Nobody else sees these rows yet. Days are added in UTC here too.
WITH bound AS (
  UPDATE onceq.binding AS b
  SET
    accepted_at = clock.at,
    expires_at = ((clock.at AT TIME ZONE 'UTC') + (b.expires_at - b.accepted_at)) AT TIME ZONE 'UTC'
  FROM (SELECT clock_timestamp() AS at) AS clock
  CROSS JOIN ROWS FROM (unnest(@key_hashes::bytea[])) AS k (hash)
  WHERE b.key_hash = ANY (ARRAY[k.hash]) AND b.job_id = ANY (@job_ids::uuid[])
  RETURNING b.job_id, b.mode, b.expires_at
),
moved AS MATERIALIZED (
  SELECT DISTINCT j.id, j.queue, j.priority, greatest(j.run_at, j.accepted_at) AS ready_at, bound.expires_at AS due
  FROM bound
  CROSS JOIN LATERAL (SELECT o.* FROM onceq.job AS o WHERE o.id = bound.job_id OFFSET 0) AS j
  WHERE bound.mode = 2
),
rescheduled AS (
  UPDATE onceq.job AS j
  SET run_at = m.due
  FROM moved AS m
  WHERE j.id = ANY (ARRAY[m.id])
)
UPDATE onceq.pending AS p
SET ready_at = m.due
FROM moved AS m
WHERE p.queue = ANY (ARRAY[m.queue]) AND p.priority = m.priority AND p.ready_at = m.ready_at AND p.job_id = m.id;
