//go:build !race

package sandbox_test

// slowness is how much longer everything may take.
const slowness = 1
