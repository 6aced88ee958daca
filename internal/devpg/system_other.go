//go:build !unix

package devpg

import (
	"os"
	"os/exec"
)

// account has no use here: PostgreSQL gives up an administrator's rights by
// itself on Windows.
type account struct{}

func serverAccount() (*account, error) { return nil, nil }

func (a *account) own(string) error { return nil }

func (a *account) String() string { return "the current user" }

func prepare(*exec.Cmd, *account, *os.File) {}
