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
// or was in compiled code, whose stack the runtime cannot read, or if somebody
// sent a signal, which ends any goroutine, then every guest that was on a CPU:
// memory that one of them overwrote is noticed anywhere.
func Suspects(report []byte, guests []Guest) []Guest {
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

// sentSignal is a report's beginning if a process sent the signal; of those
// that the processor raises the code is positive.
var sentSignal = regexp.MustCompile(`^\s*SIG[A-Z0-9]+: [^\n]*\nPC=[^\n]* sigcode=(0|-[0-9]+)\b`)

// named returns the mark of the goroutine that crashed, the innermost if a
// guest called another. It is the first one that a report shows; nothing that
// comes before it begins a line like it, for the runtime indents what a panic
// says.
func named(report []byte) (uint64, bool) {
	if sentSignal.Match(report) {
		return 0, false
	}
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
