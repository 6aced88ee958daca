//go:build !linux

package devpg

import "os"

// memoryMount is where abandoned folders are looked for besides the usual
// place. There is no other here.
var memoryMount = os.DevNull

// memoryFolder returns a file system in memory, or "" if there is none.
func memoryFolder() string { return "" }
