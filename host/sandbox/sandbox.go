// Package sandbox runs untrusted WebAssembly within limits. Each call gets a
// fresh instance: nothing that a guest writes outlives it. Callers know
// nothing of the engine; this is the only package that imports it.
package sandbox

import (
	"context"
	"time"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox/module"
)

// Config configures a Sandbox. The zero value of a field is its default.
type Config struct {
	Module module.Limits // of what is admitted; zero = module.DefaultLimits

	Slots        int           // guests on a CPU at once; 0 = twice GOMAXPROCS
	AdmitTimeout time.Duration // for _initialize and carrel_describe together; 0 = 5 s
	OutputBytes  int           // of one call's result; 0 = 1 MiB
	LogBytes     int           // of one call's log lines and stderr; 0 = 64 KiB
	HostCalls    int           // in one call; 0 = 10,000
	ResultBytes  int           // of host call results that one call holds at once; 0 = 16 MiB
}

// Report is what admission found out about a module with code.
type Report struct {
	Path       string        // how calls run: "plain", a new instance for each
	Manifest   []byte        // the section's, else what carrel_describe wrote
	Described  bool          // the manifest came from carrel_describe
	Exports    []string      // functions that can be called: () -> i32, host names not among them
	Imports    []string      // "module.name", as the module lists them
	CompileFor time.Duration // how long the engine compiled
}

// Has reports whether the module exports a function that can be called.
func (r Report) Has(export string) bool {
	for _, e := range r.Exports {
		if e == export {
			return true
		}
	}
	return false
}

// Host answers the host calls of one guest call. Its methods are called from
// the goroutine of Plugin.Call, one at a time, and may block: the guest gives
// up its place on the CPU meanwhile.
type Host interface {
	// Do performs an operation of the import `call`. request is the guest's
	// JSON, the callee's to keep. A refusal is what the guest sees as a
	// negative errno and reads with `last_error`.
	Do(ctx context.Context, op abi.Op, request []byte) (result []byte, refused *Refusal)
	// Knows answers the import `feature`.
	Knows(feature string) bool
}

// Refusal is a host call that was refused. A recoverable refusal never traps.
type Refusal struct {
	Errno   abi.Errno
	Code    string // an abi code's name
	Message string
	Remedy  string // the manifest line to add, the grant to ask for; may be empty
}

// Call is one call of a guest.
type Call struct {
	Export string
	Input  []byte // read-only while the call runs
	Host   Host
}

// Result is what a call left, also when it failed.
type Result struct {
	Output []byte        // what output_write appended; the caller's
	Log    []LogLine     // bounded by Config.LogBytes; the last line says if some were dropped
	Guest  time.Duration // time on a CPU slot, host calls not counted
}

// LogLine is a line that a guest logged, wrote to stdout or stderr, or that
// the sandbox wrote about it: a trap with its stack.
type LogLine struct {
	Level int // 0 debug to 3 error
	Text  string
}

// Memory limits of a plugin.
const (
	PageBytes        = 64 << 10
	DefaultMemoryMiB = 32
	MaxMemoryMiB     = 64
)
