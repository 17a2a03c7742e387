package carrel

import (
	"time"

	"github.com/carrelhost/carrel/abi"
)

// Host is what a plugin's code can ask of where it runs. In a guest it is the
// host's imports, in tests carreltest's simulation; plugins use Context. Its
// methods are for one call at a time and one goroutine. Their errors are
// *Refusal.
type Host interface {
	// Input returns the call's input; the caller owns it.
	Input() ([]byte, error)
	// Output appends to the call's result.
	Output(b []byte) error
	// Fail marks the call as failed; the last one counts. The code is valid.
	Fail(code, message string)
	// Emit streams to the client: a text delta, or a custom event's JSON. Every
	// host that there is refuses it with ENOSYS.
	Emit(kind EmitKind, b []byte) error
	// Call performs an operation. The caller owns the result.
	Call(op abi.Op, request []byte) ([]byte, error)
	// Log writes a line: 0 debug, 1 info, 2 warning, 3 error.
	Log(level int, text string)
	// Deadline is when the host will stop the call.
	Deadline() time.Time
	// Random fills b with bytes that nobody can guess.
	Random(b []byte) error
	// Has reports whether the host knows an operation or feature.
	Has(feature string) bool
}

// EmitKind says what is streamed to the client.
type EmitKind int32

// The kinds of emit.
const (
	EmitText  EmitKind = 0 // a text delta
	EmitEvent EmitKind = 1 // a custom event, JSON
)
