-- The questions of Client.Health. None locks a row, and none reads more than a
-- bounded part of a table that grows; each is asked alone, so that a role that
-- may not ask one still gets the answers to the others.

-- name: DoctorServer :one
-- DoctorServer reads what the connection leads to.
SELECT
  current_setting('server_version')::text AS version,
  current_setting('server_version_num')::integer AS version_num,
  current_user::text AS role,
  (pg_is_in_recovery() OR current_setting('default_transaction_read_only') = 'on')::boolean AS read_only,
  (current_setting('autovacuum') = 'on' AND current_setting('track_counts') = 'on')::boolean AS autovacuum,
  (pg_has_role(current_user, 'pg_read_all_stats', 'USAGE'))::boolean AS sees_sessions;

-- name: DoctorPrivileges :many
-- DoctorPrivileges lists what the role may do with each of the tables, or with
-- some column of it.
SELECT
  c.relname::text AS name,
  has_any_column_privilege(c.oid, 'SELECT')::boolean AS reads,
  (has_any_column_privilege(c.oid, 'INSERT, UPDATE') OR has_table_privilege(c.oid, 'DELETE'))::boolean AS writes
FROM pg_catalog.pg_class AS c
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = @schema::text AND c.relkind = 'r' AND c.relname <> 'goose_version'
ORDER BY c.relname;

-- name: DoctorLeases :one
-- DoctorLeases counts the leases that ended a while ago and that nobody has taken
-- back. The table holds running jobs alone.
SELECT
  count(*)::bigint AS expired,
  coalesce(extract(epoch FROM clock_timestamp() - min(r.lease_until)) * 1000000, 0)::bigint AS oldest_us
FROM onceq.running AS r
WHERE r.lease_until < clock_timestamp() - sqlc.arg(grace_us)::bigint * interval '1 microsecond';

-- name: DoctorSnapshots :many
-- DoctorSnapshots lists what keeps vacuum from removing dead rows of this
-- database: old transactions, also prepared ones and those of standbys, and
-- replication slots. What a session runs is not read.
SELECT held.kind::text AS kind, held.name::text AS name, held.age_us::bigint AS age_us
FROM (
  SELECT
    'session' AS kind,
    'pid ' || a.pid || coalesce(' (' || nullif(a.application_name, '') || ')', '') || coalesce(', ' || a.state, '') AS name,
    extract(epoch FROM clock_timestamp() - a.xact_start) * 1000000 AS age_us
  FROM pg_catalog.pg_stat_activity AS a
  WHERE (a.datname = current_database() OR a.datname IS NULL)
    AND (a.backend_xmin IS NOT NULL OR a.backend_xid IS NOT NULL)
    AND a.backend_type IN ('client backend', 'walsender', 'background worker')
    AND a.pid <> pg_backend_pid()
    AND a.xact_start < clock_timestamp() - sqlc.arg(limit_us)::bigint * interval '1 microsecond'
  UNION ALL
  SELECT 'prepared', p.gid, extract(epoch FROM clock_timestamp() - p.prepared) * 1000000
  FROM pg_catalog.pg_prepared_xacts AS p
  WHERE p.database = current_database() AND p.prepared < clock_timestamp() - sqlc.arg(limit_us)::bigint * interval '1 microsecond'
  UNION ALL
  SELECT 'slot', s.slot_name, 0
  FROM pg_catalog.pg_replication_slots AS s
  WHERE NOT s.active AND s.xmin IS NOT NULL
) AS held
ORDER BY held.age_us DESC
LIMIT 20;

-- name: DoctorTables :many
-- DoctorTables reads the statistics of the tables that churn.
SELECT
  s.relname::text AS name,
  s.n_live_tup::bigint AS live,
  s.n_dead_tup::bigint AS dead,
  coalesce(extract(epoch FROM clock_timestamp() - greatest(s.last_autovacuum, s.last_vacuum)) * 1000000, -1)::bigint AS vacuumed_us
FROM pg_catalog.pg_stat_user_tables AS s
WHERE s.schemaname = @schema::text AND s.relname IN ('pending', 'running', 'binding')
ORDER BY s.relname;

-- name: DoctorBindings :one
-- DoctorBindings looks at a sample of the bindings, of about 200 pages, for those
-- that maintenance should have removed some time ago. Those of a debounce may be
-- kept on purpose and don't count.
SELECT
  count(*)::bigint AS sampled,
  count(*) FILTER (WHERE b.mode <> 2 AND b.expires_at < clock_timestamp() - sqlc.arg(grace_us)::bigint * interval '1 microsecond')::bigint AS expired,
  greatest((SELECT pg_relation_size(c.oid) / current_setting('block_size')::bigint FROM pg_catalog.pg_class AS c WHERE c.oid = to_regclass('onceq.binding')), 1)::bigint AS pages
FROM onceq.binding AS b TABLESAMPLE SYSTEM (
  least(100.0, 20000.0 / greatest((SELECT pg_relation_size(c.oid) / current_setting('block_size')::bigint FROM pg_catalog.pg_class AS c WHERE c.oid = to_regclass('onceq.binding')), 1))
);

-- name: DoctorUpkeep :many
-- DoctorUpkeep tells how long ago each kind of maintenance was due.
SELECT u.name, (extract(epoch FROM clock_timestamp() - u.due_at) * 1000000)::bigint AS late_us
FROM onceq.upkeep AS u
ORDER BY u.name;

-- name: DoctorQueues :many
-- DoctorQueues tells of each queue with ready jobs how long the first of them has
-- waited, whether the queue is paused, and whether any of its jobs runs. The
-- queues are skipped through along the primary key, and in each the priorities,
-- of which there are 101: the first row of a priority is the longest ready.
WITH RECURSIVE waiting AS (
  (SELECT p.queue FROM onceq.pending AS p ORDER BY p.queue LIMIT 1)
  UNION ALL
  SELECT (SELECT p.queue FROM onceq.pending AS p WHERE p.queue > w.queue ORDER BY p.queue LIMIT 1)
  FROM waiting AS w
  WHERE w.queue IS NOT NULL
)
SELECT
  w.queue::text AS name,
  coalesce(q.paused, false)::boolean AS paused,
  EXISTS (SELECT FROM onceq.running AS r WHERE r.queue = w.queue)::boolean AS runs,
  (extract(epoch FROM clock_timestamp() - first.ready_at) * 1000000)::bigint AS oldest_us
FROM waiting AS w
CROSS JOIN LATERAL (
  SELECT min(f.ready_at) AS ready_at
  FROM generate_series(0, 100) AS pr (priority)
  CROSS JOIN LATERAL (
    SELECT p.ready_at
    FROM onceq.pending AS p
    WHERE p.queue = w.queue AND p.priority = pr.priority::smallint AND p.ready_at <= clock_timestamp()
    ORDER BY p.ready_at
    LIMIT 1
  ) AS f
) AS first
LEFT JOIN onceq.queue AS q ON q.name = w.queue
WHERE w.queue IS NOT NULL AND first.ready_at IS NOT NULL
ORDER BY first.ready_at;

-- name: DoctorIndexes :many
-- DoctorIndexes lists the indexes that PostgreSQL doesn't use because building
-- them broke off.
SELECT i.relname::text AS name
FROM pg_catalog.pg_index AS x
JOIN pg_catalog.pg_class AS i ON i.oid = x.indexrelid
JOIN pg_catalog.pg_namespace AS n ON n.oid = i.relnamespace
WHERE n.nspname = @schema::text AND NOT (x.indisvalid AND x.indisready)
ORDER BY i.relname;
