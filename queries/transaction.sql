-- name: Savepoint :exec
-- Savepoint marks the place in a caller's transaction that a batch returns to
-- when it is refused or has to ask again.
SAVEPOINT onceq_batch;

-- name: RollbackToSavepoint :exec
-- RollbackToSavepoint undoes what came after Savepoint, and keeps the mark.
ROLLBACK TO SAVEPOINT onceq_batch;

-- name: ReleaseSavepoint :exec
-- ReleaseSavepoint forgets the mark.
RELEASE SAVEPOINT onceq_batch;

-- name: PlanByIndex :exec
-- PlanByIndex keeps the rest of the running transaction to index scans, and from
-- compiling. A list or a count stops after a bounded piece of an index; a plan
-- that reads and sorts the whole range instead looks as cheap to a planner whose
-- statistics are behind.
SELECT set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true), set_config('jit', 'off', true);
