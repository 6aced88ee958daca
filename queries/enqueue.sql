-- name: EnqueuePlain :one
-- EnqueuePlain accepts a request without an admission: always a new job, no
-- binding. Job and place are stamped with one reading of the clock. It wakes
-- workers from its last SELECT, which is read once for the one row: a part of its
-- own for that would be made ready for every statement.
WITH clock AS MATERIALIZED (
  SELECT clock_timestamp() AS at
),
accepted AS (
  INSERT INTO onceq.job (id, accepted_at, run_at, deadline, execution_timeout, priority, max_attempts, queue, type, payload, retry, tags, concurrency_key)
  SELECT
    @job_id::uuid, clock.at, coalesce(sqlc.narg(run_at)::text::timestamptz, clock.at),
    sqlc.narg(deadline)::text::timestamptz, sqlc.narg(execution_timeout_us)::bigint * interval '1 microsecond',
    @priority::smallint, @max_attempts::smallint, @queue::text, @type::text, sqlc.arg(payload)::text::jsonb,
    sqlc.narg(retry)::text::jsonb, sqlc.narg(tags)::text::text[], sqlc.narg(concurrency_key)::text
  FROM clock
),
queued AS (
  INSERT INTO onceq.pending (ready_at, job_id, deadline, priority, queue, type, concurrency_key)
  SELECT
    greatest(sqlc.narg(run_at)::text::timestamptz, clock.at), @job_id::uuid, sqlc.narg(deadline)::text::timestamptz, @priority::smallint,
    @queue::text, @type::text, sqlc.narg(concurrency_key)::text
  FROM clock
)
SELECT
  (CASE
    WHEN sqlc.narg(wake)::text IS NOT NULL AND coalesce(sqlc.narg(run_at)::text::timestamptz <= clock.at, true)
    THEN 1 + length(pg_notify(sqlc.narg(wake)::text, @queue::text)::text)
    ELSE 0
  END)::bigint AS wakes
FROM clock;

-- name: Enqueue :one
-- Enqueue decides a keyed request. A live binding answers by itself: nothing is
-- written or locked. It is told in one text, its parts between blanks (job, mode,
-- dead, expiry, and the fingerprint if it is another), since PostgreSQL makes ready
-- a column each for every acceptance too. A free key is bound, and the job and its
-- place in the queue come with it. No row at all means that the key was taken by a
-- transaction this statement's snapshot can't see, or that its binding has
-- expired: EnqueueAgain decides those.
--
-- The primary key of binding is the lock: of two inserts of one key the second
-- waits for the first to end. A wait is longer than any clock reading made
-- before it, so the job is stamped with what the clock says when the binding is
-- made (RETURNING is read after the insert), and a wait longer than the slack
-- is told (or, when the statement is a transaction of its own, refused, so
-- that nothing is committed with a window that began before the wait).
WITH held AS MATERIALIZED (
  SELECT b.job_id, b.mode, b.dead, b.expires_at, b.fingerprint, b.expires_at > clock_timestamp() AS live
  FROM onceq.binding AS b
  WHERE b.key_hash = @key_hash::bytea
),
bound AS (
  INSERT INTO onceq.binding AS b (accepted_at, expires_at, job_id, mode, key_hash, scope, fingerprint)
  SELECT
    asked.at, asked.at + sqlc.arg(ttl_us)::bigint * interval '1 microsecond', @job_id::uuid,
    @mode::smallint, @key_hash::bytea, @scope::text, @fingerprint::bytea
  FROM (SELECT clock_timestamp() AS at WHERE NOT EXISTS (SELECT FROM held)) AS asked
  ON CONFLICT (key_hash) DO NOTHING
  RETURNING b.job_id, b.accepted_at AS asked_at, clock_timestamp() AS at
),
accepted AS (
  INSERT INTO onceq.job (
    id, accepted_at, run_at, deadline, execution_timeout, priority, max_attempts, queue, type, payload, retry, tags, concurrency_key,
    key_mode, key_release, key_length, key_hash, key_scope, key_preview)
  SELECT
    b.job_id, b.at, coalesce(sqlc.narg(run_at)::text::timestamptz, b.at),
    sqlc.narg(deadline)::text::timestamptz, sqlc.narg(execution_timeout_us)::bigint * interval '1 microsecond',
    @priority::smallint, @max_attempts::smallint, @queue::text, @type::text, sqlc.arg(payload)::text::jsonb,
    sqlc.narg(retry)::text::jsonb, sqlc.narg(tags)::text::text[], sqlc.narg(concurrency_key)::text,
    @mode::smallint, @release::smallint, @key_length::smallint, @key_hash::bytea, @scope::text, @key_preview::text
  FROM bound AS b
),
queued AS (
  INSERT INTO onceq.pending (ready_at, job_id, deadline, priority, queue, type, concurrency_key)
  SELECT
    greatest(sqlc.narg(run_at)::text::timestamptz, b.at), b.job_id, sqlc.narg(deadline)::text::timestamptz, @priority::smallint, @queue::text,
    @type::text, sqlc.narg(concurrency_key)::text
  FROM bound AS b
)
SELECT
  NULL::text AS held,
  (b.at - b.asked_at > sqlc.arg(slack_us)::bigint * interval '1 microsecond')::boolean AS waited,
  (CASE
    WHEN @alone::boolean AND b.at - b.asked_at > sqlc.arg(slack_us)::bigint * interval '1 microsecond'
    THEN ('onceq waited for another transaction and asks again: ' || b.job_id::text)::bigint
    WHEN sqlc.narg(wake)::text IS NOT NULL AND coalesce(sqlc.narg(run_at)::text::timestamptz <= b.at, true)
    THEN 1 + length(pg_notify(sqlc.narg(wake)::text, @queue::text)::text)
    ELSE 0
  END)::bigint AS wakes
