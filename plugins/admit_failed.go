package plugins

import (
	"errors"
	"strings"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox"
	"github.com/carrelhost/carrel/host/sandbox/module"
)

// failedAdmission is the error of an upload whose code failed in its admission. There
// it is the module that is at fault, and not a call of it: limit_exceeded if a
// limit ended it, else invalid_module, with what the guest wrote about it.
// Other errors stay as they are.
func failedAdmission(err error, log []sandbox.LogLine) error {
	failure, ok := errors.AsType[*carrel.Error](err)
	if !ok {
		return err
	}
	told := *failure
	switch failure.Code {
	case abi.GuestTrap, abi.GuestFailed, abi.FuelExhausted:
		told.Code = abi.InvalidModule
		if failure.Limit != "" {
			told.Code = abi.LimitExceeded
		}
	default:
		return err
	}
	told.Op, told.GuestCode = "plugins.Admit", ""
	told.Msg = withWords(failure.Msg, log)
	return &told
}

// Bounds of what a message quotes of a guest.
const (
	maxWordLines = 3   // from where its failure begins, besides the line before and the last one
	maxWordBytes = 400 // of each
)

// withWords adds to the message about guest code that failed what it wrote to
// stderr: a runtime says there why it gives up, then perhaps where, and traps.
func withWords(message string, log []sandbox.LogLine) string {
	words := wordsOf(log)
	if words == "" {
		return message
	}
	return strings.TrimSpace(message + "; it wrote: " + words)
}

// wordsOf returns, in one line, the lines of stderr that say the most: those
// from where the failure begins, with the line before, and the last one.
func wordsOf(log []sandbox.LogLine) string {
	const stderr = 2 // the level of its lines, and of warnings; traps are above
	var lines []string
	begins := -1
	for _, l := range log {
		text := strings.TrimSpace(module.Printable(l.Text, maxWordBytes))
		if l.Level != stderr || text == "" {
			continue
		}
		if beginsFailure(text) {
			begins = len(lines)
		}
		lines = append(lines, text)
	}
	from := max(begins-1, 0)
	to := min(max(begins, 0)+maxWordLines, len(lines))
	quoted := lines[from:to]
	if from > 0 {
		quoted = append([]string{"…"}, quoted...)
	}
	if to < len(lines)-1 {
		quoted = append(quoted[:len(quoted):len(quoted)], "…")
	}
	if to < len(lines) {
		quoted = append(quoted[:len(quoted):len(quoted)], lines[len(lines)-1])
	}
	return strings.Join(quoted, " | ")
}

// beginsFailure reports whether a line is one that runtimes begin the report of
// a failure with. What is none of these is no worse off than other text.
func beginsFailure(line string) bool {
	line = strings.ToLower(line)
	for _, start := range []string{"panic:", "fatal error:", "runtime error:", "error:", "assertion failed"} {
		if strings.HasPrefix(line, start) {
			return true
		}
	}
	return false
}
