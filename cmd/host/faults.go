package main

import (
	"errors"
	"fmt"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/client"
)

// withFaults returns an error of this machine's own checks as a host would
// show it: message and every fault, one a line.
func withFaults(path string, err error) error {
	e, ok := errors.AsType[*carrel.Error](err)
	if !ok {
		return fmt.Errorf("%s: %w", path, err)
	}
	return &shownAs{text: path + ": " + problemOf(e).Error(), err: err}
}

// problemOf is an error of this machine's own as a host would send it.
func problemOf(e *carrel.Error) *client.Problem {
	return &client.Problem{Code: e.Code.String(), Detail: e.Msg, GuestCode: e.GuestCode, Errors: e.Faults}
}

// shownAs is an error with another text.
type shownAs struct {
	text string
	err  error
}

func (s *shownAs) Error() string { return s.text }
func (s *shownAs) Unwrap() error { return s.err }
