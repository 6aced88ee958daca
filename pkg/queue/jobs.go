package queue

import (
	"context"
	"errors"
	"iter"
)

// Jobs lists jobs, newest first.
func (c *Client) Jobs(ctx context.Context, f JobFilter) iter.Seq2[JobInfo, error] {
	return func(yield func(JobInfo, error) bool) { yield(JobInfo{}, errors.ErrUnsupported) }
}

// DeadLetters lists dead jobs, the newest death first. The filter's State is ignored.
func (c *Client) DeadLetters(ctx context.Context, f JobFilter) iter.Seq2[JobInfo, error] {
	return func(yield func(JobInfo, error) bool) { yield(JobInfo{}, errors.ErrUnsupported) }
}
