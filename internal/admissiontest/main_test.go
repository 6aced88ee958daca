// Package admissiontest holds the promises of debounce, throttle, key life and
// purge, each tried from outside on a real PostgreSQL.
package admissiontest

import (
	"testing"

	"github.com/onceq/onceq/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }
