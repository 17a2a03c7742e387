package carrel

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/carrelhost/carrel/abi"
)

// Error is the only error type with meaning across packages. It is made at
// the place that knows the meaning; above it errors are wrapped with %w.
type Error struct {
	Op    string   // what was tried: "store.Append"
	Code  abi.Code // why, for programs
	Msg   string   // why and what to do, for the caller; empty means "do not tell"
	Limit string   // the limit that was hit, by its name, or empty
	// GuestCode is the guest's own word for its failure, with Code
	// abi.GuestFailed only: a guest never produces a host code.
	GuestCode string
	Faults    []Fault       // every fault of a document, in document order
	Wait      time.Duration // when a retry makes sense; 0 = the edge's default
	Err       error         // cause, for the operator's log only
}

// Fault is one thing wrong with a document that the caller sent.
type Fault struct {
	Pointer string `json:"pointer"` // RFC 6901 JSON pointer; "" is the whole document
	Message string `json:"message"` // what is wrong and how to mend it
}

// Error returns the operator's view: operation, code, message and cause.
func (e *Error) Error() string {
	var b strings.Builder
	if e.Op != "" {
		b.WriteString(e.Op)
		b.WriteString(": ")
	}
	b.WriteString(e.Code.String())
	if e.Msg != "" {
		b.WriteString(": ")
		b.WriteString(e.Msg)
	}
	if e.Err != nil {
		b.WriteString(": ")
		b.WriteString(e.Err.Error())
	}
	return b.String()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Fail returns an Error with a code and a message for the caller.
func Fail(op string, code abi.Code, msg string) *Error {
	return &Error{Op: op, Code: code, Msg: msg}
}

// FailLimit returns an Error that names the limit that was hit. The message
// says the limit's value and how to raise it.
func FailLimit(op string, code abi.Code, limit, msg string) *Error {
	return &Error{Op: op, Code: code, Limit: limit, Msg: msg}
}

// FailNotFound is the answer for whatever does not exist for this caller,
// another tenant's things included: the message never varies.
func FailNotFound(op string) *Error {
	return &Error{Op: op, Code: abi.NotFound, Msg: "there is no such thing here, or this key may not see it"}
}

// CodeOf returns err's code: abi.OK for nil, the outermost Error's code, the
// code of a context's end, and abi.Internal for an error that nobody
// classified, because an unknown failure must not leak.
func CodeOf(err error) abi.Code {
	if err == nil {
		return abi.OK
	}
	if e, ok := errors.AsType[*Error](err); ok && e.Code != abi.OK {
		return e.Code
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return abi.Timeout
	case errors.Is(err, context.Canceled):
		return abi.Canceled
	default:
		return abi.Internal
	}
}
