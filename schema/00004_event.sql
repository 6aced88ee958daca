-- +goose Up

-- What no other row of a job tells yet. The everyday path (accepted, claimed,
-- succeeded) writes nothing here.
CREATE TABLE onceq.event (
  at      timestamptz NOT NULL,
  job_id  uuid        NOT NULL,
  id      uuid        NOT NULL DEFAULT gen_random_uuid(),
  attempt smallint    NOT NULL,
  kind    text        NOT NULL,
  details jsonb       NOT NULL DEFAULT '{}',
  CONSTRAINT event_pkey PRIMARY KEY (job_id, at, id)
);

COMMENT ON TABLE onceq.event IS 'the part of a job''s timeline that its other rows do not tell';

-- What a stage of a handler computed, for the attempts after it.
CREATE TABLE onceq.checkpoint (
  saved_at timestamptz NOT NULL,
  job_id   uuid        NOT NULL,
  attempt  smallint    NOT NULL,
  name     text        NOT NULL,
  value    jsonb       NOT NULL,
  CONSTRAINT checkpoint_pkey PRIMARY KEY (job_id, name)
);

COMMENT ON TABLE onceq.checkpoint IS 'saved stages of jobs';

-- +goose Down
DROP TABLE onceq.checkpoint;
DROP TABLE onceq.event;
