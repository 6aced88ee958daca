-- name: ReadClock :one
-- ReadClock reads PostgreSQL's clock for a walk that leaves alone what happens
-- after it began, so that it ends however much happens meanwhile. Times of a walk
-- cross as text that every session reads alike: Go's microseconds don't reach
-- PostgreSQL's last years.
SELECT to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US"+00"')::text AS at;
