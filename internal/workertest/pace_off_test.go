//go:build !race

package workertest_test

// pace stretches the times that a healthy machine has to keep.
const pace = 1
