package devpg

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv(envOrphan) != "" {
		beOrphaned()
	}
	goleak.VerifyTestMain(m)
}
