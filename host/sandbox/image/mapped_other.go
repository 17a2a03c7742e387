//go:build !linux || portable

package image

import "errors"

// openMapped is for Linux.
func openMapped([]byte, int, Method) (source, error) {
	return nil, errors.New("needs Linux, and a build without the tag portable")
}
