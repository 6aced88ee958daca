package queue

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/onceq/onceq/db"
)

// sent are the indexes of the leaders.
func (b *batch) sent() []int {
	sent := make([]int, 0, len(b.requests))
	for i, first := range b.leader {
		if first == i {
			sent = append(sent, i)
		}
	}
	return sent
}

// ids are the ids that the jobs of the leaders would have.
func (b *batch) ids(sent []int) []string {
	ids := make([]string, len(sent))
	for n, i := range sent {
		ids[n] = b.requests[i].id
	}
	return ids
}

// params are the leaders in the form of queries/enqueue_many.sql.
func (b *batch) params(sent []int) db.EnqueueManyParams {
	ps := make([]*prepared, len(sent))
	for n, i := range sent {
		ps[n] = b.requests[i]
		if s := b.sends(i); s != nil {
			ps[n] = s.folded()
		}
	}
	a := db.EnqueueManyParams{
		JobIds:              make([]pgtype.UUID, len(ps)),
		KeyHashes:           make([][]byte, len(ps)),
		RunAts:              column(ps, func(p *prepared) string { return orEmpty(instantText(p.request.RunAt)) }),
		Deadlines:           column(ps, func(p *prepared) string { return orEmpty(instantText(p.request.Deadline)) }),
		ExecutionTimeoutsUs: column(ps, func(p *prepared) int64 { return p.request.ExecutionTimeout.Microseconds() }),
		Priorities:          column(ps, func(p *prepared) int16 { return int16(p.request.Priority) }),
		MaxAttempts:         column(ps, func(p *prepared) int16 { return int16(p.request.MaxAttempts) }),
		Queues:              column(ps, func(p *prepared) string { return p.request.Queue }),
		Types:               column(ps, func(p *prepared) string { return p.request.Type }),
		Payloads:            column(ps, func(p *prepared) string { return p.payload }),
		Retries:             column(ps, func(p *prepared) string { return orEmpty(p.request.Retry.retryPolicy().stored()) }),
		Tags:                column(ps, func(p *prepared) string { return tagsText(p.request.Tags) }),
		ConcurrencyKeys:     column(ps, func(p *prepared) string { return p.request.ConcurrencyKey }),
		Modes:               column(ps, (*prepared).storedMode),
		Releases:            column(ps, func(p *prepared) int16 { return int16(p.admission.release) }),
		Scopes:              column(ps, func(p *prepared) string { return p.admission.scope }),
		KeyPreviews:         column(ps, func(p *prepared) string { return p.key.Preview }),
		KeyLengths:          column(ps, func(p *prepared) int16 { return int16(p.key.Length) }),
		KeyAliases:          column(ps, (*prepared).aliasesText),
		SlackUs:             b.slack().Microseconds(),
	}
	binds := make([]bind, 0, len(ps))
	for n, p := range ps {
		a.JobIds[n] = pgtype.UUID{Bytes: uuid.MustParse(p.id), Valid: true}
		a.KeyHashes[n] = p.hash()
		for _, hash := range p.hashes {
			binds = append(binds, bind{p, hash, int64(n + 1)})
		}
	}
	addBinds(&a, binds)
	return a
}

// slack is the shortest of all requests.
func (b *batch) slack() time.Duration {
	slack := maxSlack
	for _, p := range b.requests {
		slack = min(slack, p.slack())
	}
	return slack
}

// bind is one hash of a request that is sent at place ord.
type bind struct {
	*prepared
	hash []byte
	ord  int64
}

// addBinds adds the hashes in the order in which every statement locks them.
func addBinds(a *db.EnqueueManyParams, binds []bind) {
	slices.SortFunc(binds, func(x, y bind) int {
		if x.admission.scope != y.admission.scope {
			return cmp.Compare(x.admission.scope, y.admission.scope)
		}
		return bytes.Compare(x.hash, y.hash)
	})
	a.BindHashes, a.BindOrds, a.BindFingerprints = make([][]byte, len(binds)), make([]int64, len(binds)), make([][]byte, len(binds))
	for n, x := range binds {
		a.BindHashes[n], a.BindOrds[n], a.BindFingerprints[n] = x.hash, x.ord, x.fingerprint.stored()
	}
	a.BindModes = column(binds, func(x bind) int16 { return x.storedMode() })
	a.BindTtlsUs = column(binds, func(x bind) int64 { return x.admission.retention.Microseconds() })
	a.BindScopes = column(binds, func(x bind) string { return x.admission.scope })
}

// column is the values of all rows or, where they are equal, one that stands for
// all: most columns of most batches are, and reading a long array costs PostgreSQL
// more than anything else that they need.
func column[R any, T comparable](rows []R, of func(R) T) []T {
	values := []T{}
	alike := true
	for n, row := range rows {
		v := of(row)
		if alike && n > 0 {
			if v == values[0] {
				continue
			}
			alike = false
			values = append(make([]T, 0, len(rows)), slices.Repeat(values, n)...)
		}
		values = append(values, v)
	}
	return values
}

// whole is a column with a value for each of n rows.
func whole[T any](values []T, n int) []T {
	if len(values) == 1 {
		return slices.Repeat(values, n)
	}
	return values
}

func (p *prepared) storedMode() int16 { return int16(p.admission.mode) }

// aliasesText is the key's hashes under previous secrets as the text of an array,
// "" for none.
func (p *prepared) aliasesText() string {
	if len(p.hashes) < 2 {
		return ""
	}
	text := []byte("{")
	for n, hash := range p.hashes[1:] {
		if n > 0 {
			text = append(text, ',')
		}
		text = append(hex.AppendEncode(append(text, `"\\x`...), hash), '"')
	}
	return string(append(text, '}'))
}
