-- name: DebounceMany :many
-- DebounceMany is EnqueueMany for a batch in which at least one request is
-- debounced; requests of every admission are decided in it, by one clock reading
-- and one look at their keys. Repeats of a key are folded: of debounced ones the
-- last definition is sent, with the window that a fresh job would get from the
-- first request (ttl_us) or from the first that has FollowUp (follow_us), and
-- with what the last request that moves the run time says of it (window_us,
-- max_wait_us; hold when none does).
--
-- seen is the look at the keys; verdict what it means for each debounced request:
--   1 another admission owns the key        refused: incompatible_mode
--   2 its job waits                         replaced, or elapsed: window_elapsed
--   3 its job waits, the window is over     refused: window_elapsed
--   4 its job has started or ended          refused: not_pending, or a fresh job
--   5 expired, and nothing waits            a fresh job
-- live was read after the snapshot and over is by the statement's own time, so a
-- refusal holds at the moment of the snapshot, as in Debounce. While a secret is
-- rotated a key has several bindings, and a process that knows fewer of its hashes
-- moves only those. So the window of a job that waits ends at its run time,
-- whatever a binding tells, and one of a job that does not as the first of them.
-- Under REPEATABLE READ, as in Debounce, over is never true: such a window is
-- elapsed once the job's place is locked.
--
-- One INSERT locks every key that is made, taken over or replaced, by scope and
-- hash, before any place: fresh keys are inserted; what is expired or ended is
-- taken over in its turn; a binding to be replaced is only locked, because its
-- proposal names the job that it has already. Then places are locked, then the
-- clock is read, then everything is written. A batch of refusals and repeats
-- writes and locks nothing.
--
-- A request whose longest wait is over ends the window at once, so those of its
-- key that follow it in the batch would find it over. cut_us is the shortest wait
-- of those that are followed; where it is over, the statement tells how old the
-- binding is (cut), and the caller asks again with the requests up to that one.
--
-- The first row (ord 0) is the summary. Not settled means that a key or a place
-- changed while it was waited for, or a window ended: nothing may be kept, as in
-- EnqueueMany.
WITH request AS MATERIALIZED (
  SELECT r.*
  FROM ROWS FROM (
    unnest(@job_ids::uuid[]), unnest(@run_ats::text[]), unnest(@deadlines::text[]), unnest(@execution_timeouts_us::bigint[]),
    unnest(@priorities::smallint[]), unnest(@max_attempts::smallint[]), unnest(@queues::text[]), unnest(@types::text[]),
    unnest(@payloads::text[]), unnest(@retries::text[]), unnest(@tags::text[]), unnest(@concurrency_keys::text[]),
    unnest(@modes::smallint[]), unnest(@releases::smallint[]), unnest(@scopes::text[]), unnest(@key_previews::text[]),
    unnest(@key_lengths::smallint[]), unnest(@key_hashes::bytea[]), unnest(@key_aliases::text[]),
    unnest(@ttls_us::bigint[]), unnest(@follows_us::bigint[]), unnest(@follow_turns::integer[]), unnest(@digests::bytea[])
  ) WITH ORDINALITY AS r (
    job_id, run_at, deadline, execution_timeout_us,
    priority, max_attempts, queue, type,
    payload, retry, tags, concurrency_key,
    mode, release, scope, key_preview,
    key_length, key_hash, key_aliases,
    ttl_us, follow_us, follow_turn, digests, ord)
),
bind AS MATERIALIZED (
  SELECT b.*
  FROM ROWS FROM (
    unnest(@bind_hashes::bytea[]), unnest(@bind_ords::bigint[]), unnest(@bind_job_ids::uuid[]), unnest(@bind_modes::smallint[]),
    unnest(@bind_ttls_us::bigint[]), unnest(@bind_scopes::text[]), unnest(@bind_fingerprints::bytea[]),
    unnest(@bind_follows_us::bigint[]), unnest(@bind_holds::boolean[]), unnest(@bind_windows_us::bigint[]), unnest(@bind_max_waits_us::bigint[]),
    unnest(@bind_cuts_us::bigint[])
  ) WITH ORDINALITY AS b (key_hash, ord, job_id, mode, ttl_us, scope, fingerprint, follow_us, hold, window_us, max_wait_us, cut_us, turn)
),
clock AS MATERIALIZED (
  -- fresh tells that the snapshot is the statement's own, not an older one of the transaction.
  SELECT clock_timestamp() AS at, current_setting('transaction_isolation') IN ('read committed', 'read uncommitted') AS fresh
),
seen AS MATERIALIZED (
  SELECT
    bind.ord, bind.turn, bind.key_hash, bind.mode AS asked, bind.fingerprint AS asked_fingerprint, bind.scope,
    bind.follow_us, bind.hold, bind.window_us, bind.max_wait_us, bind.cut_us,
    b.job_id, b.mode, b.dead, b.expires_at, b.fingerprint,
    b.expires_at > clock.at AS live, p.ready_at <= statement_timestamp() AND clock.fresh AS over,
    b.mode = bind.mode AND b.fingerprint = bind.fingerprint AS same,
    p.job_id IS NOT NULL AS waits, p.queue, p.priority, p.ready_at
  FROM bind
  CROSS JOIN clock
  -- OFFSET 0 keeps these look-ups by primary key for each hash, whatever the planner thinks of the tables.
  CROSS JOIN LATERAL (SELECT o.* FROM onceq.binding AS o WHERE o.key_hash = bind.key_hash OFFSET 0) AS b
  LEFT JOIN LATERAL (
    SELECT o.job_id, o.queue, o.priority, o.ready_at
    FROM onceq.job AS j
    JOIN onceq.pending AS o
      ON o.queue = j.queue AND o.priority = j.priority AND o.ready_at = greatest(j.run_at, j.accepted_at) AND o.job_id = j.id AND o.fence = 0
    WHERE j.id = b.job_id AND bind.mode = 2 AND b.mode = 2
    OFFSET 0
  ) AS p ON true
),
verdict AS MATERIALIZED (
  SELECT DISTINCT ON (k.ord) k.ord, k.kind, k.job_id, k.dead, k.kind = 5 OR k.kind = 4 AND k.follow_us > 0 AS fresh
  FROM (
    SELECT s.*, CASE
      WHEN s.live AND s.mode <> 2 THEN 1
      WHEN s.waits AND NOT s.over THEN 2
      WHEN s.waits THEN 3
      WHEN bool_and(s.live) OVER (PARTITION BY s.ord, s.job_id) THEN 4
      ELSE 5
    END AS kind
    FROM seen AS s
    WHERE s.asked = 2
  ) AS k
  ORDER BY k.ord, k.kind, k.turn
),
answered AS MATERIALIZED (
  -- Requests that make no job.
  SELECT s.ord FROM seen AS s WHERE s.asked <> 2 AND s.live
  UNION ALL
  SELECT v.ord FROM verdict AS v WHERE NOT v.fresh
),
followed AS MATERIALIZED (
  SELECT v.ord FROM verdict AS v WHERE v.kind = 4 AND v.fresh
),
over AS MATERIALIZED (
  -- Jobs whose keys a debounced request may take: neither expiry nor start can be undone.
  SELECT s.job_id FROM seen AS s WHERE s.ord IN (SELECT v.ord FROM verdict AS v WHERE v.fresh)
),
goes AS MATERIALIZED (
  SELECT clock.at FROM clock WHERE NOT @refused::boolean AND NOT EXISTS (SELECT FROM seen AS s WHERE s.asked <> 2 AND s.live AND NOT s.same)
),
wanted AS MATERIALIZED (
  SELECT
    bind.turn, bind.key_hash, bind.job_id, bind.mode, bind.scope, bind.fingerprint,
    CASE WHEN bind.ord IN (SELECT f.ord FROM followed AS f) THEN bind.follow_us ELSE bind.ttl_us END AS ttl_us
  FROM goes
  CROSS JOIN bind
  WHERE bind.ord NOT IN (SELECT a.ord FROM answered AS a)
),
retained AS MATERIALIZED (
  SELECT s.*
  FROM goes
  CROSS JOIN seen AS s
  WHERE (s.ord, s.job_id) IN (SELECT v.ord, v.job_id FROM verdict AS v WHERE v.kind = 2)
),
bound AS (
  INSERT INTO onceq.binding AS b (accepted_at, expires_at, job_id, mode, key_hash, scope, fingerprint)
  SELECT clock.at, clock.at + k.ttl_us * interval '1 microsecond', k.job_id, k.mode, k.key_hash, k.scope, k.fingerprint
  FROM (
    SELECT w.turn, w.ttl_us, w.job_id, w.mode, w.key_hash, w.scope, w.fingerprint FROM wanted AS w
    UNION ALL
    SELECT r.turn, 0, r.job_id, r.asked, r.key_hash, r.scope, r.asked_fingerprint FROM retained AS r
  ) AS k
  CROSS JOIN clock
  ORDER BY k.turn
  ON CONFLICT (key_hash) DO UPDATE SET
    accepted_at = EXCLUDED.accepted_at,
    expires_at = EXCLUDED.expires_at,
    job_id = EXCLUDED.job_id,
    mode = EXCLUDED.mode,
    dead = false,
    scope = EXCLUDED.scope,
    fingerprint = EXCLUDED.fingerprint
  WHERE b.job_id <> EXCLUDED.job_id
    AND (b.job_id IN (SELECT over.job_id FROM over) OR EXCLUDED.mode <> 2 AND b.expires_at <= clock_timestamp())
  RETURNING b.key_hash
),
locked AS MATERIALIZED (
  -- The locks are held already; this reads what is locked. Counting bound first keeps it after them.
  SELECT r.ord, r.turn, r.key_hash, r.job_id, r.asked_fingerprint, r.hold, r.window_us, r.max_wait_us, r.cut_us,
    r.queue, r.priority, r.ready_at, b.accepted_at, b.expires_at, b.fingerprint
  FROM retained AS r
  CROSS JOIN LATERAL (
    SELECT o.accepted_at, o.expires_at, o.fingerprint
    FROM onceq.binding AS o
    WHERE o.key_hash = r.key_hash AND o.job_id = r.job_id AND (SELECT count(*) FROM bound) >= 0
    FOR UPDATE
  ) AS b
),
place AS MATERIALIZED (
  SELECT l.*, p.place
  FROM (SELECT DISTINCT ON (k.ord) k.* FROM locked AS k ORDER BY k.ord, k.expires_at = k.ready_at DESC, k.turn) AS l
  CROSS JOIN LATERAL (
    SELECT o.ctid::tid AS place
    FROM onceq.pending AS o
    WHERE o.queue = l.queue AND o.priority = l.priority AND o.ready_at = l.ready_at AND o.job_id = l.job_id AND o.fence = 0
    FOR UPDATE
  ) AS p
),
settled AS MATERIALIZED (
  -- Counting them first makes this the clock after every lock.
  SELECT made.n AS made, still.n AS still, waiting.n AS waiting, clock_timestamp() AS at
  FROM (SELECT count(*) AS n FROM bound) AS made
  CROSS JOIN (SELECT count(*) AS n FROM locked) AS still
  CROSS JOIN (SELECT count(*) AS n FROM place) AS waiting
),
elapsed AS MATERIALIZED (
  SELECT p.ord
  FROM place AS p
  WHERE p.ready_at <= statement_timestamp()
),
cut AS MATERIALIZED (
  SELECT p.ord, p.job_id, settled.at - p.accepted_at AS age
  FROM place AS p
  CROSS JOIN settled
  WHERE p.cut_us > 0 AND p.accepted_at + p.cut_us * interval '1 microsecond' <= settled.at AND p.ord NOT IN (SELECT e.ord FROM elapsed AS e)
),
replaced AS MATERIALIZED (
  SELECT
    p.ord, p.job_id, p.place, p.fingerprint AS before, settled.at,
    CASE WHEN p.hold THEN p.ready_at ELSE least(
      settled.at + p.window_us * interval '1 microsecond',
      p.accepted_at + nullif(p.max_wait_us, 0) * interval '1 microsecond')
    END AS due
  FROM place AS p
  CROSS JOIN settled
  WHERE p.ready_at > settled.at AND p.ord NOT IN (SELECT cut.ord FROM cut)
),
left_place AS (
  DELETE FROM onceq.pending AS p
  USING replaced AS r
  WHERE p.ctid = r.place
  RETURNING p.job_id
),
changed AS MATERIALIZED (
  -- FULL, so that this is never a loop over all pairs; coalesce and MATERIALIZED keep it FULL.
  SELECT r.*, x.job_id AS retained_id, x.due, x.at, x.before
  FROM request AS r
  FULL JOIN replaced AS x ON x.ord = r.ord
  WHERE coalesce(x.ord, 0) > 0 AND (SELECT count(*) FROM left_place) >= 0
),
redefined AS (
  -- = ANY leaves the planner no hash join, here and below: one would read the table whole.
  UPDATE onceq.job AS j
  SET
    run_at = c.due, deadline = nullif(c.deadline, '')::timestamptz,
    execution_timeout = nullif(c.execution_timeout_us, 0) * interval '1 microsecond',
    priority = c.priority, max_attempts = c.max_attempts, queue = c.queue, type = c.type,
    payload = c.payload::jsonb, retry = nullif(c.retry, '')::jsonb, tags = nullif(c.tags, '')::text[],
    concurrency_key = nullif(c.concurrency_key, '')
  FROM changed AS c
  WHERE j.id = ANY (ARRAY[c.retained_id])
  RETURNING j.id, j.accepted_at, j.run_at, j.deadline, j.priority, j.queue, j.type, j.concurrency_key
),
extended AS MATERIALIZED (
  SELECT l.key_hash, l.asked_fingerprint, x.due
  FROM locked AS l
  FULL JOIN replaced AS x ON x.ord = l.ord
  WHERE coalesce(x.ord, 0) > 0
),
rebound AS (
  UPDATE onceq.binding AS b
  SET expires_at = x.due, fingerprint = x.asked_fingerprint
  FROM extended AS x
  WHERE b.key_hash = ANY (ARRAY[x.key_hash])
),
accepted AS MATERIALIZED (
  SELECT
    r.*, settled.at,
    CASE
      WHEN r.mode <> 2 THEN coalesce(nullif(r.run_at, '')::timestamptz, settled.at)
      WHEN r.ord IN (SELECT f.ord FROM followed AS f) THEN goes.at + r.follow_us * interval '1 microsecond'
      ELSE goes.at + r.ttl_us * interval '1 microsecond'
    END AS due
  FROM goes
  CROSS JOIN settled
  CROSS JOIN request AS r
  WHERE r.ord NOT IN (SELECT a.ord FROM answered AS a)
),
stored AS (
  INSERT INTO onceq.job (
    id, accepted_at, run_at, deadline, execution_timeout, priority, max_attempts, queue, type, payload, retry, tags, concurrency_key,
    key_mode, key_release, key_length, key_hash, key_aliases, key_scope, key_preview)
  SELECT
    a.job_id, a.at, a.due, nullif(a.deadline, '')::timestamptz, nullif(a.execution_timeout_us, 0) * interval '1 microsecond',
    a.priority, a.max_attempts, a.queue, a.type, a.payload::jsonb, nullif(a.retry, '')::jsonb, nullif(a.tags, '')::text[],
    nullif(a.concurrency_key, ''),
    nullif(a.mode, 0), CASE WHEN a.mode > 0 THEN a.release END, CASE WHEN a.mode > 0 THEN a.key_length END, CASE WHEN a.mode > 0 THEN a.key_hash END,
    nullif(a.key_aliases, '')::bytea[],
    CASE WHEN a.mode > 0 THEN a.scope END, CASE WHEN a.mode > 0 THEN a.key_preview END
  FROM accepted AS a
),
queued AS (
  INSERT INTO onceq.pending (ready_at, job_id, deadline, priority, queue, type, concurrency_key)
  SELECT greatest(a.due, a.at), a.job_id, nullif(a.deadline, '')::timestamptz, a.priority, a.queue, a.type, nullif(a.concurrency_key, '')
  FROM accepted AS a
  UNION ALL
  SELECT greatest(r.run_at, r.accepted_at), r.id, r.deadline, r.priority, r.queue, r.type, r.concurrency_key
  FROM redefined AS r
),
noted AS (
  -- One event for each replacement, also of a job that this batch has made. digests are 6 bytes for each request of the key.
  INSERT INTO onceq.event (at, job_id, attempt, kind, details)
  SELECT
    e.at + (n - 1) * interval '1 microsecond', e.job_id, 0, 'replaced', jsonb_build_object(
      'run_at', e.due,
      'fingerprint', encode(substring(e.digests FROM 6 * n - 5 FOR 6), 'hex'),
      'before', encode(CASE WHEN n = 1 THEN e.before ELSE substring(e.digests FROM 6 * n - 11 FOR 6) END, 'hex'))
  FROM (
    SELECT c.at, c.retained_id AS job_id, c.due, c.digests, substring(c.before FROM 2 FOR 6) AS before, 0 AS made
    FROM changed AS c
    UNION ALL
    SELECT a.at, a.job_id, a.due, a.digests, NULL, CASE WHEN a.ord IN (SELECT f.ord FROM followed AS f) THEN a.follow_turn ELSE 1 END
    FROM accepted AS a
  ) AS e
  CROSS JOIN LATERAL generate_series(e.made + 1, octet_length(e.digests) / 6) AS n
),
woken AS MATERIALIZED (
  SELECT pg_notify(@wake::text, ready.queue)
  FROM (SELECT DISTINCT a.queue FROM accepted AS a WHERE a.due <= a.at) AS ready
  WHERE ready.queue = ANY (@wake_queues::text[])
),
summary AS MATERIALIZED (
  SELECT
    settled.made = (SELECT count(*) FROM wanted)
      AND settled.still = (SELECT count(*) FROM retained)
      AND (SELECT count(*) FROM replaced) + (SELECT count(*) FROM elapsed) = (SELECT count(DISTINCT r.ord) FROM retained AS r) AS settled,
    settled.made > 0 AND settled.at - clock.at > sqlc.arg(slack_us)::bigint * interval '1 microsecond' AS waited
  FROM settled
  CROSS JOIN clock
)
SELECT
  0::bigint AS ord,
  s.settled::boolean AS settled, s.waited::boolean AS waited,
  (CASE WHEN @alone::boolean AND (NOT s.settled OR s.waited)
    THEN ('onceq waited for another transaction and asks again: ' || s.settled::text)::bigint
    ELSE (SELECT count(*) FROM woken)
  END)::bigint AS wakes,
  ''::text AS answer, ''::text AS held_job_id, 0::smallint AS held_mode, false AS held_dead,
  0::bigint AS age_us, NULL::text AS held_expires_at, NULL::text AS held_fingerprint
FROM summary AS s
UNION ALL
SELECT
  s.ord, true, false, 0,
  'held', s.job_id::text, s.mode, s.dead, 0, extract(epoch FROM s.expires_at)::text, CASE WHEN s.same THEN NULL ELSE encode(s.fingerprint, 'hex') END
FROM seen AS s
WHERE s.asked <> 2 AND s.live
UNION ALL
SELECT
  v.ord, true, false, 0,
  CASE
    WHEN v.kind = 1 THEN 'incompatible_mode'
    WHEN v.kind = 3 OR v.ord IN (SELECT e.ord FROM elapsed AS e) THEN 'window_elapsed'
    WHEN v.kind = 2 THEN 'replaced'
    ELSE 'not_pending'
  END,
  v.job_id::text, 2::smallint, v.dead, 0, NULL, NULL
FROM verdict AS v
WHERE v.kind < 5
UNION ALL
SELECT c.ord, true, false, 0, 'cut', c.job_id::text, 2::smallint, false, (extract(epoch FROM c.age) * 1000000)::bigint, NULL, NULL
FROM cut AS c;
