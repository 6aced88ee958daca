-- name: EnqueueMany :many
-- EnqueueMany decides a whole batch, all or nothing, in one statement. The
-- caller has folded repeats of a key and sorted the keys by scope and hash,
-- bytewise: bindings are inserted, and so locked, in that one order, before any
-- job, so overlapping batches can wait for each other but never deadlock.
--
-- The bind arrays have an element for each hash of the keyed requests (one each,
-- or several while a secret is rotated), in that order. Of all arrays but ids,
-- hashes, fingerprints and ords one element is sent where all are equal: it stands
-- for every row, so none may be NULL. Arrays are read in the SELECT list, where
-- PostgreSQL takes value by value from them; from functions in FROM it would make
-- a copy first. Membership is asked with IN, which is hashed, so the work grows
-- with the batch and not with its square. One clock reading classifies all. A live
-- binding that another request owns refuses the batch: nothing is written. An
-- expired one is taken over in its turn by the same INSERT. A batch that the caller
-- has found at odds with itself is sent as refused, so as to learn which jobs own
-- its keys.
--
-- The first row (ord 0) is the summary: how many bindings were to be made and
-- how many were. Fewer made means that a race was lost to a transaction that
-- this snapshot can't see; nothing of the batch may then be kept, so the caller
-- rolls back to its savepoint and asks again, or, when the statement is a
-- transaction of its own, it refuses itself. The other rows tell the live
-- bindings that were found.
WITH clock AS MATERIALIZED (
  SELECT clock_timestamp() AS at
),
alike AS MATERIALIZED (
  -- The elements that stand for every row.
  SELECT
    (@bind_modes::smallint[])[1] AS bind_mode, (@bind_ttls_us::bigint[])[1] AS bind_ttl_us, (@bind_scopes::text[])[1] AS bind_scope,
    (@run_ats::text[])[1] AS run_at, (@deadlines::text[])[1] AS deadline, (@execution_timeouts_us::bigint[])[1] AS execution_timeout_us,
    (@priorities::smallint[])[1] AS priority, (@max_attempts::smallint[])[1] AS max_attempts, (@queues::text[])[1] AS queue,
    (@types::text[])[1] AS type, (@payloads::text[])[1] AS payload, (@retries::text[])[1] AS retry, (@tags::text[])[1] AS tags,
    (@concurrency_keys::text[])[1] AS concurrency_key, (@modes::smallint[])[1] AS mode, (@releases::smallint[])[1] AS release,
    (@key_lengths::smallint[])[1] AS key_length, (@key_aliases::text[])[1] AS key_aliases, (@scopes::text[])[1] AS scope,
    (@key_previews::text[])[1] AS key_preview
),
met AS MATERIALIZED (
  SELECT
    bind.ord, b.job_id, b.mode, b.dead, b.expires_at, b.fingerprint, b.expires_at > clock.at AS live,
    b.mode = coalesce(bind.mode, alike.bind_mode) AND b.fingerprint = bind.fingerprint AS same
  FROM (
    SELECT
      unnest(@bind_hashes::bytea[]) AS key_hash, unnest(@bind_ords::bigint[]) AS ord, unnest(@bind_fingerprints::bytea[]) AS fingerprint,
      unnest(@bind_modes::smallint[]) AS mode
  ) AS bind
  CROSS JOIN clock
  CROSS JOIN alike
  -- OFFSET 0 keeps this a look-up by primary key for each hash, whatever the planner thinks of the table.
  CROSS JOIN LATERAL (SELECT o.* FROM onceq.binding AS o WHERE o.key_hash = bind.key_hash OFFSET 0) AS b
),
held AS MATERIALIZED (
  SELECT met.*
  FROM met
  WHERE met.live
),
goes AS MATERIALIZED (
  -- No row when the batch is refused.
  SELECT clock.at, EXISTS (SELECT FROM met WHERE NOT met.live) AS over
  FROM clock
  WHERE NOT EXISTS (SELECT FROM held WHERE NOT held.same)
    AND NOT @refused::boolean
),
fresh AS NOT MATERIALIZED (
  SELECT
    bind.turn, goes.over, goes.at AS accepted_at, goes.at + coalesce(bind.ttl_us, alike.bind_ttl_us) * interval '1 microsecond' AS expires_at,
    (@job_ids::pg_catalog.uuid[])[bind.ord] AS job_id, coalesce(bind.mode, alike.bind_mode) AS mode, bind.key_hash,
    coalesce(bind.scope, alike.bind_scope) AS scope, bind.fingerprint
  FROM goes
  CROSS JOIN alike
  CROSS JOIN (
    SELECT
      unnest(@bind_hashes::bytea[]) AS key_hash, unnest(@bind_ords::bigint[]) AS ord, unnest(@bind_fingerprints::bytea[]) AS fingerprint,
      unnest(@bind_modes::smallint[]) AS mode, unnest(@bind_ttls_us::bigint[]) AS ttl_us, unnest(@bind_scopes::text[]) AS scope,
      generate_series(1, cardinality(@bind_ords::bigint[])) AS turn
  ) AS bind
  WHERE bind.ord NOT IN (SELECT held.ord FROM held)
),
bound_fresh AS (
  -- Where no key has expired, whoever loses a race finds out without a lock.
  INSERT INTO onceq.binding AS b (accepted_at, expires_at, job_id, mode, key_hash, scope, fingerprint)
  SELECT fresh.accepted_at, fresh.expires_at, fresh.job_id, fresh.mode, fresh.key_hash, fresh.scope, fresh.fingerprint
  FROM fresh
  WHERE NOT fresh.over
  ORDER BY fresh.turn
  ON CONFLICT (key_hash) DO NOTHING
  RETURNING b.mode
),
bound_over AS (
  -- Where one has, fresh and expired keys are locked in one pass, in order.
  INSERT INTO onceq.binding AS b (accepted_at, expires_at, job_id, mode, key_hash, scope, fingerprint)
  SELECT fresh.accepted_at, fresh.expires_at, fresh.job_id, fresh.mode, fresh.key_hash, fresh.scope, fresh.fingerprint
  FROM fresh
  WHERE fresh.over
  ORDER BY fresh.turn
  ON CONFLICT (key_hash) DO UPDATE SET
    accepted_at = EXCLUDED.accepted_at,
    expires_at = EXCLUDED.expires_at,
    job_id = EXCLUDED.job_id,
    mode = EXCLUDED.mode,
    dead = false,
    scope = EXCLUDED.scope,
    fingerprint = EXCLUDED.fingerprint
  WHERE b.expires_at <= clock_timestamp()
  RETURNING b.mode
),
settled AS MATERIALIZED (
  -- Counting bound first makes this the clock after every wait.
  SELECT made.n, clock_timestamp() AS at
  FROM (SELECT (SELECT count(*) FROM bound_fresh) + (SELECT count(*) FROM bound_over) AS n) AS made
),
stored AS (
  INSERT INTO onceq.job (
    id, accepted_at, run_at, deadline, execution_timeout, priority, max_attempts, queue, type, payload, retry, tags, concurrency_key,
    key_mode, key_release, key_length, key_hash, key_aliases, key_scope, key_preview)
  SELECT
    r.job_id, settled.at,
    coalesce(nullif(coalesce(r.run_at, alike.run_at), '')::timestamptz, settled.at),
    nullif(coalesce(r.deadline, alike.deadline), '')::timestamptz,
    nullif(coalesce(r.execution_timeout_us, alike.execution_timeout_us), 0) * interval '1 microsecond',
    coalesce(r.priority, alike.priority), coalesce(r.max_attempts, alike.max_attempts),
    coalesce(r.queue, alike.queue), coalesce(r.type, alike.type), coalesce(r.payload, alike.payload)::jsonb,
    nullif(coalesce(r.retry, alike.retry), '')::jsonb, nullif(coalesce(r.tags, alike.tags), '')::text[],
    nullif(coalesce(r.concurrency_key, alike.concurrency_key), ''),
    nullif(coalesce(r.mode, alike.mode), 0),
    CASE WHEN coalesce(r.mode, alike.mode) > 0 THEN coalesce(r.release, alike.release) END,
    nullif(coalesce(r.key_length, alike.key_length), 0), nullif(r.key_hash, ''),
    nullif(coalesce(r.key_aliases, alike.key_aliases), '')::bytea[],
    nullif(coalesce(r.scope, alike.scope), ''), nullif(coalesce(r.key_preview, alike.key_preview), '')
  FROM goes
  CROSS JOIN settled
  CROSS JOIN alike
  CROSS JOIN (
    SELECT
      unnest(@job_ids::pg_catalog.uuid[]) AS job_id, unnest(@run_ats::text[]) AS run_at, unnest(@deadlines::text[]) AS deadline,
      unnest(@execution_timeouts_us::bigint[]) AS execution_timeout_us, unnest(@priorities::smallint[]) AS priority,
      unnest(@max_attempts::smallint[]) AS max_attempts, unnest(@queues::text[]) AS queue, unnest(@types::text[]) AS type,
      unnest(@payloads::text[]) AS payload, unnest(@retries::text[]) AS retry, unnest(@tags::text[]) AS tags,
      unnest(@concurrency_keys::text[]) AS concurrency_key, unnest(@modes::smallint[]) AS mode, unnest(@releases::smallint[]) AS release,
      unnest(@scopes::text[]) AS scope, unnest(@key_previews::text[]) AS key_preview, unnest(@key_lengths::smallint[]) AS key_length,
      unnest(@key_hashes::bytea[]) AS key_hash, unnest(@key_aliases::text[]) AS key_aliases,
      generate_series(1, cardinality(@job_ids::pg_catalog.uuid[])) AS ord
  ) AS r
  WHERE r.ord NOT IN (SELECT held.ord FROM held)
  RETURNING id, accepted_at, greatest(run_at, accepted_at) AS ready_at, deadline, priority, queue, type, concurrency_key
),
queued AS (
  INSERT INTO onceq.pending (ready_at, job_id, deadline, priority, queue, type, concurrency_key)
  SELECT a.ready_at, a.id, a.deadline, a.priority, a.queue, a.type, a.concurrency_key
  FROM stored AS a
),
woken AS MATERIALIZED (
  SELECT pg_notify(@wake::text, w.queue)
  FROM (SELECT unnest(@wake_queues::text[]) AS queue) AS w
  -- IS TRUE keeps this hashed too, instead of a join.
  WHERE (w.queue IN (SELECT a.queue FROM stored AS a WHERE a.ready_at = a.accepted_at)) IS TRUE
),
summary AS MATERIALIZED (
  SELECT
    (SELECT count(*) FROM fresh) AS wanted,
    settled.n AS made,
    settled.at - clock.at > sqlc.arg(slack_us)::bigint * interval '1 microsecond' AS waited
  FROM settled
  CROSS JOIN clock
)
SELECT
  0::bigint AS ord,
  s.wanted::bigint AS wanted, s.made::bigint AS made, (s.wanted > 0 AND s.waited)::boolean AS waited,
  (CASE WHEN @alone::boolean AND (s.made <> s.wanted OR s.wanted > 0 AND s.waited)
    THEN ('onceq waited for another transaction and asks again: ' || s.made::text)::bigint
    ELSE (SELECT count(*) FROM woken)
  END)::bigint AS wakes,
  NULL::text AS held_job_id, NULL::smallint AS held_mode, NULL::boolean AS held_dead,
  NULL::text AS held_expires_at, NULL::text AS held_fingerprint
