-- name: Wake :exec
-- Wake tells listening workers that a queue may have gained ready work. It is a
-- hint: polling is what makes delivery sure.
SELECT pg_notify(@channel::text, @queue::text);
