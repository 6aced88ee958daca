package queue_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/onceq/onceq/pkg/queue"
)

// A dead letter's work runs again as a new job, once for each order, however
// often the order is sent.
func ExampleClient_Redrive() {
	_, err := client.Enqueue(ctx, queue.Request{Type: "report.mail", Queue: "reports", Deadline: time.Now().Add(-time.Minute)})
	if err != nil {
		panic(err)
	}
	if _, err := client.Maintain(ctx); err != nil { // workers do it by themselves
		panic(err)
	}
	for dead, err := range client.DeadLetters(ctx, queue.JobFilter{Queue: "reports"}) {
		if err != nil {
			panic(err)
		}
		fmt.Println(dead.Type, dead.State, dead.LastError)
		for range 2 {
			res, err := client.Redrive(ctx, queue.RedriveRequest{
				JobID: dead.ID, RequestID: "incident 42", Actor: "oncall", Reason: "late is better than never",
			})
			fmt.Println(res.Status, err)
		}
	}
	// Output:
	// report.mail dead deadline exceeded
	// redriven <nil>
	// replayed <nil>
}

// All dead letters that fit, oldest first; a dry run tells how many there are.
func ExampleClient_RedriveMany() {
	req := queue.RedriveManyRequest{
		Filter:    queue.JobFilter{Queue: "nobody's", Error: "timeout", Since: time.Now().Add(-24 * time.Hour)},
		RequestID: "incident 43", Actor: "oncall", Reason: "the mail server is back", Limit: 5000,
		DryRun: true,
	}
	res, err := client.RedriveMany(ctx, req)
	fmt.Println(res.Redriven, res.AtLimit, err)
	// Output:
	// 0 false <nil>
}

// A scheduled job need not wait for its time.
func ExampleClient_RunNow() {
	id, err := client.Enqueue(ctx, queue.Request{Type: "newsletter.send", RunAt: time.Now().Add(time.Hour)})
	if err != nil {
		panic(err)
	}
	fmt.Println(client.RunNow(ctx, id))
	job, err := client.Job(ctx, id)
	fmt.Println(job.State, err)
	fmt.Println(errors.Is(client.RunNow(ctx, id), queue.ErrNotScheduled))
	// Output:
	// <nil>
	// ready <nil>
	// true
}
