-- name: CountJobs :many
-- CountJobs counts the jobs of each queue by state, on one snapshot and with work
-- that does not grow with the tables; every count has a bound.
--
-- Waiting jobs: each priority of a queue is a range of the primary key, split by
-- the clock, and a queue's count stops at the bound. Running jobs: there are no
-- more than the workers carry. Ended jobs know their queue by their definition
-- alone, so of each state the newest up to the bound are looked at, over all
-- queues; for successes these are the newest of all ended jobs. A row with no
-- queue tells that there are more. ORDER BY and LIMIT make every sub-select a
-- piece of an index, OFFSET 0 keeps look-ups by primary key one by one. A queue
-- with settings has a row with no state.
WITH RECURSIVE level AS (
  (
    SELECT p.queue, p.priority
    FROM onceq.pending AS p
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
),
clock AS MATERIALIZED (
  SELECT clock_timestamp() AS at
),
waiting AS MATERIALIZED (
  SELECT
    w.queue,
    (
      SELECT count(*)
      FROM (
        SELECT c.job_id
        FROM unnest(w.priorities) AS l (priority)
        CROSS JOIN LATERAL (
          SELECT p.job_id
          FROM onceq.pending AS p
          WHERE p.queue = w.queue AND p.priority = l.priority AND p.ready_at <= (SELECT clock.at FROM clock)
          ORDER BY p.ready_at, p.job_id
          LIMIT sqlc.arg(most)::bigint + 1
        ) AS c
        LIMIT sqlc.arg(most)::bigint + 1
      ) AS counted
    ) AS ready,
    (
      SELECT count(*)
      FROM (
        SELECT c.job_id
        FROM unnest(w.priorities) AS l (priority)
        CROSS JOIN LATERAL (
          SELECT p.job_id
          FROM onceq.pending AS p
          WHERE p.queue = w.queue AND p.priority = l.priority AND p.ready_at > (SELECT clock.at FROM clock)
          ORDER BY p.ready_at, p.job_id
          LIMIT sqlc.arg(most)::bigint + 1
        ) AS c
        LIMIT sqlc.arg(most)::bigint + 1
      ) AS counted
    ) AS scheduled,
    (
      SELECT min(c.ready_at)
      FROM unnest(w.priorities) AS l (priority)
      CROSS JOIN LATERAL (
        SELECT p.ready_at
        FROM onceq.pending AS p
        WHERE p.queue = w.queue AND p.priority = l.priority
        ORDER BY p.ready_at
        LIMIT 1
      ) AS c
    ) AS oldest
  -- Each queue has its priorities at hand: to look through all levels for them would cost queues times queues.
  FROM (SELECT l.queue, array_agg(l.priority) AS priorities FROM level AS l GROUP BY l.queue) AS w
),
running AS MATERIALIZED (
  SELECT r.queue
  FROM onceq.running AS r
  LIMIT sqlc.arg(most_running)::bigint + 1
),
newest AS MATERIALIZED (
  SELECT f.job_id, f.state
  FROM onceq.finished AS f
  ORDER BY f.job_id DESC
  LIMIT sqlc.arg(most)::bigint + 1
),
dead AS MATERIALIZED (
  SELECT f.job_id
  FROM onceq.finished AS f
  WHERE f.state <> 1 AND f.state = 2
  ORDER BY f.job_id DESC
  LIMIT sqlc.arg(most)::bigint + 1
),
cancelled AS MATERIALIZED (
  SELECT f.job_id
  FROM onceq.finished AS f
  WHERE f.state <> 1 AND f.state = 3
  ORDER BY f.job_id DESC
  LIMIT sqlc.arg(most)::bigint + 1
),
ended AS MATERIALIZED (
  -- The one beyond the bound tells that there are more, and is not counted.
  SELECT 'succeeded' AS state, n.job_id FROM (SELECT o.job_id, o.state FROM newest AS o LIMIT sqlc.arg(most)::bigint) AS n WHERE n.state = 1
  UNION ALL
  SELECT 'dead', d.job_id FROM (SELECT o.job_id FROM dead AS o LIMIT sqlc.arg(most)::bigint) AS d
  UNION ALL
  SELECT 'cancelled', c.job_id FROM (SELECT o.job_id FROM cancelled AS o LIMIT sqlc.arg(most)::bigint) AS c
)
SELECT
  q.name::text AS queue, ''::text AS state, 0::bigint AS jobs, 0::bigint AS oldest_us, q.paused::boolean AS paused
FROM onceq.queue AS q
UNION ALL
SELECT w.queue, 'ready', w.ready, (greatest(extract(epoch FROM clock.at) - extract(epoch FROM w.oldest), 0) * 1000000)::bigint, false
FROM waiting AS w
CROSS JOIN clock
UNION ALL
SELECT w.queue, 'scheduled', w.scheduled, 0, false
FROM waiting AS w
UNION ALL
SELECT r.queue, 'running', count(*), 0, false
FROM (SELECT o.queue FROM running AS o LIMIT sqlc.arg(most_running)::bigint) AS r
GROUP BY r.queue
UNION ALL
SELECT j.queue, e.state, count(*), 0, false
FROM ended AS e
CROSS JOIN LATERAL (SELECT o.queue FROM onceq.job AS o WHERE o.id = e.job_id OFFSET 0) AS j
GROUP BY j.queue, e.state
UNION ALL
SELECT '', 'succeeded', count(*), 0, false FROM newest HAVING count(*) > sqlc.arg(most)::bigint
UNION ALL
SELECT '', 'running', count(*), 0, false FROM running HAVING count(*) > sqlc.arg(most_running)::bigint
UNION ALL
SELECT '', 'dead', count(*), 0, false FROM dead HAVING count(*) > sqlc.arg(most)::bigint
UNION ALL
SELECT '', 'cancelled', count(*), 0, false FROM cancelled HAVING count(*) > sqlc.arg(most)::bigint;
