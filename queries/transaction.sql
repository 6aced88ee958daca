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
