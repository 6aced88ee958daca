//go:build race

package workertest_test

// pace stretches the times that a healthy machine has to keep: the race
// detector makes it several times slower.
const pace = 4