FROM bound AS b
UNION ALL
SELECT
  concat_ws(' ', h.job_id, h.mode, h.dead, extract(epoch FROM h.expires_at), CASE WHEN h.fingerprint <> @fingerprint::bytea THEN encode(h.fingerprint, 'hex') END),
  false, 0
FROM held AS h
WHERE h.live;

-- name: EnqueueRepeat :one
-- EnqueueRepeat is the first part of Enqueue alone: it answers for a live binding
-- and has no row without one. One read of one row locks nothing, and costs half
-- of what PostgreSQL needs to make ready a statement that could also write. It is
-- sent first where the last requests were all repeats; EnqueueAgain decides what
-- it has no answer for. A fingerprint begins with its whole, which alone tells
-- whether two are equal, so that a repeat need not make the rest.
SELECT
  concat_ws(
    ' ', b.job_id, b.mode, b.dead,
    -- Only a conflict tells these.
    CASE WHEN b.mode <> @mode::smallint OR substr(b.fingerprint, 1, length(@whole::bytea)) <> @whole::bytea THEN extract(epoch FROM b.expires_at) END,
    CASE WHEN substr(b.fingerprint, 1, length(@whole::bytea)) <> @whole::bytea THEN encode(b.fingerprint, 'hex') END
  )::text AS held
FROM onceq.binding AS b
WHERE b.key_hash = @key_hash::bytea AND b.expires_at > clock_timestamp();

