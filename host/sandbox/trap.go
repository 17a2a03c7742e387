package sandbox

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"

	"github.com/tetratelabs/wazero/sys"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox/module"
)

// stop is what an import panics with to end the guest: the engine unwinds the
// guest's frames and returns it. Exactly one of the reasons is set.
type stop struct {
	context error // it ended
	exit    *uint32
	broken  error // the host's own panic, with its stack
}

func (s *stop) Error() string {
	switch {
	case s.context != nil:
		return s.context.Error()
	case s.exit != nil:
		return fmt.Sprintf("exit with code %d", *s.exit)
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
	if s, ok := errors.AsType[*stop](err); ok {
		switch {
		case s.context != nil:
			return ended(ctx, export, s.context)
		case s.broken != nil:
			return &carrel.Error{Op: "sandbox.Call", Code: abi.Internal, Err: s.broken}
		}
		text = fmt.Sprintf("it exited with code %d", *s.exit)
	} else if _, ok := errors.AsType[*sys.ExitError](err); ok {
		// Only the end of the context closes an instance that runs.
		return ended(ctx, export, ctx.Err())
	} else if _, ok := errors.AsType[runtime.Error](err); ok {
		return &carrel.Error{Op: "sandbox.Call", Code: abi.Internal, Err: fmt.Errorf("the engine failed in %q: %w", export, err)}
	}
	if i := strings.LastIndex(text, "wasm error: "); i >= 0 {
		text = text[i+len("wasm error: "):]
	}
	message := fmt.Sprintf("the guest trapped in %s: %s", module.Printable(export, 100), module.Printable(text, 200))
	line := message
	if stack != "" {
		line += "\n" + stack
	}
	r.log.trap(line)
	return carrel.Fail("sandbox.Call", abi.GuestTrap, message)
}

// ended wraps the end of a context, with its cause if that says more.
func ended(ctx context.Context, what string, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("sandbox: %s: %w: %w", what, err, cause)
	}
	return fmt.Errorf("sandbox: %s: %w", what, err)
}
