package queue

import (
	"hash/maphash"
	"sync/atomic"
)

// repeatsInARow is how many requests of a scope in a row must have met a live
// binding before the next one is looked up first. A look-up that finds nothing
// costs a second round trip and breaks the row, so of a scope's requests at most
// one in seventeen pays it.
const repeatsInARow = 16

// repeats counts, for each scope, the requests in a row that met a live binding.
// It is a hint about which statement will be cheaper, never an answer. Scopes that
// fall on one counter share it, so that the room it takes is fixed.
type repeats struct{ counts [256]atomic.Int32 }

// scopes makes it this process's affair which scopes share a counter.
var scopes = maphash.MakeSeed()

func (r *repeats) of(scope string) *atomic.Int32 {
	return &r.counts[maphash.String(scopes, scope)%uint64(len(r.counts))]
}

// likely tells that the next request of a scope will likely meet a live binding.
func (r *repeats) likely(scope string) bool { return r.of(scope).Load() >= repeatsInARow }

// note takes down what a request of a scope has met.
func (r *repeats) note(scope string, repeated bool) {
	count := r.of(scope)
	switch {
	case !repeated:
		count.Store(0)
	case count.Load() < repeatsInARow:
		count.Add(1)
	}
}

// likelyRepeat tells that a request is better looked up first: it has a key, of a
// scope whose last requests were all repeats, under one hash and not debounced.
func (c *Client) likelyRepeat(p *prepared) bool {
	return len(p.hashes) == 1 && p.admission.mode != modeDebounce && c.repeats.likely(p.admission.scope)
}