FROM summary AS s
UNION ALL
SELECT
  h.ord, 0, 0, false, 0,
  h.job_id::text, h.mode, h.dead,
  CASE WHEN h.same AND NOT @refused::boolean THEN NULL ELSE extract(epoch FROM h.expires_at)::text END,
  CASE WHEN h.same THEN NULL ELSE encode(h.fingerprint, 'hex') END
FROM held AS h;

-- name: EnqueueManyRepeats :many
-- EnqueueManyRepeats is EnqueueRepeat for a batch: the live bindings of its keys.
-- It is sent first where the last requests were all repeats, and answers alone
-- when every key has one. OFFSET 0 keeps it a look-up by primary key for each.
SELECT
  r.ord::bigint AS ord, b.job_id::text AS held_job_id, b.mode AS held_mode, b.dead AS held_dead,
  (CASE WHEN substr(b.fingerprint, 1, length(r.whole)) = r.whole AND b.mode = coalesce(r.mode, (@modes::smallint[])[1]) THEN '' ELSE extract(epoch FROM b.expires_at)::text END)::text AS held_expires_at,
  (CASE WHEN substr(b.fingerprint, 1, length(r.whole)) = r.whole AND b.mode = coalesce(r.mode, (@modes::smallint[])[1]) THEN '' ELSE encode(b.fingerprint, 'hex') END)::text AS held_fingerprint
FROM (
  SELECT
    unnest(@key_hashes::bytea[]) AS key_hash, unnest(@wholes::bytea[]) AS whole, unnest(@modes::smallint[]) AS mode,
    generate_series(1, cardinality(@key_hashes::bytea[])) AS ord
) AS r
CROSS JOIN LATERAL (SELECT o.* FROM onceq.binding AS o WHERE o.key_hash = r.key_hash OFFSET 0) AS b
WHERE b.expires_at > clock_timestamp();
