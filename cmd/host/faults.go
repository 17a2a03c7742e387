package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/carrelhost/carrel"
)

// withFaults returns an error of this machine's own checks as a host would
// show it: message and every fault, one a line.
func withFaults(path string, err error) error {
	e, ok := errors.AsType[*carrel.Error](err)
	if !ok {
		return fmt.Errorf("%s: %w", path, err)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s: %s", path, e.Code, e.Msg)
	for _, f := range e.Faults {
		fmt.Fprintf(&b, "\n  %s: %s", f.Pointer, f.Message)
	}
	return &shownAs{text: b.String(), err: err}
}

// shownAs is an error with another text.
type shownAs struct {
	text string
	err  error
}

func (s *shownAs) Error() string { return s.text }
func (s *shownAs) Unwrap() error { return s.err }
