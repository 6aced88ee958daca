// Package queuetest_test holds the promises of idempotent enqueue, one file a
// noun, each tried from outside on a real PostgreSQL. It is a folder of its own
// so that what tests need never reaches a program that imports pkg/queue.
package queuetest_test

import (
	"testing"

	"github.com/onceq/onceq/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }
