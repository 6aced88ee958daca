//go:build generate

// Package onceq holds nothing but the go:generate lines of the repository. The
// generate tag is set by `go generate` alone, so no build ever compiles this
// file; the tools it runs are pinned in internal/tools/go.mod.
package onceq

//go:generate go tool -modfile=internal/tools/go.mod sqlc generate
