package canon_test

import (
	"testing"

	"github.com/onceq/onceq/internal/canon"
)

// payload is what a queue is often given: about 200 bytes, written by
// json.Marshal of a struct, so not in the order of names.
const payload = `{"tenant":"acme","order_id":8231904,"customer":{"id":"c_1834","email":"jo@example.com"},` +
	`"amount":"129.90","currency":"EUR","lines":[{"sku":"A-1","qty":2},{"sku":"B-7","qty":1}],"note":"caf\u00e9"}`

// It is not parallel, because AllocsPerRun must not be.
func TestAppend_allocations(t *testing.T) {
	dst := make([]byte, 0, 512)
	got := testing.AllocsPerRun(100, func() {
		if _, err := canon.Append(dst, payload); err != nil {
			t.Fatal(err)
		}
	})
	if got > 0 {
		t.Errorf("%v allocations for a payload of %d bytes, want none", got, len(payload))
	}
}

func BenchmarkAppend(b *testing.B) {
	dst := make([]byte, 0, 512)
	b.SetBytes(int64(len(payload)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := canon.Append(dst, payload); err != nil {
			b.Fatal(err)
		}
	}
}
