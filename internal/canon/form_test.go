package canon_test

import (
	"os"
	"strconv"
	"strings"
	"testing"
)

// TestAppend_form compares with vectors that must never change: databases hold
// digests of them.
func TestAppend_form(t *testing.T) {
	t.Parallel()
	file, err := os.ReadFile("testdata/form.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(file)) {
		line = strings.TrimSuffix(line, "\n")
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		text, want, ok := strings.Cut(line, " => ")
		if !ok {
			t.Fatalf("no arrow in %q", line)
		}
		if got := strconv.QuoteToASCII(string(form(t, text))); got != want {
			t.Errorf("the form of %s\n got %s\nwant %s", text, got, want)
		}
	}
}
