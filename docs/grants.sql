-- Roles for the least that each part of a service needs. Run it as the schema's
-- owner (who also runs migrations), and again after every migration: it can be
-- repeated. For a queue in another schema, put its name in place of onceq.
-- The roles can't log in by themselves: GRANT onceq_producer TO your_service;
--
-- A lock (SELECT ... FOR UPDATE) needs the right to update some column of the
-- table, and a row to be deleted must be found. That is what the single columns
-- below are for.

DO $$
DECLARE
  wanted text;
BEGIN
  FOREACH wanted IN ARRAY ARRAY['onceq_producer', 'onceq_worker', 'onceq_operator', 'onceq_reader'] LOOP
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = wanted) THEN
      EXECUTE format('CREATE ROLE %I NOLOGIN', wanted);
    END IF;
  END LOOP;
END
$$;

REVOKE ALL ON ALL TABLES IN SCHEMA onceq FROM onceq_producer, onceq_worker, onceq_operator, onceq_reader;
GRANT USAGE ON SCHEMA onceq TO onceq_producer, onceq_worker, onceq_operator, onceq_reader;
GRANT SELECT ON onceq.goose_version TO onceq_producer, onceq_worker, onceq_operator, onceq_reader;

-- A producer enqueues. It reads no payload, not even its own, and no event, and
-- deletes no job. It does as it likes with bindings: taking over an expired key
-- is to delete one or to write it anew.
GRANT SELECT, INSERT, UPDATE, DELETE ON onceq.binding TO onceq_producer;
GRANT INSERT ON onceq.job TO onceq_producer;
GRANT SELECT (id, accepted_at, run_at, deadline, priority, queue, type, concurrency_key) ON onceq.job TO onceq_producer;
GRANT INSERT ON onceq.pending TO onceq_producer;

-- Leave these out where nobody debounces: a replacement moves a waiting job's
-- place and writes its definition anew.
GRANT UPDATE (run_at, deadline, execution_timeout, priority, max_attempts, queue, type, payload, retry, tags, concurrency_key) ON onceq.job TO onceq_producer;
GRANT SELECT (ctid, ready_at, job_id, priority, fence, queue), DELETE, UPDATE (deadline) ON onceq.pending TO onceq_producer;
GRANT INSERT (at, job_id, attempt, kind, details) ON onceq.event TO onceq_producer;

-- A worker claims jobs, ends them, and keeps the tables in order. It makes no
-- jobs: a handler that enqueues needs onceq_producer too.
GRANT SELECT, DELETE, UPDATE (run_at) ON onceq.job TO onceq_worker;
GRANT SELECT, INSERT, DELETE, UPDATE (deadline) ON onceq.pending TO onceq_worker;
GRANT SELECT, INSERT, DELETE, UPDATE (lease_until) ON onceq.running TO onceq_worker;
GRANT SELECT, INSERT, DELETE, UPDATE (error) ON onceq.finished TO onceq_worker;
GRANT SELECT (ctid, expires_at, job_id, mode, key_hash, scope), DELETE, UPDATE (dead) ON onceq.binding TO onceq_worker;
GRANT SELECT, INSERT, DELETE ON onceq.event TO onceq_worker;
GRANT SELECT, INSERT, DELETE ON onceq.checkpoint TO onceq_worker;
GRANT SELECT, UPDATE (version) ON onceq.queue TO onceq_worker;
GRANT SELECT, INSERT, UPDATE (due_at) ON onceq.upkeep TO onceq_worker;
GRANT SELECT (ctid, at, source_id, target_id), DELETE, UPDATE (at) ON onceq.redrive TO onceq_worker;

-- An operator reads everything but the values of checkpoints, and cancels, purges,
-- redrives, runs now, maintains, and sets queues.
GRANT SELECT, INSERT, DELETE, UPDATE (run_at) ON onceq.job TO onceq_operator;
GRANT SELECT, INSERT, DELETE, UPDATE (deadline) ON onceq.pending TO onceq_operator;
GRANT SELECT, DELETE, UPDATE (cancel_requested_at) ON onceq.running TO onceq_operator;
GRANT SELECT, INSERT, DELETE, UPDATE (error) ON onceq.finished TO onceq_operator;
GRANT SELECT, DELETE, UPDATE (dead) ON onceq.binding TO onceq_operator;
GRANT SELECT, INSERT, DELETE, UPDATE (details) ON onceq.event TO onceq_operator;
GRANT SELECT (saved_at, job_id, attempt, name), DELETE ON onceq.checkpoint TO onceq_operator;
GRANT SELECT, INSERT, UPDATE (max_running, max_running_per_key, paused, version) ON onceq.queue TO onceq_operator;
GRANT SELECT, INSERT, UPDATE (due_at) ON onceq.upkeep TO onceq_operator;
GRANT SELECT, INSERT, DELETE, UPDATE (at) ON onceq.redrive TO onceq_operator;

-- A reader looks at jobs, timelines, keys and counts: no payloads, no values of
-- checkpoints, no fingerprints. It sees the hashes of keys; with Config.KeySecret
-- they give nothing away, without one it could test its guesses.
GRANT SELECT (
  id, accepted_at, run_at, deadline, execution_timeout, priority, max_attempts, key_mode, key_release, key_length,
  queue, type, retry, tags, concurrency_key, key_hash, key_scope, key_preview
) ON onceq.job TO onceq_reader;
GRANT SELECT ON onceq.pending, onceq.running, onceq.finished, onceq.event, onceq.queue, onceq.upkeep TO onceq_reader;
GRANT SELECT (accepted_at, expires_at, job_id, mode, dead, key_hash, scope) ON onceq.binding TO onceq_reader;
GRANT SELECT (saved_at, job_id, attempt, name) ON onceq.checkpoint TO onceq_reader;
GRANT SELECT (at, source_id, target_id, ordinal, actor, reason) ON onceq.redrive TO onceq_reader;
