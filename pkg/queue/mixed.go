package queue

import (
	"context"
	"time"

	"github.com/onceq/onceq/db"
)

// decideMixed is the decision about a batch in which some request is debounced,
// in queries/debounce_many.sql. plain is what the statement has in common with
// the one for other batches.
func (b *batch) decideMixed(ctx context.Context, q *db.Queries, plain db.EnqueueManyParams, sent []int, wake wakeRight) ([]Result, error) {
	rows, err := q.DebounceMany(ctx, b.mixedParams(plain, sent))
	if err != nil {
		wake.done(0, false)
		return nil, err
	}
	met, told, ages := b.read(sent, rows[1:])
	results, made, err := b.answers(met, told)
	if fit := b.cut(told, ages); err == nil && (!rows[0].Settled || !fit) {
		err = errUnsettled
	}
	wake.done(rows[0].Wakes, err == nil && made)
	if err != nil {
		return nil, err
	}
	if rows[0].Waited {
		err = q.RestartWindows(ctx, db.RestartWindowsParams{KeyHashes: plain.BindHashes, JobIds: b.ids(sent)})
	}
	return results, err
}

func (b *batch) mixedParams(a db.EnqueueManyParams, sent []int) db.DebounceManyParams {
	n, binds := len(sent), len(a.BindOrds)
	m := db.DebounceManyParams{
		JobIds: b.ids(sent), RunAts: whole(a.RunAts, n), Deadlines: whole(a.Deadlines, n), ExecutionTimeoutsUs: whole(a.ExecutionTimeoutsUs, n),
		Priorities: whole(a.Priorities, n), MaxAttempts: whole(a.MaxAttempts, n), Queues: whole(a.Queues, n), Types: whole(a.Types, n),
		Payloads: whole(a.Payloads, n), Retries: whole(a.Retries, n), Tags: whole(a.Tags, n), ConcurrencyKeys: whole(a.ConcurrencyKeys, n),
		Modes: whole(a.Modes, n), Releases: whole(a.Releases, n), Scopes: whole(a.Scopes, n), KeyPreviews: whole(a.KeyPreviews, n),
		KeyLengths: whole(a.KeyLengths, n), KeyHashes: a.KeyHashes, KeyAliases: whole(a.KeyAliases, n),
		BindHashes: a.BindHashes, BindOrds: a.BindOrds, BindModes: whole(a.BindModes, binds), BindTtlsUs: whole(a.BindTtlsUs, binds),
		BindScopes: whole(a.BindScopes, binds), BindFingerprints: a.BindFingerprints,
		Refused: a.Refused, Wake: a.Wake, WakeQueues: a.WakeQueues, SlackUs: a.SlackUs, Alone: a.Alone,
	}
	none := &series{followAt: -1}
	for _, i := range sent {
		s := b.sends(i)
		if s == nil {
			s = none
		}
		m.TtlsUs = append(m.TtlsUs, s.fresh.Microseconds())
		m.FollowsUs = append(m.FollowsUs, s.follow.Microseconds())
		m.FollowTurns = append(m.FollowTurns, int32(s.followAt+1))
		m.Digests = append(m.Digests, s.digests())
	}
	for _, ord := range a.BindOrds {
		i := sent[ord-1]
		m.BindJobIds = append(m.BindJobIds, b.requests[i].id)
		s := b.sends(i)
		if s == nil {
			s = none
		}
		m.BindFollowsUs = append(m.BindFollowsUs, s.follow.Microseconds())
		m.BindHolds = append(m.BindHolds, s.hold)
		m.BindWindowsUs = append(m.BindWindowsUs, s.window.Microseconds())
		m.BindMaxWaitsUs = append(m.BindMaxWaitsUs, s.maxWait.Microseconds())
		m.BindCutsUs = append(m.BindCutsUs, s.cut.Microseconds())
	}
	return m
}

// cut prepares another try: series that must end early are cut short for it, and
// whole again where that no longer fits, because the job does not wait any more.
// It reports whether what was sent fits the answer.
func (b *batch) cut(told map[int]Result, ages map[int]time.Duration) (fit bool) {
	fit = true
	for i := range b.short {
		if told[i].Outcome != OutcomeReplaced {
			delete(b.short, i)
			fit = false
		}
	}
	for i, age := range ages {
		b.short[i] = b.series[i].until(age)
	}
	return fit
}

// sends is the series that is sent for a leader, nil for one that is not debounced.
func (b *batch) sends(i int) *series {
	if s := b.short[i]; s != nil {
		return s
	}
	return b.series[i]
}

// read sorts the answer's rows: the live bindings met by leaders that are not
// debounced, what is said to those that are, and how old the bindings are of
// those that have to be cut short.
func (b *batch) read(sent []int, rows []db.DebounceManyRow) (met []held, told map[int]Result, ages map[int]time.Duration) {
	met, told, ages = make([]held, len(b.requests)), map[int]Result{}, map[int]time.Duration{}
	for _, row := range rows {
		i := sent[row.Ord-1]
		switch row.Answer {
		case "held":
			met[i] = met[i].or(held{jobID: row.HeldJobID, mode: &row.HeldMode, dead: &row.HeldDead,
				expiresAt: row.HeldExpiresAt, fingerprint: row.HeldFingerprint})
		case "cut":
			ages[i] = time.Duration(row.AgeUs) * time.Microsecond
		case string(OutcomeReplaced):
			told[i] = Result{JobID: JobID(row.HeldJobID), Outcome: OutcomeReplaced}
		default:
			told[i] = Result{JobID: JobID(row.HeldJobID), Outcome: OutcomeNonReplaceable, Reason: NonReplaceableReason(row.Answer), Dead: row.HeldDead}
		}
	}
	return met, told, ages
}
