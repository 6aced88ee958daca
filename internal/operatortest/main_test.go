// Package operatortest holds the promises made to operators: dead letters and
// redrive, lists and counts, run now, retention and roles, each tried from outside
// on a real PostgreSQL.
package operatortest

import (
	"testing"

	"github.com/onceq/onceq/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }
