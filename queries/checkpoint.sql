-- name: GetCheckpoint :one
-- GetCheckpoint reads what an earlier attempt, or this one, saved for a stage.
SELECT c.value::text AS value
FROM onceq.checkpoint AS c
WHERE c.job_id = @job_id::uuid AND c.name = @name::text;

-- name: SaveCheckpoint :one
-- SaveCheckpoint saves a stage's value, fenced by the attempt's lease. The row
-- of the lease stays locked until the transaction ends, so that whatever
-- commits with the value was done by the job's owner. A stage that has a value
-- keeps it.
WITH lease AS MATERIALIZED (
  SELECT r.job_id, r.attempt, r.lease_until
  FROM onceq.running AS r
  WHERE r.job_id = @job_id::uuid AND r.fence = @fence::integer AND r.worker_id = @worker_id::text
  FOR UPDATE
),
owner AS MATERIALIZED (
  SELECT lease.job_id, lease.attempt
  FROM lease
  WHERE lease.lease_until > clock_timestamp()
),
saved AS (
  INSERT INTO onceq.checkpoint (saved_at, job_id, attempt, name, value)
  SELECT clock_timestamp(), o.job_id, o.attempt, @name::text, sqlc.arg(value)::text::jsonb
  FROM owner AS o
  ON CONFLICT (job_id, name) DO NOTHING
  RETURNING job_id, attempt, saved_at
),
noted AS (
  INSERT INTO onceq.event (at, job_id, attempt, kind, details)
  SELECT s.saved_at, s.job_id, s.attempt, 'checkpoint_saved', jsonb_build_object('name', @name::text)
  FROM saved AS s
)
SELECT o.job_id::text AS job_id
FROM owner AS o;
