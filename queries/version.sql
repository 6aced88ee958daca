-- name: HasVersionTable :one
-- HasVersionTable asks whether the schema was ever migrated. It can't fail for
-- want of the table, so it is safe inside a caller's transaction.
SELECT (to_regclass('onceq.goose_version') IS NOT NULL)::boolean AS present;

-- name: SchemaVersion :one
-- SchemaVersion is the number of the newest migration applied, 0 for none.
SELECT coalesce(max(v.version_id), 0)::bigint AS version
FROM onceq.goose_version AS v
WHERE v.is_applied;
