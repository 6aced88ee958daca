// Package arch holds the tests that keep the house in order: who may import
// whom, which modules a user's program gets, that what the documents show is
// what runs, and that files stay small. It has no code of its own.
package arch