-- name: EnqueueAgain :one
-- EnqueueAgain decides a keyed request that Enqueue or EnqueueRepeat had no
-- answer for, on a new snapshot: it sees the binding that won the race, and takes
-- over one that has expired. The taker locks the expired row, deletes it and binds the key anew,
-- all in this statement, with the clock read after the lock. Whoever loses the
-- race for the expired row finds it deleted, so nothing is left to lock, and
-- asks once more; the old job is not touched.
WITH held AS MATERIALIZED (
  SELECT b.job_id, b.mode, b.dead, b.expires_at, b.fingerprint, b.expires_at > clock_timestamp() AS live
  FROM onceq.binding AS b
  WHERE b.key_hash = @key_hash::bytea
),
expired AS MATERIALIZED (
  SELECT b.key_hash
  FROM onceq.binding AS b
  WHERE b.key_hash = @key_hash::bytea
    AND b.expires_at <= clock_timestamp()
    AND NOT EXISTS (SELECT FROM held WHERE held.live)
  FOR UPDATE
),
freed AS (
  DELETE FROM onceq.binding AS b
  USING expired
  WHERE b.key_hash = expired.key_hash
  RETURNING b.key_hash
),
bound AS (
  INSERT INTO onceq.binding AS b (accepted_at, expires_at, job_id, mode, key_hash, scope, fingerprint)
  SELECT
    asked.at, asked.at + sqlc.arg(ttl_us)::bigint * interval '1 microsecond', @job_id::uuid,
    @mode::smallint, @key_hash::bytea, @scope::text, @fingerprint::bytea
  FROM (SELECT clock_timestamp() AS at WHERE NOT EXISTS (SELECT FROM held) OR EXISTS (SELECT FROM freed)) AS asked
  ON CONFLICT (key_hash) DO NOTHING
  RETURNING b.job_id, b.accepted_at AS asked_at, clock_timestamp() AS at
),
accepted AS (
  INSERT INTO onceq.job (
    id, accepted_at, run_at, deadline, execution_timeout, priority, max_attempts, queue, type, payload, retry, tags, concurrency_key,
    key_mode, key_release, key_length, key_hash, key_scope, key_preview)
  SELECT
    b.job_id, b.at, coalesce(sqlc.narg(run_at)::text::timestamptz, b.at),
    sqlc.narg(deadline)::text::timestamptz, sqlc.narg(execution_timeout_us)::bigint * interval '1 microsecond',
    @priority::smallint, @max_attempts::smallint, @queue::text, @type::text, sqlc.arg(payload)::text::jsonb,
    sqlc.narg(retry)::text::jsonb, sqlc.narg(tags)::text::text[], sqlc.narg(concurrency_key)::text,
    @mode::smallint, @release::smallint, @key_length::smallint, @key_hash::bytea, @scope::text, @key_preview::text
  FROM bound AS b
),
queued AS (
  INSERT INTO onceq.pending (ready_at, job_id, deadline, priority, queue, type, concurrency_key)
  SELECT
    greatest(sqlc.narg(run_at)::text::timestamptz, b.at), b.job_id, sqlc.narg(deadline)::text::timestamptz, @priority::smallint, @queue::text,
    @type::text, sqlc.narg(concurrency_key)::text
  FROM bound AS b
)
SELECT
  NULL::text AS held,
  (b.at - b.asked_at > sqlc.arg(slack_us)::bigint * interval '1 microsecond')::boolean AS waited,
  (CASE
    WHEN @alone::boolean AND b.at - b.asked_at > sqlc.arg(slack_us)::bigint * interval '1 microsecond'
    THEN ('onceq waited for another transaction and asks again: ' || b.job_id::text)::bigint
    WHEN sqlc.narg(wake)::text IS NOT NULL AND coalesce(sqlc.narg(run_at)::text::timestamptz <= b.at, true)
    THEN 1 + length(pg_notify(sqlc.narg(wake)::text, @queue::text)::text)
    ELSE 0
  END)::bigint AS wakes
FROM bound AS b
UNION ALL
SELECT
  concat_ws(' ', h.job_id, h.mode, h.dead, extract(epoch FROM h.expires_at), CASE WHEN h.fingerprint <> @fingerprint::bytea THEN encode(h.fingerprint, 'hex') END),
  false, 0
FROM held AS h
WHERE h.live;

-- name: RestartBindings :exec
-- RestartBindings gives bindings that the running transaction has just made
-- their whole window, counted from now: their acceptance had to wait for
-- another transaction after it had read the clock. Nobody else sees them yet.
-- The difference of two instants is in days, and a day that is added in the
-- session's time zone may have 23 or 25 hours; in UTC it has 24.
UPDATE onceq.binding
SET
  accepted_at = clock.at,
  expires_at = ((clock.at AT TIME ZONE 'UTC') + (expires_at - accepted_at)) AT TIME ZONE 'UTC'
FROM (SELECT clock_timestamp() AS at) AS clock
CROSS JOIN ROWS FROM (unnest(@key_hashes::bytea[])) AS k (hash)
WHERE key_hash = ANY (ARRAY[k.hash])
  AND job_id = ANY (@job_ids::uuid[]);
