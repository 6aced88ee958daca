// Package queue enqueues a job once, however often its request is repeated, on
// PostgreSQL.
//
// A request carries a key that names the business operation: the id of an order,
// of a webhook's event, of a payment. The first request with a key is accepted
// and makes a job. Every equal repeat (a double click, a redelivery, a client
// that did not hear the answer) is replayed: it returns the first job's id and
// writes nothing. A repeat that is really a different request is refused with an
// [EnqueueIdempotencyConflictError] that names the job and the fields in which
// the two differ.
//
//	res, err := client.EnqueueWithResult(ctx, queue.Request{
//		Type:      "order.place",
//		Payload:   order,
//		Admission: queue.Idempotency{Key: order.ID},
//	})
//
// # Keys
//
// A key belongs to a scope; put the feature in the scope and, where there are
// tenants, the tenant too. Only a 32-byte hash of scope and key is stored, keyed
// with [Config].KeySecret when there is one. The key itself is in no table, log,
// error or statement; people see a [KeyRef]. See [Admission] for its bounds.
//
// A key is owned until its TTL has passed by PostgreSQL's clock, counted from
// the acceptance. The next request after that takes it over; nothing has to
// clean up first.
//
// # What makes a request different
//
// Everything but the key, the scope and what was left out: [Request].Fingerprint
// lists it, and [Fingerprint].Diff tells, without a database, what a conflict
// between two requests would name. Payloads are compared as PostgreSQL compares
// jsonb: spacing and member order don't matter, every digit does.
//
// # Transactions
//
// [Client].EnqueueTx works inside the caller's transaction, pgx's own or, through
// [SQLTx], one of database/sql: job and business rows commit together or not at
// all. A second request with the same key waits for the first transaction to
// end, then replays, or is accepted if that one was rolled back. It is right
// under READ COMMITTED, REPEATABLE READ and SERIALIZABLE; where PostgreSQL
// refuses to fit a transaction in, ErrRetryTransaction says so.
//
// # Workers
//
// [NewWorker] returns a worker, [Handle] gives it the handler of a job type, and
// [Worker.Run] claims jobs and runs their handlers until its context ends. A
// handler runs at least once for every job: after a crash or a lost lease it runs
// again. [Checkpoint] and [CheckpointTx] keep a finished stage from being repeated,
// [CompleteTx] commits the job's end with the handler's own rows. A failed attempt
// is followed by another, as the request's Retry says, or [RetryAfter]; with its
// attempts used up, or a [Permanent] error, the job is a dead letter.
//
// # Operators
//
// [Client].Jobs, DeadLetters, Events, Binding, Stats and Health show what is there,
// at a cost that doesn't grow with it. [Client].Redrive and RedriveMany run dead
// letters again, once for each order; RunNow, Cancel, Purge, PauseQueue and SetQueue
// do what their names say. The command onceq has all of them.
//
// # How it decides
//
// One SQL statement decides an everyday request, in one round trip: see
// queries/enqueue.sql. A batch is decided as a whole by queries/enqueue_many.sql.
// The primary key of the table binding is the only arbiter, so no two processes
// can both make the job, whatever their clocks say.
package queue
