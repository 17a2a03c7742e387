package plugins

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox"
)

// Report tells a plugin's author what admission found. It is stored with the
// version, and what older hosts stored lacks members. It is the same wherever a
// host of one version admits the same bytes, but for Measured, and for Notes on
// windows, which depend on the host's limit windowBytes.
type Report struct {
	Class Class    `json:"class,omitempty"`
	Path  string   `json:"path"`          // how it runs: one of sandbox.Report.Path
	Why   []string `json:"why,omitempty"` // why on that path: sentences without a full stop

	ModuleBytes   int    `json:"moduleBytes"`
	ManifestBytes int    `json:"manifestBytes"`
	CustomBytes   int    `json:"customBytes,omitempty"` // of all custom sections, which are not compiled
	CodeBytes     int    `json:"codeBytes,omitempty"`   // of the code with the host's checks, which is
	DataBytes     int    `json:"dataBytes,omitempty"`   // that memory begins with
	Image         *Image `json:"image,omitempty"`       // nil: calls begin with no image of an initialised memory
	Fuel          int64  `json:"fuel,omitempty"`        // that initialisation used
	Warmup        string `json:"warmup,omitempty"`      // what came of it: one of the constants below; "" without one

	Models  []string `json:"models"` // aliases that its chat methods call
	Imports []string `json:"imports,omitempty"`
	Exports []string `json:"exports,omitempty"`

	Measured *Measured `json:"measured,omitempty"` // nil: there is no code

	// Notes are sentences on what this host does otherwise than the manifest
	// says.
	Notes []string `json:"notes,omitempty"`
}

// The values of Report.Warmup.
const (
	WarmupKept      = "kept"      // calls begin with what it left
	WarmupDiscarded = "discarded" // they do not; a note says why
)

// Image is the memory that each call begins with.
type Image struct {
	Pages  int `json:"pages"`  // of 64 KiB: its size
	Filled int `json:"filled"` // of these, with a byte that is not zero
	Bytes  int `json:"bytes"`  // of its blocks of 4 KiB with a byte that is not zero
}

// Measured is what depends on the host that admitted the version: its
// processor, its load, its system.
type Measured struct {
	CompileMicros    int64  `json:"compileMicros"`
	InitialiseMicros int64  `json:"initialiseMicros"`
	MachineBytes     int64  `json:"machineBytes,omitempty"` // of machine code on disk; 0: the host keeps none there
	Restore          string `json:"restore,omitempty"`      // how memory is set back after a call; "": it never is
}

// code adds what the sandbox found out about the code, whose warm-up calls the
// method, if it has one.
func (r *Report) code(found sandbox.Report, warmup *abi.Warmup) {
	r.Path, r.Why, r.Imports, r.Exports = found.Path, found.Why, found.Imports, found.Exports
	r.CodeBytes, r.DataBytes, r.Fuel = found.CodeBytes, found.DataBytes, found.Fuel
	if found.Image.Pages > 0 {
		r.Image = &Image{Pages: found.Image.Pages, Filled: found.Image.Filled, Bytes: found.Image.Bytes}
	}
	if w := found.Warmup; w != nil && warmup != nil {
		r.warmup(*w, warmup.Method)
	}
	r.Measured = &Measured{
		CompileMicros: found.CompileFor.Microseconds(), InitialiseMicros: found.InitialiseFor.Microseconds(),
		MachineBytes: found.MachineBytes, Restore: found.Restore,
	}
}

// warmup adds what came of the warm-up.
func (r *Report) warmup(w sandbox.Warming, method string) {
	if w.Kept {
		r.Warmup = WarmupKept
		return
	}
	r.Warmup = WarmupDiscarded
	failed := failedAdmission(w.Err, w.Log)
	why := failed.Error()
	if e, ok := errors.AsType[*carrel.Error](failed); ok {
		why = cmp.Or(e.Msg, carrel.CodeOf(w.Err).String())
	}
	r.Notes = append(r.Notes, fmt.Sprintf("the warm-up %s is left out, and calls begin without it: %s", method, why))
}
