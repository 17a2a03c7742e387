package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/client"
)

// The exit codes of every command.
const (
	exitOK = iota
	exitFailed
	exitUsage
	exitUnreachable
	exitForbidden
	exitNotFound
	exitInvalid
	exitBusy
	exitCallFailed

	exitInterrupted = 130 // what shells make of SIGINT
)

const exitHelp = `Exit codes:
  0  done
  1  failed for a reason of its own (a file, the host's fault)
  2  wrong usage, or a configuration that is refused
  3  the host does not answer; or the connection broke off, and what was asked for
     may have been done: the error says which
  4  the key is unknown or may not do this
  5  not found
  6  the input is invalid, or over a limit
  7  busy, over a quota, or shutting down: try again later
  8  the model or the plugin failed, or the call took too long
130  interrupted by a signal before it was done`

// exits is total over abi.Codes.
var exits = map[abi.Code]int{
	abi.Internal:               exitFailed,
	abi.MalformedJSON:          exitInvalid,
	abi.BadRequest:             exitInvalid,
	abi.Unauthenticated:        exitForbidden,
	abi.Forbidden:              exitForbidden,
	abi.NotFound:               exitNotFound,
	abi.MethodNotAllowed:       exitInvalid,
	abi.UnsupportedMediaType:   exitInvalid,
	abi.WrongHost:              exitForbidden,
	abi.TooLarge:               exitInvalid,
	abi.InvalidParams:          exitInvalid,
	abi.InvalidMemoryID:        exitInvalid,
	abi.InvalidManifest:        exitInvalid,
	abi.InvalidModule:          exitInvalid,
	abi.UnknownImport:          exitInvalid,
	abi.LimitExceeded:          exitInvalid,
	abi.DefaultIDLeak:          exitInvalid,
	abi.ContextTooLarge:        exitInvalid,
	abi.GuardRefused:           exitInvalid,
	abi.IdempotencyMismatch:    exitInvalid,
	abi.IdempotencyInterrupted: exitCallFailed,
	abi.GuestFailed:            exitCallFailed,
	abi.GuestTrap:              exitCallFailed,
	abi.FuelExhausted:          exitCallFailed,
	abi.MemoryBusy:             exitBusy,
	abi.SessionBusy:            exitBusy,
	abi.ScopeClosed:            exitCallFailed,
	abi.NoSession:              exitInvalid,
	abi.HistoryConflict:        exitInvalid,
	abi.SessionClosed:          exitNotFound,
	abi.ModelFailed:            exitCallFailed,
	abi.Timeout:                exitCallFailed,
	abi.Canceled:               exitFailed,
	abi.BudgetExceeded:         exitBusy,
	abi.QuotaExceeded:          exitBusy,
	abi.RateLimited:            exitBusy,
	abi.Draining:               exitBusy,
	abi.Overloaded:             exitBusy,
	abi.StorageFull:            exitBusy,
}

// errNotFound is what a command itself did not find.
var errNotFound = errors.New("not found")

// errNoHost says that a command found no address to talk to.
var errNoHost = errors.New("no host is running here")

// exitCode gives an error its exit code.
func exitCode(err error) int {
	if err == nil {
		return exitOK
	}
	_, usage := errors.AsType[usageError](err)
	if _, refused := errors.AsType[faultLines](err); usage || refused {
		return exitUsage
	}
	if errors.Is(err, errNotFound) {
		return exitNotFound
	}
	if p, ok := errors.AsType[*client.Problem](err); ok {
		code, _ := abi.ParseCode(p.Code)
		return exits[code]
	}
	if e, ok := errors.AsType[*carrel.Error](err); ok {
		return exits[e.Code]
	}
	_, noAnswer := errors.AsType[*url.Error](err) // whatever kept an HTTP request from its answer
	switch {
	case errors.Is(err, context.Canceled): // only a signal cancels
		return exitInterrupted
	case noAnswer, errors.Is(err, errNoHost), errors.Is(err, client.ErrBrokenOff):
		return exitUnreachable
	}
	return exitFailed
}

// textOf is what a person is told of an error.
func textOf(err error) string {
	switch exitCode(err) {
	case exitInterrupted:
		return "interrupted"
	case exitUnreachable:
		e, ok := errors.AsType[*url.Error](err)
		switch {
		case ok && errors.Is(err, client.ErrBrokenOff):
			return fmt.Sprintf("the connection to %s broke off (%v), and what was asked for may have been done; find out before you repeat it", origin(e.URL), e.Err)
		case ok:
			return fmt.Sprintf("no host answers at %s (%v); start one with `carrel serve`, or name another with --host or CARREL_HOST", origin(e.URL), e.Err)
		}
	}
	// Which operation of the code it was is for logs, not for people.
	if e, ok := err.(*carrel.Error); ok && e.Err == nil { //nolint:errorlint // what wraps it has a text of its own
		return problemOf(e).Error()
	}
	return err.Error()
}

// origin is the scheme and host of a URL.
func origin(s string) string {
	u, err := url.Parse(s)
	if err != nil {
		return s
	}
	return u.Scheme + "://" + u.Host
}
