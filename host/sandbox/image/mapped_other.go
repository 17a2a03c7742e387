//go:build !linux

package image

import "errors"

// openMapped is for Linux.
func openMapped([]byte, int, Method) (source, error) {
	return nil, errors.New("needs Linux")
}
