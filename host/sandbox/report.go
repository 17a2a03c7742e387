package sandbox

import (
	"slices"
	"time"

	"github.com/carrelhost/carrel/host/sandbox/module"
	"github.com/carrelhost/carrel/host/sandbox/snapshot"
)

// Report is what admission found out about a module.
type Report struct {
	Path      string    // how calls run: one of the constants below
	Why       []string  // why so: sentences without a full stop, printable
	Manifest  []byte    // the section's, else what carrel_describe wrote, else nil
	Described bool      // the manifest came from carrel_describe
	Exports   []string  // functions that can be called: () -> i32, sorted, host names not among them
	Imports   []string  // "module.name", in the module's order
	Log       []LogLine // what _initialize, carrel_describe and the warm-up logged, also if they failed
	Warmup    *Warming  // what came of the warm-up; nil if none was asked for, or it was not reached

	CustomBytes int   // of all custom sections, which are not compiled
	CodeBytes   int   // of the code with its checks, as it is compiled
	DataBytes   int   // that are written into memory before any code runs
	Image       Image // what is kept of the memory for calls to begin with; zero on PathPlain, or without a memory
	Fuel        int64 // that the start function and _initialize used

	// What this host measured; the same bytes may come to something else.
	CompileFor    time.Duration // until there was machine code; short if it was in the cache
	InitialiseFor time.Duration // that the start function and _initialize took
	MachineBytes  int64         // of machine code on disk; 0 without Config.CacheDir
	Restore       string        // how memory is set back after a call; "" if it never is
}

// Warming is what came of a warm-up.
type Warming struct {
	Kept bool      // calls begin with the state that it left
	Err  error     // why they do not; its message is for the plugin's author
	Log  []LogLine // what the warm-up logged: a part of Report.Log
}

// Image is a memory, measured.
type Image struct {
	Pages  int // of 64 KiB: its size
	Filled int // of these, with a byte that is not zero
	Bytes  int // of its blocks of 4 KiB with a byte that is not zero: what it takes at least
}

// compiled fills in what is known before any code runs.
func (r *Report) compiled(c *code, w *module.Rewritten) {
	r.Path, r.Why = howItRuns(c, w)
	r.Exports, r.Imports = slices.Clone(c.list), slices.Clone(c.imports)
	r.CodeBytes = len(w.Code)
	for _, d := range w.Data {
		r.DataBytes += len(d.Bytes)
	}
	r.CompileFor, r.MachineBytes = c.compileFor, c.machineBytes
}

// measured reports on the memory of an instance that is as calls begin with it.
func (s *Sandbox) measured(in *instance, r *Report) {
	if in.slot == nil || r.Path == PathPlain {
		return
	}
	memory := snapshot.Of(in.slot.Bytes(int(in.module.Memory().Size())))
	r.Image.Pages = int(memory.Pages())
	r.Image.Filled, r.Image.Bytes = memory.Filled()
	if r.Path == PathReset {
		r.Restore = s.memory.String()
	}
}

// The values of Report.Path.
const (
	PathPrompt = "prompt" // there is no code: nothing of the module ever executes
	PathReset  = "reset"  // an instance is restored after each call
	PathImage  = "image"  // a new instance with the module's data for each call
	PathPlain  = "plain"  // a new instance for each call, which initialises itself
)

// Has reports whether the module exports a function that can be called.
func (r Report) Has(export string) bool {
	return slices.Contains(r.Exports, export)
}
