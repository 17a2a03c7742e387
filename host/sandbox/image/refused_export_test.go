//go:build linux && !portable

package image

// Refused says what an answer of the system means.
func Refused(what string, size int, err error) error { return refused(what, size, err) }
