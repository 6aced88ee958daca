// Package racetest holds the heavy proofs of idempotent enqueue: many callers at
// once, callers that die, and what PostgreSQL itself says about a request's
// effects. What one caller alone can see is tried in internal/queuetest.
//
// Under the race detector the rounds are a fifth: see race_on_test.go.
package racetest

import (
	"testing"

	"github.com/onceq/onceq/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }
