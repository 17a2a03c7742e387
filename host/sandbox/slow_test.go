//go:build race

package sandbox_test

// slowness is how much longer everything may take: the race detector watches
// each byte of the stacks that a runaway recursion fills.
const slowness = 10
