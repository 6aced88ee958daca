-- +goose Up

-- Which order made which job of which dead letter. The rows of a source are
-- numbered from 1; the primary key keeps two orders from taking one number, so
-- an order that did not see the one before it makes nothing and looks again.
-- Request ids are stored as hashes, like keys. A row goes when neither job is
-- there any more.
CREATE TABLE onceq.redrive (
  at              timestamptz NOT NULL,
  source_id       uuid        NOT NULL,
  target_id       uuid        NOT NULL,
  ordinal         integer     NOT NULL,
  request_hash    bytea       NOT NULL,
  request_aliases bytea[],               -- its hashes under previous secrets, while a secret is rotated
  actor           text        NOT NULL,
  reason          text        NOT NULL,
  CONSTRAINT redrive_pkey PRIMARY KEY (source_id, ordinal),
  CONSTRAINT redrive_target_has_one_source UNIQUE (target_id),
  CONSTRAINT redrive_hash_is_whole CHECK (octet_length(request_hash) = 32)
);

COMMENT ON TABLE onceq.redrive IS 'which order made which job of which dead letter';

-- Lists dead and cancelled jobs, newest first; successes pay nothing for it. On
-- a table of many millions of rows the build holds up completions: build it
-- beforehand under this name with CREATE INDEX CONCURRENTLY.
CREATE INDEX IF NOT EXISTS finished_unsuccessful_idx ON onceq.finished (state, job_id) WHERE state <> 1;

-- +goose Down
DROP INDEX onceq.finished_unsuccessful_idx;
DROP TABLE onceq.redrive;
