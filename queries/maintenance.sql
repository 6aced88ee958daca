-- name: DeleteExpiredBindings :one
-- DeleteExpiredBindings takes one step of a walk over the table: the next rows
-- after the cursor in their physical order (a range of row addresses, so no
-- index and no scan of the whole), of which the expired ones are deleted. Rows
-- that somebody is taking over at this moment are passed by, so a step never
-- waits, and so can't deadlock. A step that looked at nothing ends the walk.
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
