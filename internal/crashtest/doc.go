// Package crashtest holds the proofs that need real processes and real servers:
// workers killed and paused at any moment, PostgreSQL stopped and started under
// load, and claims beside millions of jobs. It has tests only.
//
// A worker process is this package's test binary, started again (worker_test.go).
package crashtest
