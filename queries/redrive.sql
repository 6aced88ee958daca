-- name: RedriveJobs :many
-- RedriveJobs makes a new ready job of each dead letter, unless an order made one
-- before: the same one, known by the hashes of its request id, which is then
-- replayed, or, without again, any. What it sees is enough to refuse or to
-- replay, and then nothing is written or locked.
--
-- Otherwise the source's row in finished is locked, in the order of ids, before
-- anything is written: an order for the same source waits here, and retention
-- passes a locked row by. Whoever waited has a snapshot that does not show what
-- the other wrote, and finds the next number of the source taken: no row is
-- written, the status is empty, and the caller asks again. The clock is read
-- after the lock.
WITH asked AS MATERIALIZED (
  SELECT a.source_id, a.target_id
  FROM ROWS FROM (unnest(@source_ids::uuid[]), unnest(@target_ids::uuid[])) AS a (source_id, target_id)
),
seen AS MATERIALIZED (
  SELECT
    a.source_id, a.target_id,
    (SELECT j.id FROM onceq.job AS j WHERE j.id = a.source_id) IS NOT NULL AS present,
    coalesce((SELECT f.state FROM onceq.finished AS f WHERE f.job_id = a.source_id), 0) AS state,
    last.ordinal, last.target_id AS last_id,
    same.target_id AS same_id, same.actor, same.reason
  FROM asked AS a
  LEFT JOIN LATERAL (
    SELECT o.ordinal, o.target_id FROM onceq.redrive AS o WHERE o.source_id = a.source_id ORDER BY o.ordinal DESC LIMIT 1
  ) AS last ON true
  LEFT JOIN LATERAL (
    SELECT o.target_id, o.actor, o.reason
    FROM onceq.redrive AS o
    WHERE o.source_id = a.source_id
      AND (o.request_hash = ANY (@request_hashes::bytea[]) OR o.request_aliases && @request_hashes::bytea[])
    ORDER BY o.ordinal
    LIMIT 1
  ) AS same ON true
),
locked AS MATERIALIZED (
  SELECT w.source_id, w.target_id, w.ordinal, f.attempt
  FROM (
    SELECT s.source_id, s.target_id, coalesce(s.ordinal, 0) + 1 AS ordinal
    FROM seen AS s
    WHERE s.state = 2 AND s.same_id IS NULL AND (@again::boolean OR s.last_id IS NULL)
    ORDER BY s.source_id
    OFFSET 0
  ) AS w
  CROSS JOIN LATERAL (SELECT o.attempt FROM onceq.finished AS o WHERE o.job_id = w.source_id AND o.state = 2 FOR UPDATE) AS f
),
recorded AS (
  INSERT INTO onceq.redrive AS r (at, source_id, target_id, ordinal, request_hash, request_aliases, actor, reason)
  SELECT
    clock.at, l.source_id, l.target_id, l.ordinal,
    sqlc.arg(request_hash)::bytea, sqlc.narg(request_aliases)::bytea[], @actor::text, @reason::text
  FROM locked AS l
  CROSS JOIN LATERAL (SELECT clock_timestamp() AS at WHERE l.source_id IS NOT NULL) AS clock
  ON CONFLICT (source_id, ordinal) DO NOTHING
  RETURNING r.at, r.source_id, r.target_id
),
accepted AS (
  INSERT INTO onceq.job AS n (id, accepted_at, run_at, execution_timeout, priority, max_attempts, queue, type, payload, retry, tags, concurrency_key)
  SELECT r.target_id, r.at, r.at, j.execution_timeout, j.priority, j.max_attempts, j.queue, j.type, j.payload, j.retry, j.tags, j.concurrency_key
  FROM recorded AS r
  CROSS JOIN LATERAL (SELECT o.* FROM onceq.job AS o WHERE o.id = r.source_id OFFSET 0) AS j
  RETURNING n.id, n.accepted_at, n.priority, n.queue, n.type, n.concurrency_key
),
queued AS (
  INSERT INTO onceq.pending (ready_at, job_id, priority, queue, type, concurrency_key)
  SELECT a.accepted_at, a.id, a.priority, a.queue, a.type, a.concurrency_key
  FROM accepted AS a
),
noted AS (
  INSERT INTO onceq.event (at, job_id, attempt, kind, details)
  SELECT r.at, r.source_id, (SELECT l.attempt FROM locked AS l WHERE l.source_id = r.source_id), 'redriven',
    sqlc.arg(details)::text::jsonb || jsonb_build_object('target', r.target_id)
  FROM recorded AS r
  UNION ALL
  SELECT r.at, r.target_id, 0::smallint, 'redrive_created', sqlc.arg(details)::text::jsonb || jsonb_build_object('source', r.source_id)
  FROM recorded AS r
)
SELECT
  s.source_id::text AS source_id,
  (CASE
    WHEN s.same_id IS NOT NULL THEN 'replayed'
    WHEN made.queue IS NOT NULL THEN 'redriven'
    WHEN NOT s.present THEN 'not_found'
    WHEN s.state <> 2 THEN 'not_dead'
    WHEN s.last_id IS NOT NULL AND NOT @again::boolean THEN 'already_redriven'
    ELSE ''
  END)::text AS status,
  coalesce(coalesce(s.same_id, CASE WHEN made.queue IS NOT NULL THEN s.target_id WHEN s.state = 2 AND NOT @again::boolean THEN s.last_id END)::text, '')::text AS target_id,
  coalesce(s.actor <> @actor::text, false)::boolean AS other_actor,
  coalesce(s.reason <> @reason::text, false)::boolean AS other_reason,
  coalesce(made.queue, '')::text AS queue
