-- What Migrate and goose make before the first migration, told to sqlc alone.
CREATE SCHEMA onceq;

CREATE TABLE onceq.goose_version (
  id         integer   NOT NULL,
  version_id bigint    NOT NULL,
  is_applied boolean   NOT NULL,
  tstamp     timestamp NOT NULL
);
