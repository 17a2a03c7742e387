package marker

import (
	"bytes"
	"context"
	"regexp"
	"strconv"
)

// numbers are unlike anything else in a stack trace.
const numbers = 0xca44e1 << 40

func numbered(i int) uint64 { return numbers | uint64(i) }

// Number names the mark in stack traces, see Under; 0 is none.
func (m Mark) Number() uint64 { return m.number }

// Under runs a guest under the mark of that number. It is a frame of its own
// in stack traces, which shows the number: if the goroutine crashes, Suspects
// finds it there. It is a number, not the Mark, for of that the compiler would
// not keep a copy where stack traces look for arguments.
//
//go:noinline
func Under(ctx context.Context, number uint64, guest func(context.Context) error) error {
	err := guest(ctx)
	keep(number)
	return err
}

// keep is a use of the number after the guest: without one it would be
// forgotten meanwhile.
//
//go:noinline
func keep(number uint64) uint64 { return number }

// Suspects returns those of the guests that a crash may come from, given the
// beginning of what Go's runtime reported of it: the one that the goroutine
// that crashed ran, also if it was in a host call. If that goroutine ran none,
// or was in compiled code, whose stack the runtime cannot read, then every guest
// that was on a CPU: memory that one of them overwrote is noticed anywhere. Of
// a report that is Sent, none.
func Suspects(report []byte, guests []Guest) []Guest {
	if Sent(report) {
		return nil
	}
	number, ok := named(report)
	var running []Guest
	for _, g := range guests {
		if ok && g.Number == number {
			return []Guest{g}
		}
		if g.Running {
			running = append(running, g)
		}
	}
	return running
}

// shownNumber finds Under's frame in a trace. A question mark, of what may be
// out of date, follows where the trace does not know better.
var shownNumber = regexp.MustCompile(`(?m)^[^\s(]*host/sandbox/marker\.Under\([^)]*?\b0x(ca44e1[0-9a-f]{10})\b`)

// signalled is a report's beginning if a signal ended the process, which the
// runtime could not tell from a fault of a goroutine.
var signalled = regexp.MustCompile(`^\s*SIG[A-Z0-9]+: [^\n]*\nPC=[^\n]* sigcode=(-?[0-9]+)\b`)

// sentOnFreeBSD is SI_USER there.
const sentOnFreeBSD = 0x10001

// Sent reports whether what ended the process was a signal that a process sent:
// an operator, or a supervisor whose probe was not answered. It says nothing of
// guests. Of what the processor raises the code is positive (SI_USER, SI_TKILL,
// SI_QUEUE are not); the runtime shows it without a sign, of 32 or 64 bits.
func Sent(report []byte) bool {
	found := signalled.FindSubmatch(report)
	if found == nil {
		return false
	}
	code, err := strconv.ParseInt(string(found[1]), 10, 64)
	if err != nil {
		unsigned, err := strconv.ParseUint(string(found[1]), 10, 64)
		if err != nil {
			return false
		}
		code = int64(unsigned)
	}
	return int32(code) <= 0 || code == sentOnFreeBSD
}

// named returns the mark of the goroutine that crashed, the innermost if a
// guest called another. It is the first one that a report shows; nothing that
// comes before it begins a line like it, for the runtime indents what a panic
// says.
func named(report []byte) (uint64, bool) {
	_, trace, ok := bytes.Cut(append([]byte{'\n'}, report...), []byte("\ngoroutine "))
	if !ok {
		return 0, false
	}
	trace, _, _ = bytes.Cut(trace, []byte("\n\n"))
	found := shownNumber.FindSubmatch(trace)
	if found == nil {
		return 0, false
	}
	number, err := strconv.ParseUint(string(found[1]), 16, 64)
	return number, err == nil
}
