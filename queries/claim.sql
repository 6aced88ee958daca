-- name: ClaimJobs :many
-- ClaimJobs leases the next ready jobs of a queue to a worker: priority first,
-- then the order in which they became ready. ClaimPlain below is its everyday
-- case.
--
-- level has a row for each priority, from 100 down to 0, with the time below
-- which this worker knows that nothing is left for it. Without that floor a
-- claim would walk over the index entries of all that was claimed before, for
-- as long as some old snapshot keeps vacuum from removing them. Each level is a
-- range of the primary key of pending; rows that others are claiming are passed
-- by, so claims never wait for one another here.
--
-- A job with a concurrency key is taken only while its key has a free slot. The
-- unique index on slots decides when two claims want the same one: the loser's
-- job stays where it is. Slots are taken in one order, so claims can't deadlock.
-- freed_keys are keys that this worker has just freed a slot of: their next jobs
-- may lie below the floor. Whichever way a key comes up, its first jobs are
-- taken, so that a key keeps its order even where workers' floors differ. Another
-- claim's head can hold hundreds of a key's jobs locked, and will take the first:
-- at most so many as ahead says are passed by.
--
-- In a queue with a cap the claims take turns on the queue's row. A claim whose
-- snapshot did not see the last turn (the versions differ) can't count and takes
-- nothing.
--
-- A place is locked where it is found and, once committed, never updated, only
-- deleted and made anew, so its address does to delete it.
--
-- Which of the chosen were claimed is asked with IN ... IS TRUE, which is hashed:
-- joins would compare all with all, since the planner expects one row of each.
--
-- beyond tells of a job that lies behind the last of head: its key led to it, and
-- what lies before it has not been looked at.
--
-- A last row without a job comes with a claim that took less than it was asked
-- for: again tells that another look will find more (the first jobs had a few
-- keys between them, or it was not this claim's turn), held_back that the queue
-- is paused or at its cap, so that ready jobs were left behind.
WITH setting AS MATERIALIZED (
  SELECT q.paused, q.max_running, q.max_running_per_key, q.version
  FROM onceq.queue AS q
  WHERE q.name = @queue::text
),
turn AS MATERIALIZED (
  SELECT q.version
  FROM onceq.queue AS q
  WHERE q.name = @queue::text AND q.max_running > 0
  FOR UPDATE SKIP LOCKED
),
room AS MATERIALIZED (
  SELECT
    CASE
      WHEN coalesce(s.paused, false) THEN 0
      WHEN coalesce(s.max_running, 0) = 0 THEN @most::bigint
      WHEN s.version IS DISTINCT FROM (SELECT turn.version FROM turn) THEN 0
      ELSE greatest(0, least(@most::bigint, s.max_running - (SELECT count(*) FROM onceq.running AS r WHERE r.queue = @queue::text)))
    END AS n,
    (NOT coalesce(s.paused, false) AND coalesce(s.max_running, 0) > 0 AND s.version IS DISTINCT FROM (SELECT turn.version FROM turn)) AS missed,
    greatest(coalesce(s.max_running_per_key, 0), 1) AS per_key,
    clock_timestamp() AS at
  FROM (SELECT 1 AS one) AS one
  LEFT JOIN setting AS s ON true
),
head AS MATERIALIZED (
  SELECT c.*
  FROM ROWS FROM (unnest(@floors::timestamptz[])) WITH ORDINALITY AS level (floor, ord)
  CROSS JOIN LATERAL (
    SELECT p.ctid::tid AS place, p.job_id, p.priority, p.ready_at, p.attempt, p.fence, p.deadline, p.concurrency_key
    FROM onceq.pending AS p
    WHERE p.queue = @queue::text
      AND p.priority = (101 - level.ord)::smallint
      AND p.ready_at >= level.floor
      AND p.ready_at <= (SELECT room.at FROM room)
      AND p.type = ANY (@types::text[])
      AND (p.deadline IS NULL OR p.deadline > (SELECT room.at FROM room))
      AND (p.concurrency_key IS NULL OR (
        SELECT count(*) FROM onceq.running AS r WHERE r.queue = @queue::text AND r.concurrency_key = p.concurrency_key
      ) < (SELECT room.per_key FROM room))
    ORDER BY p.ready_at, p.job_id
    LIMIT (SELECT room.n FROM room)
    FOR UPDATE SKIP LOCKED
  ) AS c
  -- The levels come in order and one after the other, so this takes from the highest.
  LIMIT (SELECT room.n FROM room)
),
reached AS MATERIALIZED (
  SELECT h.priority, h.ready_at
  FROM head AS h
  ORDER BY h.priority, h.ready_at DESC
  LIMIT 1
),
key AS MATERIALIZED (
  SELECT k.key
  FROM ROWS FROM (unnest(@freed_keys::text[])) AS k (key)
  UNION
  SELECT h.concurrency_key
  FROM head AS h
  WHERE h.concurrency_key IS NOT NULL
),
keyed AS MATERIALIZED (
  SELECT c.*
  FROM key AS k
  CROSS JOIN LATERAL (
    SELECT l.*
    FROM (
      SELECT p.ctid::tid AS place
      FROM onceq.pending AS p
      WHERE p.queue = @queue::text
        AND p.concurrency_key = k.key
        AND p.ready_at <= (SELECT room.at FROM room)
        AND p.type = ANY (@types::text[])
        AND (p.deadline IS NULL OR p.deadline > (SELECT room.at FROM room))
      ORDER BY p.priority DESC, p.ready_at, p.job_id
      LIMIT (SELECT room.per_key + @ahead::integer FROM room)
    ) AS first
    CROSS JOIN LATERAL (
      SELECT p.ctid::tid AS place, p.job_id, p.priority, p.ready_at, p.attempt, p.fence, p.deadline, p.concurrency_key
      FROM onceq.pending AS p
      WHERE p.ctid = first.place
      FOR UPDATE SKIP LOCKED
    ) AS l
    LIMIT (SELECT least(room.n, room.per_key) FROM room)
  ) AS c
),
candidate AS MATERIALIZED (
  SELECT
    c.*,
    row_number() OVER (PARTITION BY c.concurrency_key ORDER BY c.priority DESC, c.ready_at, c.job_id) AS nth
  FROM (SELECT h.* FROM head AS h WHERE h.concurrency_key IS NULL UNION ALL SELECT k.* FROM keyed AS k) AS c
),
chosen AS MATERIALIZED (
  SELECT
    c.*,
    CASE WHEN c.concurrency_key IS NOT NULL THEN (
      SELECT s.slot
      FROM generate_series(1, (SELECT room.per_key FROM room)) AS s (slot)
      WHERE NOT EXISTS (
        SELECT FROM onceq.running AS r WHERE r.queue = @queue::text AND r.concurrency_key = c.concurrency_key AND r.slot = s.slot
      )
      ORDER BY s.slot
      OFFSET c.nth - 1
      LIMIT 1
    ) END AS slot
  FROM candidate AS c
  WHERE c.concurrency_key IS NULL OR c.nth + (
      SELECT count(*) FROM onceq.running AS r WHERE r.queue = @queue::text AND r.concurrency_key = c.concurrency_key
    ) <= (SELECT room.per_key FROM room)
  ORDER BY c.priority DESC, c.ready_at, c.job_id
  LIMIT (SELECT room.n FROM room)
),
claimed AS (
  INSERT INTO onceq.running AS r (claimed_at, lease_until, deadline, job_id, fence, attempt, slot, queue, worker_id, concurrency_key)
  SELECT
    clock.at, clock.at + sqlc.arg(lease_us)::bigint * interval '1 microsecond', c.deadline, c.job_id, c.fence + 1, c.attempt + 1,
    c.slot, @queue::text, @worker_id::text, c.concurrency_key
  FROM chosen AS c
  CROSS JOIN LATERAL (SELECT clock_timestamp() AS at WHERE c.job_id IS NOT NULL) AS clock
  WHERE num_nulls(c.concurrency_key, c.slot) IN (0, 2)
  ORDER BY c.concurrency_key, c.slot, c.job_id
  ON CONFLICT DO NOTHING
  RETURNING r.job_id
),
taken AS (
  DELETE FROM onceq.pending AS p
  USING chosen AS c
  WHERE p.ctid = c.place AND (c.job_id IN (SELECT claimed.job_id FROM claimed)) IS TRUE
),
counted AS (
  UPDATE onceq.queue AS q
  SET version = q.version + 1
  WHERE q.name = @queue::text AND EXISTS (SELECT FROM turn) AND EXISTS (SELECT FROM claimed)
)
SELECT
  chosen.job_id::text AS job_id, (chosen.fence + 1)::integer AS fence, (chosen.attempt + 1)::smallint AS attempt, chosen.priority,
  (extract(epoch FROM chosen.ready_at) * 1000000)::bigint AS ready_at_us,
  j.type, j.payload::text AS payload, coalesce(to_jsonb(j.tags)::text, '')::text AS tags, j.concurrency_key,
  j.max_attempts, (extract(epoch FROM j.accepted_at) * 1000000)::bigint AS accepted_at_us,
  coalesce(extract(epoch FROM j.deadline)::text, '')::text AS deadline,
  (CASE WHEN j.execution_timeout IS NULL THEN 0 ELSE extract(epoch FROM j.execution_timeout) * 1000000 END)::bigint AS execution_timeout_us,
  (CASE
    WHEN j.deadline IS NULL THEN 0
    ELSE least((extract(epoch FROM j.deadline) - extract(epoch FROM (SELECT room.at FROM room))) * 1000000, 1e15)
  END)::bigint AS deadline_in_us,
  coalesce(j.retry::text, '')::text AS retry, coalesce(j.key_release, 0)::smallint AS key_release,
  coalesce((chosen.priority, (SELECT reached.ready_at FROM reached)) < ((SELECT reached.priority FROM reached), chosen.ready_at), false)::boolean AS beyond,
  false AS again, false AS held_back
FROM chosen
CROSS JOIN LATERAL (SELECT o.* FROM onceq.job AS o WHERE o.id = chosen.job_id OFFSET 0) AS j
WHERE (chosen.job_id IN (SELECT claimed.job_id FROM claimed)) IS TRUE
UNION ALL
SELECT
  '', 0, 0::smallint, (-1)::smallint, 0, '', '', '', NULL, 0::smallint, 0, '', 0, 0, '', 0::smallint, false,
  room.missed OR (SELECT count(*) FROM head) >= room.n AND (SELECT count(*) FROM claimed) < room.n,
  room.n < @most::bigint
FROM room
WHERE (SELECT count(*) FROM claimed) < @most::bigint
ORDER BY priority DESC, ready_at_us, job_id;

-- name: ClaimPlain :many
-- ClaimPlain is ClaimJobs for the everyday case, and is sent first: it takes only
-- jobs without a concurrency key, from queues without a cap, so it has nothing to
-- count and no slot to win. A last row without a job comes with a claim that took
-- less than it was asked for; again then tells that ClaimJobs has to look: among
-- the first jobs are some with a key, or the queue is paused or capped.
--
-- The lock on a job's place is the only one that is fought for, and is never
-- waited for: it keeps the place from everybody else until it is deleted, so the
-- job can't be running already, and no clock reading grows old.
WITH room AS MATERIALIZED (
  SELECT
    clock_timestamp() AS at,
    CASE
      WHEN EXISTS (SELECT FROM onceq.queue AS q WHERE q.name = @queue::text AND (q.paused OR q.max_running > 0)) THEN 0
      ELSE @most::bigint
    END AS n
),
head AS MATERIALIZED (
  SELECT c.*
  FROM ROWS FROM (unnest(@floors::timestamptz[])) WITH ORDINALITY AS level (floor, ord)
  CROSS JOIN LATERAL (
    SELECT p.ctid::tid AS place, p.job_id, p.priority, p.ready_at, p.attempt, p.fence, p.deadline, p.concurrency_key
    FROM onceq.pending AS p
    WHERE p.queue = @queue::text
      AND p.priority = (101 - level.ord)::smallint
      AND p.ready_at >= level.floor
      AND p.ready_at <= (SELECT room.at FROM room)
      AND p.type = ANY (@types::text[])
      AND (p.deadline IS NULL OR p.deadline > (SELECT room.at FROM room))
    ORDER BY p.ready_at, p.job_id
    LIMIT (SELECT room.n FROM room)
    FOR UPDATE SKIP LOCKED
  ) AS c
  LIMIT (SELECT room.n FROM room)
),
claimed AS (
  INSERT INTO onceq.running (claimed_at, lease_until, deadline, job_id, fence, attempt, queue, worker_id)
  SELECT
    room.at, room.at + sqlc.arg(lease_us)::bigint * interval '1 microsecond', h.deadline, h.job_id, h.fence + 1, h.attempt + 1,
    @queue::text, @worker_id::text
  FROM head AS h
  CROSS JOIN room
  WHERE h.concurrency_key IS NULL
),
taken AS (
  DELETE FROM onceq.pending AS p
  USING head AS h
  WHERE p.ctid = h.place AND h.concurrency_key IS NULL
)
SELECT
  h.job_id::text AS job_id, (h.fence + 1)::integer AS fence, (h.attempt + 1)::smallint AS attempt, h.priority,
  (extract(epoch FROM h.ready_at) * 1000000)::bigint AS ready_at_us,
  j.type, j.payload::text AS payload, coalesce(to_jsonb(j.tags)::text, '')::text AS tags, j.concurrency_key,
  j.max_attempts, (extract(epoch FROM j.accepted_at) * 1000000)::bigint AS accepted_at_us,
  coalesce(extract(epoch FROM j.deadline)::text, '')::text AS deadline,
  (CASE WHEN j.execution_timeout IS NULL THEN 0 ELSE extract(epoch FROM j.execution_timeout) * 1000000 END)::bigint AS execution_timeout_us,
  (CASE
    WHEN j.deadline IS NULL THEN 0
    ELSE least((extract(epoch FROM j.deadline) - extract(epoch FROM (SELECT room.at FROM room))) * 1000000, 1e15)
  END)::bigint AS deadline_in_us,
  coalesce(j.retry::text, '')::text AS retry, coalesce(j.key_release, 0)::smallint AS key_release,
  false AS beyond, false AS again, false AS held_back
FROM head AS h
CROSS JOIN LATERAL (SELECT o.* FROM onceq.job AS o WHERE o.id = h.job_id OFFSET 0) AS j
WHERE h.concurrency_key IS NULL
UNION ALL
SELECT
  '', 0, 0::smallint, (-1)::smallint, 0, '', '', '', NULL, 0::smallint, 0, '', 0, 0, '', 0::smallint, false,
  room.n = 0 OR EXISTS (SELECT FROM head AS h WHERE h.concurrency_key IS NOT NULL),
  false
FROM room
WHERE (SELECT count(*) FROM head AS h WHERE h.concurrency_key IS NULL) < @most::bigint;

-- name: NextReadyAt :one
-- NextReadyAt looks ahead for a worker that found nothing more to do: PostgreSQL's
-- time, and how long until the first job that is still scheduled comes due, in
-- microseconds (-1: none is). The levels are those of ClaimJobs.
WITH clock AS MATERIALIZED (
  SELECT clock_timestamp() AS at
),
first AS MATERIALIZED (
  SELECT min(c.ready_at) AS due
  FROM generate_series(0, 100) AS level (priority)
  CROSS JOIN LATERAL (
    SELECT p.ready_at
    FROM onceq.pending AS p
    WHERE p.queue = @queue::text AND p.priority = level.priority::smallint AND p.ready_at > (SELECT clock.at FROM clock)
    ORDER BY p.ready_at
    LIMIT 1
  ) AS c
)
SELECT
  (extract(epoch FROM clock.at) * 1000000)::bigint AS at_us,
  coalesce(least((extract(epoch FROM first.due) - extract(epoch FROM clock.at)) * 1000000, 1e15), -1)::bigint AS due_in_us
FROM clock
CROSS JOIN first;
