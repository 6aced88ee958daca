-- name: EnqueueMany :many
-- EnqueueMany decides a whole batch, all or nothing, in one statement. The
-- caller has folded repeats of a key and sorted the keys by scope and hash,
-- bytewise: bindings are inserted, and so locked, in that one order, before any
-- job, so overlapping batches can wait for each other but never deadlock.
--
-- bind has a row for each hash of the keyed requests (one each, or several while a
-- secret is rotated), in that order. The requests themselves are read once, into
-- the jobs; an array of defaults alone is sent empty. Membership is asked with IN,
-- which is hashed, so the work grows with the batch and not with its square. One clock reading classifies all. A live binding that another
-- request owns refuses the batch: nothing is
-- written. An expired one is taken over in its turn by the same INSERT. A batch
-- that the caller has found at odds with itself is sent as refused, so as to
-- learn which jobs own its keys.
--
-- The first row (ord 0) is the summary: how many bindings were to be made and
-- how many were. Fewer made means that a race was lost to a transaction that
-- this snapshot can't see; nothing of the batch may then be kept, so the caller
-- rolls back to its savepoint and asks again, or, when the statement is a
-- transaction of its own, it refuses itself. The other rows tell the live
-- bindings that were found.
WITH bind AS MATERIALIZED (
  SELECT b.*
  FROM ROWS FROM (
    unnest(@bind_hashes::bytea[]), unnest(@bind_ords::bigint[]), unnest(@bind_job_ids::text[]), unnest(@bind_modes::smallint[]),
    unnest(@bind_ttls_us::bigint[]), unnest(@bind_scopes::text[]), unnest(@bind_fingerprints::bytea[])
  ) WITH ORDINALITY AS b (key_hash, ord, job_id, mode, ttl_us, scope, fingerprint, turn)
),
clock AS MATERIALIZED (
  SELECT clock_timestamp() AS at
),
met AS MATERIALIZED (
  SELECT
    bind.ord, b.job_id, b.mode, b.dead, b.expires_at, b.fingerprint, b.expires_at > clock.at AS live,
    b.mode = bind.mode AND b.fingerprint = bind.fingerprint AS same
  FROM bind
  CROSS JOIN clock
  -- OFFSET 0 keeps this a look-up by primary key for each hash, whatever the planner thinks of the table.
  CROSS JOIN LATERAL (SELECT o.* FROM onceq.binding AS o WHERE o.key_hash = bind.key_hash OFFSET 0) AS b
),
held AS MATERIALIZED (
  SELECT met.*
  FROM met
  WHERE met.live
),
fresh AS MATERIALIZED (
  SELECT bind.*
  FROM bind
  WHERE bind.ord NOT IN (SELECT held.ord FROM held)
    AND NOT EXISTS (SELECT FROM held WHERE NOT held.same)
    AND NOT @refused::boolean
),
bound_fresh AS (
  -- Where no key has expired, whoever loses a race finds out without a lock.
  INSERT INTO onceq.binding AS b (accepted_at, expires_at, job_id, mode, key_hash, scope, fingerprint)
  SELECT
    clock.at, clock.at + fresh.ttl_us * interval '1 microsecond', fresh.job_id::uuid, fresh.mode, fresh.key_hash, fresh.scope, fresh.fingerprint
  FROM fresh
  CROSS JOIN clock
  WHERE NOT EXISTS (SELECT FROM met WHERE NOT met.live)
  ORDER BY fresh.turn
  ON CONFLICT (key_hash) DO NOTHING
  RETURNING b.key_hash
),
bound_over AS (
  -- Where one has, fresh and expired keys are locked in one pass, in order.
  INSERT INTO onceq.binding AS b (accepted_at, expires_at, job_id, mode, key_hash, scope, fingerprint)
  SELECT
    clock.at, clock.at + fresh.ttl_us * interval '1 microsecond', fresh.job_id::uuid, fresh.mode, fresh.key_hash, fresh.scope, fresh.fingerprint
  FROM fresh
  CROSS JOIN clock
  WHERE EXISTS (SELECT FROM met WHERE NOT met.live)
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
  RETURNING b.key_hash
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
    r.job_id::uuid, settled.at, coalesce(nullif(r.run_at, '')::timestamptz, settled.at),
    nullif(r.deadline, '')::timestamptz, nullif(r.execution_timeout_us, 0) * interval '1 microsecond',
    coalesce(r.priority, 0), r.max_attempts, r.queue, r.type, r.payload::jsonb, nullif(r.retry, '')::jsonb, nullif(r.tags, '')::text[],
    nullif(r.concurrency_key, ''),
    nullif(r.mode, 0), CASE WHEN r.mode > 0 THEN coalesce(r.release, 0) END, CASE WHEN r.mode > 0 THEN r.key_length END,
    CASE WHEN r.mode > 0 THEN r.key_hash END,
    CASE WHEN @aliased::boolean AND r.mode > 0
      THEN ARRAY(SELECT bind.key_hash FROM bind WHERE bind.ord = r.ord AND bind.key_hash <> r.key_hash)
    END,
    CASE WHEN r.mode > 0 THEN r.scope END, CASE WHEN r.mode > 0 THEN r.key_preview END
  FROM settled
  CROSS JOIN ROWS FROM (
    unnest(@job_ids::text[]), unnest(@run_ats::text[]), unnest(@deadlines::text[]), unnest(@execution_timeouts_us::bigint[]),
    unnest(@priorities::smallint[]), unnest(@max_attempts::smallint[]), unnest(@queues::text[]), unnest(@types::text[]),
    unnest(@payloads::text[]), unnest(@retries::text[]), unnest(@tags::text[]), unnest(@concurrency_keys::text[]),
    unnest(@modes::smallint[]), unnest(@releases::smallint[]), unnest(@scopes::text[]), unnest(@key_previews::text[]),
    unnest(@key_lengths::smallint[]), unnest(@key_hashes::bytea[])
  ) WITH ORDINALITY AS r (
    job_id, run_at, deadline, execution_timeout_us,
    priority, max_attempts, queue, type,
    payload, retry, tags, concurrency_key,
    mode, release, scope, key_preview,
    key_length, key_hash, ord)
  WHERE r.ord NOT IN (SELECT held.ord FROM held)
    AND NOT EXISTS (SELECT FROM held WHERE NOT held.same)
    AND NOT @refused::boolean
  RETURNING id, accepted_at, run_at, deadline, priority, queue, type, concurrency_key
),
queued AS (
  INSERT INTO onceq.pending (ready_at, job_id, deadline, priority, queue, type, concurrency_key)
  SELECT greatest(a.run_at, a.accepted_at), a.id, a.deadline, a.priority, a.queue, a.type, a.concurrency_key
  FROM stored AS a
),
woken AS MATERIALIZED (
  SELECT pg_notify(@wake::text, ready.queue)
  FROM (SELECT DISTINCT a.queue FROM stored AS a WHERE a.run_at <= a.accepted_at) AS ready
  WHERE ready.queue = ANY (@wake_queues::text[])
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
  (CASE WHEN b.fingerprint = r.fingerprint AND b.mode = r.mode THEN '' ELSE extract(epoch FROM b.expires_at)::text END)::text AS held_expires_at,
  (CASE WHEN b.fingerprint = r.fingerprint AND b.mode = r.mode THEN '' ELSE encode(b.fingerprint, 'hex') END)::text AS held_fingerprint
FROM ROWS FROM (
  unnest(@key_hashes::bytea[]), unnest(@fingerprints::bytea[]), unnest(@modes::smallint[])
) WITH ORDINALITY AS r (key_hash, fingerprint, mode, ord)
CROSS JOIN LATERAL (SELECT o.* FROM onceq.binding AS o WHERE o.key_hash = r.key_hash OFFSET 0) AS b
WHERE b.expires_at > clock_timestamp();
