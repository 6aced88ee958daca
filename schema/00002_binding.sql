-- +goose Up

-- The ownership of a key by a job, until expires_at lies no longer after
-- PostgreSQL's clock. The primary key is the whole keyed hash of scope and key,
-- and it is the one arbiter of every race. A binding does not hold its job's
-- row: retention may clean the job while the key still answers with its id.
-- There is no index on expires_at: maintenance walks the table in bounded
-- steps, so an acceptance pays nothing for the clean-up.
CREATE TABLE onceq.binding (
  accepted_at timestamptz NOT NULL,
  expires_at  timestamptz NOT NULL,
  job_id      uuid        NOT NULL,
  mode        smallint    NOT NULL,                -- 1 idempotency, 2 debounce, 3 throttle
  dead        boolean     NOT NULL DEFAULT false,  -- the job died or was cancelled, and the key still answers for it
  key_hash    bytea       NOT NULL,
  scope       text        NOT NULL,
  fingerprint bytea       NOT NULL,
  CONSTRAINT binding_pkey PRIMARY KEY (key_hash)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05);

COMMENT ON TABLE onceq.binding IS 'who owns a key, and until when';
COMMENT ON COLUMN onceq.binding.mode IS '1 idempotency, 2 debounce, 3 throttle';

-- +goose Down
DROP TABLE onceq.binding;
