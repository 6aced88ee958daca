-- +goose Up

-- The jobs that a worker holds, under a lease. The row is the lease: whoever
-- ends or renews it proves worker, fence and time under the row's lock. A job
-- with a concurrency key also holds one of its key's slots, numbered from 1;
-- the unique index is what keeps two claims from taking the same one. Key and
-- slot are both given or both NULL; no CHECK says so, for the reason told at job.
CREATE TABLE onceq.running (
  claimed_at          timestamptz NOT NULL,
  lease_until         timestamptz NOT NULL,
  deadline            timestamptz,
  cancel_requested_at timestamptz,
  job_id              uuid        NOT NULL,
  fence               integer     NOT NULL,
  attempt             smallint    NOT NULL,  -- the one under way
  slot                smallint,
  queue               text        NOT NULL,
  worker_id           text        NOT NULL,
  concurrency_key     text,
  CONSTRAINT running_pkey PRIMARY KEY (job_id)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05);

CREATE UNIQUE INDEX running_slot_one_owner ON onceq.running (queue, concurrency_key, slot) WHERE concurrency_key IS NOT NULL;

COMMENT ON TABLE onceq.running IS 'jobs under a lease';

-- Only jobs with a concurrency key pay for the order within their key, and only
-- jobs with a deadline for its watch.
CREATE INDEX pending_key_idx ON onceq.pending (queue, concurrency_key, priority DESC, ready_at, job_id) WHERE concurrency_key IS NOT NULL;
CREATE INDEX pending_deadline_idx ON onceq.pending (deadline) WHERE deadline IS NOT NULL;

-- How a job ended. Written once; claims never see it.
CREATE TABLE onceq.finished (
  finished_at timestamptz NOT NULL,
  claimed_at  timestamptz,               -- start of the last attempt; NULL: it never started
  job_id      uuid        NOT NULL,
  state       smallint    NOT NULL,      -- 1 succeeded, 2 dead, 3 cancelled
  attempt     smallint    NOT NULL,
  worker_id   text,
  error       text,
  CONSTRAINT finished_pkey PRIMARY KEY (job_id)
) WITH (autovacuum_vacuum_scale_factor = 0.02);

CREATE INDEX finished_dead_idx ON onceq.finished (finished_at, job_id) WHERE state = 2;

COMMENT ON TABLE onceq.finished IS 'terminal jobs: how and when each ended';
COMMENT ON COLUMN onceq.finished.state IS '1 succeeded, 2 dead, 3 cancelled';

-- +goose Down
DROP TABLE onceq.finished;
DROP INDEX onceq.pending_deadline_idx;
DROP INDEX onceq.pending_key_idx;
DROP TABLE onceq.running;
