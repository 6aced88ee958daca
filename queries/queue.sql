-- name: SetQueue :exec
-- SetQueue sets the caps of a queue; claims see them from their next turn on.
INSERT INTO onceq.queue AS q (name, max_running, max_running_per_key)
VALUES (@name::text, @max_running::integer, @max_running_per_key::integer)
ON CONFLICT (name) DO UPDATE SET
  max_running = EXCLUDED.max_running,
  max_running_per_key = EXCLUDED.max_running_per_key,
  version = q.version + 1;

-- name: PauseQueue :exec
-- PauseQueue stops or resumes claims from a queue.
INSERT INTO onceq.queue AS q (name, paused)
VALUES (@name::text, @paused::boolean)
ON CONFLICT (name) DO UPDATE SET
  paused = EXCLUDED.paused,
  version = q.version + 1;

-- name: ListQueues :many
-- ListQueues reads the settings of every queue that has any, or has jobs that wait
-- or run. The names of waiting jobs are skipped through along the primary key,
-- one look-up for each, however many jobs there are. It locks nothing.
WITH RECURSIVE waiting AS (
  (SELECT p.queue FROM onceq.pending AS p ORDER BY p.queue LIMIT 1)
  UNION ALL
  SELECT (SELECT p.queue FROM onceq.pending AS p WHERE p.queue > w.queue ORDER BY p.queue LIMIT 1)
  FROM waiting AS w
  WHERE w.queue IS NOT NULL
),
named AS (
  SELECT w.queue AS name FROM waiting AS w WHERE w.queue IS NOT NULL
  UNION
  SELECT r.queue FROM onceq.running AS r
  UNION
  SELECT s.name FROM onceq.queue AS s
)
SELECT
  n.name::text AS name,
  coalesce(q.paused, false)::boolean AS paused,
  coalesce(q.max_running, 0)::integer AS max_running,
  greatest(coalesce(q.max_running_per_key, 0), 1)::integer AS max_running_per_key
FROM named AS n
LEFT JOIN onceq.queue AS q ON q.name = n.name
ORDER BY n.name COLLATE "C";
