package carrel

import (
	"errors"
	"strings"

	"github.com/carrelhost/carrel/abi"
)

// Error is a failure of the plugin's own. A handler that returns one fails the
// call: the caller sees guest_failed with Code as guestCode and Message as
// detail.
type Error struct {
	Code    string // ^[a-z_]{1,64}$, the plugin's own vocabulary
	Message string // for the caller
}

// Fail returns an *Error.
func Fail(code, message string) error { return &Error{Code: code, Message: message} }

// Error returns code and message.
func (e *Error) Error() string { return e.Code + ": " + e.Message }

// FailedCode is the code of failures that are no *Error.
const FailedCode = "failed"

// validCode reports whether a host takes the code.
func validCode(code string) bool {
	if code == "" || len(code) > abi.MaxGuestCodeBytes {
		return false
	}
	for i := range len(code) {
		if c := code[i]; c != '_' && (c < 'a' || c > 'z') {
			return false
		}
	}
	return true
}

// report tells the host of a failure. A code that the host would refuse
// becomes part of the message: the failure itself must arrive.
func report(h Host, err error) {
	var own *Error
	switch {
	case errors.As(err, &own) && validCode(own.Code):
		h.Fail(own.Code, message(own.Message))
	default:
		h.Fail(FailedCode, message(err.Error()))
	}
}

// message cuts a message to what a host takes.
func message(s string) string {
	s = strings.ToValidUTF8(s, "\ufffd") // as JSON has it, before the length is looked at
	if len(s) <= abi.MaxGuestMessageBytes {
		return s
	}
	const mark = "…"
	return strings.ToValidUTF8(s[:abi.MaxGuestMessageBytes-len(mark)], "") + mark
}

// Refusal is a host call that the host refused. It never ends the guest: a
// handler may go on, or return it. Match it with errors.As.
type Refusal struct {
	Op      string    // the operation, such as "invoke", or the import's name
	Errno   abi.Errno // the kind of refusal
	Code    string    // the host's code, such as "not_found"; empty if it told none
	Message string
	Remedy  string // the manifest line to add or the grant to ask for; may be empty
}

// Error returns the operation, the code and the message.
func (r *Refusal) Error() string {
	s := r.Op + ": " + r.Errno.String()
	if r.Code != "" {
		s += " (" + r.Code + ")"
	}
	if r.Message != "" {
		s += ": " + r.Message
	}
	if r.Remedy != "" {
		s += "; " + r.Remedy
	}
	return s
}
