package queue_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onceq/onceq/pkg/queue"
)

type Order struct {
	ID     string `json:"id"`
	Amount int64  `json:"amount"`
}

// The second click returns the first job's id and writes nothing.
func Example() {
	order := Order{ID: "ord_1001", Amount: 4200}
	req := queue.Request{
		Type:      "order.place",
		Payload:   order,
		Admission: queue.Idempotency{Key: order.ID, Scope: "orders"},
	}

	first, err := client.EnqueueWithResult(ctx, req)
	if err != nil {
		panic(err)
	}
	second, err := client.EnqueueWithResult(ctx, req)
	if err != nil {
		panic(err)
	}
	fmt.Println(first.Outcome, second.Outcome, first.JobID == second.JobID)

	// The same key with another amount is a different request.
	req.Payload = Order{ID: "ord_1001", Amount: 9900}
	_, err = client.EnqueueWithResult(ctx, req)
	var conflict *queue.EnqueueIdempotencyConflictError
	if errors.As(err, &conflict) {
		fmt.Println(conflict.Fields, conflict.JobID == first.JobID)
	}
	// Output:
	// accepted replayed true
	// [payload] true
}

// The job and the caller's own row commit together or not at all.
func ExampleClient_EnqueueTx() {
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "CREATE TABLE orders (id text PRIMARY KEY)"); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "INSERT INTO orders VALUES ('ord_1002')"); err != nil {
			return err
		}
		res, err := client.EnqueueTx(ctx, tx, queue.Request{
			Type:      "order.place",
			Payload:   Order{ID: "ord_1002", Amount: 100},
			Admission: queue.Idempotency{Key: "ord_1002", Scope: "orders"},
		})
		fmt.Println(res.Outcome)
		return err
	})
	fmt.Println(err)
	// Output:
	// accepted
	// <nil>
}

// A batch is all or nothing; repeats inside it share one job.
func ExampleClient_EnqueueMany() {
	delivery := func(id string) queue.Request {
		return queue.Request{Type: "webhook.received", Payload: id, Admission: queue.Idempotency{Key: id, Scope: "webhooks"}}
	}
	results, err := client.EnqueueMany(ctx, []queue.Request{delivery("evt_1"), delivery("evt_2"), delivery("evt_1")})
	if err != nil {
		panic(err)
	}
	for _, res := range results {
		fmt.Println(res.Outcome)
	}
	fmt.Println(results[0].JobID == results[2].JobID)
	// Output:
	// accepted
	// accepted
	// replayed
	// true
}

// A document is indexed once its edits have come to rest: each one replaces the
// job that waits, and the last is what is worked on.
func ExampleDebounce() {
	var last queue.Result
	for _, text := range []string{"H", "Hello", "Hello, world"} {
		var err error
		last, err = client.EnqueueWithResult(ctx, queue.Request{
			Type:    "document.index",
			Payload: text,
			Admission: queue.Debounce{
				Key:      "doc_1",
				Window:   time.Minute,      // after the last edit,
				MaxWait:  10 * time.Minute, // but no later than this after the first.
				FollowUp: true,             // An edit during the run asks for another.
			},
		})
		if err != nil {
			panic(err)
		}
		fmt.Println(last.Outcome)
	}
	job, err := client.Job(ctx, last.JobID)
	if err != nil {
		panic(err)
	}
	fmt.Println(job.State, string(job.Payload))
	// Output:
	// accepted
	// replaced
	// replaced
	// scheduled "Hello, world"
}

// However often it is asked for, one reminder goes out in a day.
func ExampleThrottle() {
	req := queue.Request{
		Type:      "reminder.send",
		Payload:   "customer_7",
		Admission: queue.Throttle{Key: "customer_7", Scope: "reminders", Window: 24 * time.Hour},
	}
	for range 2 {
		res, err := client.EnqueueWithResult(ctx, req)
		if err != nil {
			panic(err)
		}
		fmt.Println(res.Outcome)
	}
	// Output:
	// accepted
	// coalesced
}

// Whether two requests would match can be asked without a database.
func ExampleFingerprint_Diff() {
	a, err := queue.Request{Type: "order.place", Payload: map[string]any{"amount": 1}, Tags: []string{"eu", "web"}}.Fingerprint()
	if err != nil {
		panic(err)
	}
	b, err := queue.Request{Type: "order.place", Payload: map[string]any{"amount": 2}, Tags: []string{"web", "eu"}}.Fingerprint()
	if err != nil {
		panic(err)
	}
	fmt.Println(a.Diff(b))
	// Output:
	// [payload]
}

// A worker runs handlers until its context ends, then drains.
func ExampleWorker() {
	worker, err := queue.NewWorker(client, queue.WorkerConfig{Queues: map[string]int{"mail": 10}})
	if err != nil {
		panic(err)
	}
	running, stop := context.WithCancel(ctx)
	queue.Handle(worker, "order.confirm", func(ctx context.Context, job *queue.Job[Order]) error {
		// After a crash the handler runs again, and the stage is not repeated.
		receipt, err := queue.Checkpoint(ctx, job, "send", func(ctx context.Context) (string, error) {
			return "receipt for " + job.Payload.ID, nil
		})
		fmt.Println(receipt)
		stop()
		return err
	})
	_, err = client.Enqueue(ctx, queue.Request{Type: "order.confirm", Queue: "mail", Payload: Order{ID: "ord_1003"}})
	if err != nil {
		panic(err)
	}
	fmt.Println(worker.Run(running))
	// Output:
	// receipt for ord_1003
	// <nil>
}
