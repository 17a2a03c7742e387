//go:build !linux || portable

package image

import (
	"errors"
	"io"
)

// openMapped is for Linux.
func openMapped(int, int, Method, func(io.WriterAt) error) (source, error) {
	return nil, errors.New("needs Linux, and a build without the tag portable")
}
