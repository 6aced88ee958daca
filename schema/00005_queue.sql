-- +goose Up

-- Settings of the queues that have any. version grows with every claim from a
-- capped queue, so that a claim can tell whether its snapshot saw the last one.
CREATE TABLE onceq.queue (
  version             bigint  NOT NULL DEFAULT 0,
  max_running         integer NOT NULL DEFAULT 0,  -- 0: no cap
  max_running_per_key integer NOT NULL DEFAULT 0,  -- 0: 1 for each concurrency key
  paused              boolean NOT NULL DEFAULT false,
  name                text    NOT NULL,
  CONSTRAINT queue_pkey PRIMARY KEY (name),
  CONSTRAINT queue_caps_not_negative CHECK (max_running >= 0 AND max_running_per_key >= 0)
);

COMMENT ON TABLE onceq.queue IS 'settings of queues';

-- When each kind of upkeep is due next. Taking a turn moves the time, so one
-- process at a time does it.
CREATE TABLE onceq.upkeep (
  due_at timestamptz NOT NULL,
  name   text        NOT NULL,
  CONSTRAINT upkeep_pkey PRIMARY KEY (name)
);

COMMENT ON TABLE onceq.upkeep IS 'turns of maintenance';

-- +goose Down
DROP TABLE onceq.upkeep;
DROP TABLE onceq.queue;
