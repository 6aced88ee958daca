package queue

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"time"
)

const (
	// jobPage is how many jobs one statement reads; with payloads, which may have
	// 16 MiB each, payloadPage.
	jobPage     = 100
	payloadPage = 10
	// fewJobs bounds the jobs of a state that are found all at once.
	fewJobs = 10_000
)

// Jobs lists jobs, newest first: in the order of their ids, which is that in which
// clients made the requests. It reads pages of 100 jobs, or of 10 with payloads,
// and holds no connection while the caller looks at one. Jobs that are accepted
// meanwhile are not shown, those that go are not missed, and no job is shown
// twice. An error is the last thing it yields.
//
// It looks at no more than 2,000 jobs in one statement. A filter that few jobs
// pass needs many: Since bounds them. Ids tell times by the clients' clocks, so
// with Since or Until a job of a client whose clock was off by more than an hour
// can be missing.
func (c *Client) Jobs(ctx context.Context, f JobFilter) iter.Seq2[JobInfo, error] {
	return func(yield func(JobInfo, error) bool) {
		l := lister{c: c, filter: f, at: func(job JobInfo) time.Time { return job.AcceptedAt }, begin: c.walkJobs}
		if err := l.run(ctx, yield); err != nil {
			yield(JobInfo{}, fmt.Errorf("queue: jobs: %w", classify(err)))
		}
	}
}

// DeadLetters lists dead jobs, the newest death first, in the manner of Jobs. The
// filter's State is ignored, its Since and Until bound the deaths.
func (c *Client) DeadLetters(ctx context.Context, f JobFilter) iter.Seq2[JobInfo, error] {
	f.State = StateDead
	return func(yield func(JobInfo, error) bool) {
		l := lister{c: c, filter: f, at: func(job JobInfo) time.Time { return job.FinishedAt }, begin: c.walkDead}
		if err := l.run(ctx, yield); err != nil {
			yield(JobInfo{}, fmt.Errorf("queue: dead letters: %w", classify(err)))
		}
	}
}

// lister yields the jobs whose ids a walk finds.
type lister struct {
	c      *Client
	filter JobFilter
	at     func(JobInfo) time.Time // what Since and Until bound
	begin  func(context.Context, JobFilter) (idWalk, error)
}

// idWalk is the next step of a walk: some ids that fit, and whether it has ended.
type idWalk func(ctx context.Context) (ids []string, end bool, err error)

// run ends with an error only while the caller still wants more.
func (l lister) run(ctx context.Context, yield func(JobInfo, error) bool) error {
	var wrong problems
	wrong.filter(l.filter)
	if err := wrong.err(); err != nil {
		return err
	}
	if err := l.c.checkSchema(ctx, l.c.own); err != nil {
		return err
	}
	next, err := l.begin(ctx, l.filter)
	if err != nil {
		return err
	}
	for end := false; !end; {
		var ids []string
		if ids, end, err = next(ctx); err != nil {
			return err
		}
		if more, err := l.show(ctx, ids, yield); err != nil || !more {
			return err
		}
	}
	return nil
}

// show yields jobs page by page; false tells that the caller wants no more.
func (l lister) show(ctx context.Context, ids []string, yield func(JobInfo, error) bool) (bool, error) {
	size := jobPage
	if l.filter.WithPayload {
		size = payloadPage
	}
	for len(ids) > 0 {
		n := min(size, len(ids))
		page, err := l.page(ctx, ids[:n])
		if err != nil {
			return false, err
		}
		ids = ids[n:]
		for _, job := range page {
			if !yield(job, nil) {
				return false, nil
			}
		}
	}
	return true, nil
}

// page reads those of the jobs that are there and fit still.
func (l lister) page(ctx context.Context, ids []string) ([]JobInfo, error) {
	rows, err := l.c.jobRows(ctx, ids)
	if err != nil {
		return nil, err
	}
	payloads := map[string]json.RawMessage{}
	if l.filter.WithPayload {
		if payloads, err = l.c.payloads(ctx, ids); err != nil {
			return nil, err
		}
	}
	page := make([]JobInfo, 0, len(rows))
	for _, row := range rows {
		job, err := jobInfo(row)
		if err != nil {
			return nil, err
		}
		job.Payload = payloads[row.ID]
		if l.filter.passes(job, l.at(job)) {
			page = append(page, job)
		}
	}
	return page, nil
}
