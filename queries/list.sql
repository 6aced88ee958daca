-- name: ListJobs :one
-- ListJobs takes one step of a walk over all jobs along their primary key, newest
-- first: it looks at the next rows below before, and returns those that fit,
-- how many it looked at, and where it ended. So a step's cost does not depend on
-- the table's size, whatever the filter. Sub-selects give one value for each row
-- by primary key, and only where the filter asks for it; as joins or EXISTS they
-- could be planned as scans of whole tables. The caller looks at the
-- jobs themselves again, since they move meanwhile.
WITH step AS MATERIALIZED (
  SELECT j.id, j.queue, j.type, j.tags, j.accepted_at, j.run_at, j.priority
  FROM onceq.job AS j
  WHERE j.id < @before::uuid AND j.id >= @least::uuid
  ORDER BY j.id DESC
  LIMIT @rows::bigint
)
SELECT
  coalesce((
    SELECT array_agg(s.id::text ORDER BY s.id DESC)
    FROM step AS s
    WHERE (s.queue = @queue::text OR @queue::text = '')
      AND (s.type = @type::text OR @type::text = '')
      AND (@tag::text = '' OR @tag::text = ANY (s.tags))
      AND s.accepted_at >= sqlc.arg(since)::text::timestamptz
      AND s.accepted_at < sqlc.arg(until)::text::timestamptz
      AND CASE @state::text
        WHEN '' THEN true
        WHEN 'succeeded' THEN (SELECT f.state FROM onceq.finished AS f WHERE f.job_id = s.id) = 1
        WHEN 'running' THEN (SELECT r.job_id FROM onceq.running AS r WHERE r.job_id = s.id) IS NOT NULL
        ELSE (
          SELECT (p.ready_at <= clock_timestamp()) = (@state::text = 'ready')
          FROM onceq.pending AS p
          WHERE p.queue = s.queue AND p.priority = s.priority AND p.ready_at = greatest(s.run_at, s.accepted_at) AND p.job_id = s.id
        )
      END
      AND (@error::text = '' OR strpos((SELECT f.error FROM onceq.finished AS f WHERE f.job_id = s.id), @error::text) > 0)
  ), '{}')::text[] AS ids,
  coalesce((SELECT s.id FROM step AS s ORDER BY s.id LIMIT 1)::text, '')::text AS reached,
  (SELECT count(*) FROM step)::bigint AS looked_at;

-- name: ListEnded :one
-- ListEnded is a step like those of ListJobs along the index of dead and
-- cancelled jobs, in which successes are not.
WITH step AS MATERIALIZED (
  SELECT f.job_id AS id, f.error
  FROM onceq.finished AS f
  WHERE f.state <> 1 AND f.state = @state::smallint
    AND f.job_id < @before::uuid AND f.job_id >= @least::uuid
  ORDER BY f.job_id DESC
  LIMIT @rows::bigint
)
SELECT
  coalesce((
    SELECT array_agg(s.id::text ORDER BY s.id DESC)
    FROM step AS s
    CROSS JOIN LATERAL (SELECT o.queue, o.type, o.tags, o.accepted_at FROM onceq.job AS o WHERE o.id = s.id OFFSET 0) AS j
    WHERE (j.queue = @queue::text OR @queue::text = '')
      AND (j.type = @type::text OR @type::text = '')
      AND (@tag::text = '' OR @tag::text = ANY (j.tags))
      AND j.accepted_at >= sqlc.arg(since)::text::timestamptz
      AND j.accepted_at < sqlc.arg(until)::text::timestamptz
      AND (@error::text = '' OR strpos(s.error, @error::text) > 0)
  ), '{}')::text[] AS ids,
  coalesce((SELECT s.id FROM step AS s ORDER BY s.id LIMIT 1)::text, '')::text AS reached,
  (SELECT count(*) FROM step)::bigint AS looked_at;

-- name: ListDead :many
-- ListDead takes one step of a walk over the dead letters along their index, the
-- newest death first.
WITH step AS MATERIALIZED (
  SELECT f.finished_at, f.job_id, f.error
  FROM onceq.finished AS f
  WHERE f.state = 2
    AND (f.finished_at, f.job_id) < (sqlc.arg(before)::text::timestamptz, @before_id::uuid)
    AND f.finished_at >= sqlc.arg(since)::text::timestamptz
  ORDER BY f.finished_at DESC, f.job_id DESC
  LIMIT @rows::bigint
)
SELECT
  s.job_id::text AS job_id,
  to_char(s.finished_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US"+00"')::text AS finished_at,
  coalesce(
    (j.queue = @queue::text OR @queue::text = '')
    AND (j.type = @type::text OR @type::text = '')
    AND (@tag::text = '' OR coalesce(@tag::text = ANY (j.tags), false))
    AND (@error::text = '' OR coalesce(strpos(s.error, @error::text) > 0, false)),
  false)::boolean AS fits
FROM step AS s
LEFT JOIN LATERAL (SELECT o.queue, o.type, o.tags FROM onceq.job AS o WHERE o.id = s.job_id OFFSET 0) AS j ON true
ORDER BY s.finished_at DESC, s.job_id DESC;

-- name: FewWaiting :many
-- FewWaiting finds the waiting jobs of one queue, or of all, that are ready, or
-- that are scheduled: at most so many, in no order. Each priority of a queue is
-- a range of the primary key, split by the clock; from one to the next it leaps
-- along the key (and ORDER BY keeps to it), so neither the other queues' jobs nor those on the clock's other
-- side are looked at.
WITH RECURSIVE level AS (
  (
    SELECT p.queue, p.priority
    FROM onceq.pending AS p
    WHERE p.queue >= @queue::text
    ORDER BY p.queue, p.priority
    LIMIT 1
  )
  UNION ALL
  SELECT n.queue, n.priority
  FROM level AS l
  CROSS JOIN LATERAL (
    SELECT p.queue, p.priority
    FROM onceq.pending AS p
    WHERE (p.queue, p.priority) > (l.queue, l.priority)
    ORDER BY p.queue, p.priority
    LIMIT 1
  ) AS n
  WHERE l.queue = @queue::text OR @queue::text = ''
),
clock AS MATERIALIZED (
  SELECT clock_timestamp() AS at
)
SELECT w.job_id::text AS job_id
FROM level AS l
CROSS JOIN LATERAL (
  (
    SELECT p.job_id
    FROM onceq.pending AS p
    WHERE p.queue = l.queue AND p.priority = l.priority AND p.ready_at <= (SELECT clock.at FROM clock) AND @ready::boolean
    ORDER BY p.ready_at, p.job_id
    LIMIT @rows::bigint
  )
  UNION ALL
  (
    SELECT p.job_id
    FROM onceq.pending AS p
    WHERE p.queue = l.queue AND p.priority = l.priority AND p.ready_at > (SELECT clock.at FROM clock) AND NOT @ready::boolean
    ORDER BY p.ready_at, p.job_id
    LIMIT @rows::bigint
  )
) AS w
WHERE l.queue = @queue::text OR @queue::text = ''
LIMIT @rows::bigint;

-- name: FewRunning :many
-- FewRunning finds running jobs: at most so many, in no order. The table holds no
-- more than the workers can carry.
SELECT r.job_id::text AS job_id
FROM onceq.running AS r
WHERE r.queue = @queue::text OR @queue::text = ''
LIMIT @rows::bigint;
