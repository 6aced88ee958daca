-- name: PreferIndexes :exec
-- PreferIndexes is for sessions that run a worker's statements and nothing else.
-- Every one of them is meant to follow an index, at any size of the tables. But
-- a plan that is made while a queue is empty, or while all in it is dead and kept
-- by an old snapshot, finds it as cheap to read everything, and a prepared
-- statement stays with it until autovacuum comes round: a minute and a million
-- jobs later. Where there is no index (expired leases) a table is read all the
-- same. Settings that a server doesn't know are left out.
SELECT set_config(s.name, CASE s.name WHEN 'plan_cache_mode' THEN 'force_generic_plan' ELSE 'off' END, false)
FROM pg_catalog.pg_settings AS s
WHERE s.name IN ('plan_cache_mode', 'enable_seqscan', 'enable_bitmapscan', 'enable_hashjoin', 'enable_mergejoin', 'jit');
