package sandbox

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"runtime"
	"strconv"
	"strings"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox/image"
	"github.com/carrelhost/carrel/host/sandbox/module"
)

// stop is what an import panics with to end the guest: the engine unwinds the
// guest's frames and returns it. Exactly one of the reasons is set.
type stop struct {
	context   error // it ended
	exit      *uint32
	broken    error // the host's own panic, with its stack
	overflow  bool  // of the stack
	exhausted bool  // of fuel
}

func (s *stop) Error() string {
	switch {
	case s.context != nil:
		return s.context.Error()
	case s.exit != nil:
		return fmt.Sprintf("exit with code %d", *s.exit)
	case s.overflow:
		return "stack overflow"
	case s.exhausted:
		return "out of fuel"
	default:
		return s.broken.Error()
	}
}

// stackBytes bounds a stack in the log: the engine names at most 30 frames,
// but their names are the guest's.
const stackBytes = 8 << 10

// failed says what the engine's error of running an export means, and logs
// the guest's stack.
func (r *run) failed(ctx context.Context, export string, err error) error {
	text, stack, _ := strings.Cut(err.Error(), "\nwasm stack trace:\n")
	stack, _, _ = strings.Cut(stack, "\n\nGo runtime stack trace:") // it is not the guest's to see
	code, limit, remedy := abi.GuestTrap, "", ""
	if s, ok := errors.AsType[*stop](err); ok {
		switch {
		case s.context != nil:
			return ended(ctx, export, s.context)
		case s.broken != nil:
			return &carrel.Error{Op: "sandbox.Call", Code: abi.Internal, Err: s.broken}
		case s.overflow:
			text, limit = "stack overflow", "sandbox.stack"
			remedy = fmt.Sprintf(": its calls are nested deeper than %d MiB of frames (limit sandbox.stack); nest fewer calls", guestStackBytes>>20)
		case s.exhausted:
			code, limit, text = abi.FuelExhausted, "sandbox.fuel", "out of fuel"
			remedy = fmt.Sprintf(": one call can use %d units (limit sandbox.fuel); do less in one call", r.cfg.Fuel)
		default:
			text = fmt.Sprintf("it exited with code %d", *s.exit)
		}
	} else if _, ok := errors.AsType[runtime.Error](err); ok {
		return &carrel.Error{Op: "sandbox.Call", Code: abi.Internal, Err: fmt.Errorf("the engine failed in %q: %w", export, err)}
	}
	if i := strings.LastIndex(text, "wasm error: "); i >= 0 {
		text = text[i+len("wasm error: "):]
	}
	message := fmt.Sprintf("the guest trapped in %s: %s%s", module.Printable(export, 100), module.Printable(text, 200), remedy)
	line := message
	if stack != "" {
		line += "\n" + r.named(stack)
	}
	r.log.trap(line)
	return carrel.FailLimit("sandbox.Call", code, limit, message)
}

// failedToStart says what an error of making an instance means. It is never the
// guest's, none of whose code has run: what does not fit of its segments was
// refused when it was read.
func failedToStart(err error) error {
	if errors.Is(err, image.ErrNoRoom) {
		return noRoom(err)
	}
	return &carrel.Error{Op: "sandbox.Call", Code: abi.Internal, Err: fmt.Errorf("make an instance: %w", err)}
}

// frame is one of the engine's stack of a guest: code has no names of its
// own.
var frame = regexp.MustCompile(`(?m)^(\s*)\.?\$([0-9]{1,10})\(`)

// named puts the names of functions into a stack.
func (r *run) named(stack string) string {
	return frame.ReplaceAllStringFunc(stack, func(match string) string {
		parts := frame.FindStringSubmatch(match)
		index, err := strconv.ParseUint(parts[2], 10, 32)
		if name := r.names[uint32(index)]; err == nil && name != "" {
			return parts[1] + name + "("
		}
		return match
	})
}

// ended wraps the end of a context, with its cause if that says more.
func ended(ctx context.Context, what string, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("sandbox: %s: %w: %w", what, err, cause)
	}
	return fmt.Errorf("sandbox: %s: %w", what, err)
}
