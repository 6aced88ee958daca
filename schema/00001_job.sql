-- +goose Up

-- One accepted unit of work. The row is written once, at acceptance, and is
-- not touched by the everyday claim and completion: where a job stands is told
-- by the narrow tables beside it (pending here; running and finished ones get
-- tables of their own). So the payload is never copied by a change of state.
-- The key's columns are all given or all NULL, key_aliases apart. No CHECK says
-- so: PostgreSQL reads and compiles one anew for each statement that inserts,
-- which for this table and for binding was 7 % of an acceptance.
CREATE TABLE onceq.job (
  id                uuid        NOT NULL,  -- UUIDv7, made by the client: known before the call, no sequence
  accepted_at       timestamptz NOT NULL,  -- PostgreSQL's clock, read after every lock of the acceptance
  run_at            timestamptz NOT NULL,  -- as asked; accepted_at when the request gave none
  deadline          timestamptz,
  execution_timeout interval,
  priority          smallint    NOT NULL,
  max_attempts      smallint    NOT NULL,
  key_mode          smallint,              -- 1 idempotency, 2 debounce, 3 throttle; NULL: no admission
  key_release       smallint,              -- the key is free: 0 at expiry, 1 when the job has ended, 2 when it died
  key_length        smallint,              -- characters of the key
  queue             text        NOT NULL,
  type              text        NOT NULL,
  payload           jsonb       NOT NULL,
  retry             jsonb,                 -- NULL: the default policy
  tags              text[],
  concurrency_key   text,
  key_hash          bytea,                 -- finds the binding; the key itself is never here
  key_aliases       bytea[],               -- its hashes under previous secrets, while a secret is rotated
  key_scope         text,
  key_preview       text,
  CONSTRAINT job_pkey PRIMARY KEY (id)
);

COMMENT ON TABLE onceq.job IS 'accepted jobs: definition and acceptance, written once';
COMMENT ON COLUMN onceq.job.key_mode IS '1 idempotency, 2 debounce, 3 throttle';
COMMENT ON COLUMN onceq.job.key_release IS '0 at expiry, 1 when the job has ended, 2 when it died';

-- The place in the queue of every job that waits: ready when ready_at has
-- come, scheduled before that, by PostgreSQL's clock. Nothing has to promote
-- a scheduled job, and claims never look past the clock, so neither a million
-- ready jobs nor a million scheduled ones slow a claim. The primary key is the
-- order of claims; a job finds its own row through its queue, priority and
-- greatest(run_at, accepted_at), so a second index is not paid for.
CREATE TABLE onceq.pending (
  ready_at        timestamptz NOT NULL,
  job_id          uuid        NOT NULL,
  deadline        timestamptz,
  attempt         smallint    NOT NULL DEFAULT 0,  -- attempts that have ended
  priority        smallint    NOT NULL,
  fence           integer     NOT NULL DEFAULT 0,  -- claims so far; 0 tells that the job never started
  queue           text        NOT NULL,
  type            text        NOT NULL,
  concurrency_key text,
  CONSTRAINT pending_pkey PRIMARY KEY (queue, priority, ready_at, job_id)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05);

COMMENT ON TABLE onceq.pending IS 'waiting jobs: scheduled or ready, in the order of claims';

-- +goose Down
DROP TABLE onceq.pending;
DROP TABLE onceq.job;
