package queue

// Outcome is what was decided about a request.
type Outcome string

const (
	// OutcomeAccepted tells that the request made a new job.
	OutcomeAccepted Outcome = "accepted"
	// OutcomeReplayed tells that the same request had been accepted before under
	// its key. Nothing was written; JobID is the job of the first acceptance.
	OutcomeReplayed Outcome = "replayed"
	// OutcomeReplaced tells that a debounced job which had not started took the
	// new definition and kept its id.
	OutcomeReplaced Outcome = "replaced"
	// OutcomeNonReplaceable tells that a debounced request was refused because
	// the job that owns its key can't be replaced; Reason says why.
	OutcomeNonReplaceable Outcome = "non_replaceable"
	// OutcomeCoalesced tells that an equal request had been accepted earlier in
	// the window of a throttle. Nothing was written.
	OutcomeCoalesced Outcome = "coalesced"
)

// NonReplaceableReason says why a debounced request could not replace the job
// that owns its key.
type NonReplaceableReason string

const (
	// ReasonIncompatibleMode tells that the key is owned under another admission.
	ReasonIncompatibleMode NonReplaceableReason = "incompatible_mode"
	// ReasonNotPending tells that the job has started, has ended, or is gone.
	ReasonNotPending NonReplaceableReason = "not_pending"
	// ReasonWindowElapsed tells that the window is over and the job still waits
	// to be claimed.
	ReasonWindowElapsed NonReplaceableReason = "window_elapsed"
)

// Result is the answer to a request that was not refused.
type Result struct {
	// JobID is the job that stands for the request: a new one when Outcome is
	// accepted, otherwise the one that its key already names. Never empty.
	JobID JobID
	// Outcome is what was decided.
	Outcome Outcome
	// Reason is set only when Outcome is non_replaceable.
	Reason NonReplaceableReason
	// Dead tells that the named job has died or been cancelled while its key
	// still answers for it: nothing more will happen by itself.
	Dead bool
}

// State is where a job stands.
type State string

// The states of a job; the last three are terminal. PostgreSQL's clock tells
// scheduled from ready.
const (
	StateScheduled State = "scheduled"
	StateReady     State = "ready"
	StateRunning   State = "running"
	StateSucceeded State = "succeeded"
	StateDead      State = "dead"
	StateCancelled State = "cancelled"
)
