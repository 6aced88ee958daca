package queue

import (
	"time"
)

// JobFilter says which jobs to list. What is given must all fit; the zero value
// lists all.
type JobFilter struct {
	// Queue and Type are compared as they are. Empty is no restriction.
	Queue, Type string
	// Tag is one that the job must have. Empty is no restriction.
	Tag string
	// State is where the job must stand. Empty is no restriction.
	State State
	// Since and Until bound the time of the acceptance, or for dead letters that of
	// the death: not before Since, and before Until. Zero is no bound.
	Since, Until time.Time
	// Error is a part of the error that an ended job left behind, compared as it
	// is: at most 1,000 bytes. Empty is no restriction.
	Error string
	// WithPayload reads payloads too.
	WithPayload bool
}
