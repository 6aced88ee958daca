package canon

import (
	"errors"
	"strings"
	"testing"
)

func TestAppend_WrittenOut(t *testing.T) {
	t.Parallel()
	list := func(n int) []byte { return []byte("[" + strings.Repeat("1e131071,", n-1) + "1e131071]") }
	for name, row := range map[string]struct {
		text   []byte
		reason string
		why    string
	}{
		"some long numbers":     {list(255), "", "255 numbers of 131,072 digits are below 32 MiB"},
		"too many long numbers": {list(257), reasonWritten, "257 such numbers are 33.7 million digits, from a text of 2 kB"},
		"long fractions":        {[]byte("[" + strings.Repeat("1e-16383,", 2048) + "1e-16383]"), reasonWritten, "2,049 fractions of 16,383 places"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Append(nil, row.text)
			var refused *Error
			if row.reason == "" && err != nil {
				t.Errorf("%s; refused: %v", row.why, err)
			}
			if row.reason != "" && (!errors.As(err, &refused) || refused.Reason != row.reason) {
				t.Errorf("%s; got %v", row.why, err)
			}
		})
	}
}
