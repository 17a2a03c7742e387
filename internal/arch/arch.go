// Package arch holds the test of the floors: which package may import which.
// The table is in ARCHITECTURE.md as well.
package arch