FROM seen AS s
LEFT JOIN accepted AS made ON made.id = s.target_id;

-- name: ListRedrivable :many
-- ListRedrivable takes one step of a walk over the dead letters along their index,
-- oldest first, from where the last step ended and up to the deaths before the
-- walk began. fits tells which pass the filter, and are not jobs that the same
-- order made itself: a repeated order does not redrive its own failures.
WITH step AS MATERIALIZED (
  SELECT f.finished_at, f.job_id
  FROM onceq.finished AS f
  WHERE f.state = 2
    AND (f.finished_at, f.job_id) > (sqlc.arg(after)::text::timestamptz, @after_id::uuid)
    AND f.finished_at >= sqlc.arg(since)::text::timestamptz
    AND f.finished_at < sqlc.arg(until)::text::timestamptz
    AND f.finished_at <= sqlc.arg(began)::text::timestamptz
  ORDER BY f.finished_at, f.job_id
  LIMIT @rows::bigint
)
SELECT
  s.job_id::text AS job_id,
  to_char(s.finished_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US"+00"')::text AS finished_at,
  (
    j.queue IS NOT NULL
    AND (j.queue = @queue::text OR @queue::text = '')
    AND (j.type = @type::text OR @type::text = '')
    AND (@tag::text = '' OR coalesce(@tag::text = ANY (j.tags), false))
    AND (@error::text = '' OR coalesce(strpos((SELECT o.error FROM onceq.finished AS o WHERE o.job_id = s.job_id), @error::text) > 0, false))
    AND NOT coalesce((
      SELECT r.request_hash = ANY (@request_hashes::bytea[]) OR coalesce(r.request_aliases && @request_hashes::bytea[], false)
      FROM onceq.redrive AS r
      WHERE r.target_id = s.job_id
    ), false)
  )::boolean AS fits,
  coalesce((
    SELECT CASE WHEN o.actor = @actor::text AND o.reason = @reason::text THEN 'replayed' ELSE 'conflict' END
    FROM onceq.redrive AS o
    WHERE o.source_id = s.job_id
      AND (o.request_hash = ANY (@request_hashes::bytea[]) OR o.request_aliases && @request_hashes::bytea[])
    ORDER BY o.ordinal
    LIMIT 1
  ), (
    SELECT 'already_redriven'
    FROM onceq.redrive AS o
    WHERE o.source_id = s.job_id AND NOT @again::boolean
    LIMIT 1
  ), 'redriven')::text AS verdict
FROM step AS s
LEFT JOIN LATERAL (SELECT o.queue, o.type, o.tags FROM onceq.job AS o WHERE o.id = s.job_id OFFSET 0) AS j ON true
ORDER BY s.finished_at, s.job_id;

-- name: DeleteOldRedrives :one
-- DeleteOldRedrives takes one step of a walk over the records of redrives, like
-- DeleteExpiredBindings, and deletes those of which neither job is there any
-- more. A record younger than the shortest retention still has its jobs; CASE
-- spares it the look. Two passes at once don't wait for each other. Nobody updates
-- a record, and a source that is being redriven again at this moment is there.
WITH step AS MATERIALIZED (
  SELECT r.ctid::tid AS place
  FROM onceq.redrive AS r
  WHERE r.ctid > sqlc.arg(after)::text::tid
  LIMIT @rows::bigint
),
gone AS MATERIALIZED (
  SELECT r.ctid::tid AS place
  FROM onceq.redrive AS r
  JOIN step ON step.place = r.ctid
  WHERE CASE WHEN r.at <= clock_timestamp() - sqlc.arg(retention_us)::bigint * interval '1 microsecond' THEN
      (SELECT j.id FROM onceq.job AS j WHERE j.id = r.source_id) IS NULL AND (SELECT j.id FROM onceq.job AS j WHERE j.id = r.target_id) IS NULL
    ELSE false END
  FOR UPDATE OF r SKIP LOCKED
),
deleted AS (
  DELETE FROM onceq.redrive AS r
  USING gone
  WHERE r.ctid = gone.place
  RETURNING 1
)
SELECT
  coalesce((SELECT max(step.place) FROM step)::text, '')::text AS reached,
  (SELECT count(*) FROM step)::bigint AS looked_at,
  (SELECT count(*) FROM deleted)::bigint AS deleted;
