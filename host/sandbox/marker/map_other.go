//go:build !unix

package marker

import (
	"errors"
	"os"
)

// mapShared is for Unix. A write to a file for each call would cost more than
// the call.
func mapShared(*os.File, int) ([]byte, error) { return nil, errors.ErrUnsupported }

func unmap([]byte) error { return errors.ErrUnsupported }

func entriesOf([]byte) []entry { return nil }
