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
