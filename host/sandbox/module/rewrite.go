package module

import (
	"crypto/sha256"

	"github.com/carrelhost/carrel/abi"
)

// What a rewritten module imports from its runner. Both are called on the
// goroutine that runs the guest, and may panic to end it.
const (
	HostModule = "carrel$host"
	// YieldImport is () -> i64. It is called when the global FuelExport, which
	// then holds what was overdrawn, is below 0; what it returns becomes the
	// global's value.
	YieldImport = "yield"
	// OverflowImport is () -> (). It is called instead of a function whose
	// frame would go beyond Options.StackBytes; the guest traps if it returns.
	OverflowImport = "overflow"

	ownImports = 2
)

// What a rewritten module exports to its runner beside the module's own.
const (
	// FuelExport is an i64 global, 0 at first: the units of fuel that are left.
	// A unit is about one simple instruction, a nanosecond or less.
	FuelExport = abi.ReservedExportPrefix + "fuel"
	// DepthExport is an i32 global: the bytes of native stack that the counted
	// frames take. The runner sets it to 0 after a trap.
	DepthExport = abi.ReservedExportPrefix + "depth"
	// StartExport is the module's start function, () -> (), to be called once.
	StartExport = abi.ReservedExportPrefix + "start"
)

// Options configure Rewrite. Equal options give equal modules equal code, so a
// host gives all modules the same.
type Options struct {
	StackBytes int    // of native stack for the guest's frames; at least 1
	TableMax   uint32 // elements of a table; 0 is no limit
	MaxPages   uint32 // of 64 KiB; 0 is no limit
	GrowthMax  int    // bytes of Code beyond 2.5 times the module's; 0 is DefaultGrowth
	NameBytes  int    // of all names in Names together; 0 is DefaultNameBytes
}

// The defaults of Options.
const (
	DefaultGrowth    = 1 << 20
	DefaultNameBytes = 4 << 20
)

// Rewritten is a module made ready for a sandbox. It is read-only and safe
// for concurrent use.
type Rewritten struct {
	Digest [sha256.Size]byte // of the bytes that were read
	// Code is the module that is compiled: without active data, start and
	// custom sections, with checks. A pure function of the module's bytes and
	// Options.
	Code []byte
	// Data is the active data in the order in which it is written. It lies in
	// the memory that Code begins with. Passive segments stay in Code if an
	// instruction uses them.
	Data    []Segment
	Start   bool     // Code exports StartExport
	Globals []Global // mutable ones, by index; FuelExport and DepthExport are not among them

	MinPages, MaxPages uint32 // of the memory; 0 without one

	// Resettable says that memory and Globals are all that an instance can
	// change. If not, Why tells what else it can, each once, in order of the
	// first place: sentences without a full stop, printable, a few at most.
	Resettable bool
	Why        []string

	// Names are those of functions, by their index in Code, as far as the name
	// section has them; printable, and cut to a bounded length.
	Names map[uint32]string
}

// Segment is bytes for an address of the memory.
type Segment struct {
	Offset uint32
	Bytes  []byte // a view of the module
}

// Global is a mutable global, which Code exports.
type Global struct {
	Export string // carrel$g and its index
	Type   byte   // as the binary format has it: 0x7f is i32, 0x7e i64, 0x7d f32, 0x7c f64
}

// Restorable reports whether the runner can set the global: vectors and
// references it cannot.
func (g Global) Restorable() bool { return g.Type >= 0x7c && g.Type <= 0x7f }

// Rewrite puts fuel checks and a stack limit into a module that Lint accepted,
// and takes out what its runner does itself. What the module computes stays
// the same: results, memory, globals and traps. It reads the module's bytes
// only and never runs or validates code: an engine that refuses the module
// refuses Code, or Rewrite does.
//
// Its error is invalid_module for what an engine would refuse and would not
// see any more, or limit_exceeded with module.rewritten, function.localsChecks,
// module.memoryMin or module.tableMin.
func Rewrite(m *Module, o Options) (*Rewritten, error) {
	w := &rewriter{module: m, options: o, helperOrder: map[helper]uint32{}, out: &Rewritten{Digest: sha256.Sum256(m.bytes), Resettable: true}}
	if o.GrowthMax == 0 {
		w.options.GrowthMax = DefaultGrowth
	}
	if o.NameBytes == 0 {
		w.options.NameBytes = DefaultNameBytes
	}
	w.bytesMost = len(m.bytes)*5/2 + w.options.GrowthMax
	if err := w.read(); err != nil {
		return nil, err
	}
	if err := w.write(); err != nil {
		return nil, err
	}
	w.names()
	w.explain()
	return w.out, nil
}

// rewriter is the state of one Rewrite.
type rewriter struct {
	module    *Module
	options   Options
	bytesMost int
	out       *Rewritten

	types     []signature // the module's ownTypes, then those that are added
	ownTypes  int
	typeOf    map[string]uint32
	functions []uint32 // types of imported and declared functions
	globals   []Global // all, also constant ones
	mutable   []bool
	maxPages  uint64 // that the memory can have
	tables    []uint64
	hasMemory bool
	segments  []dataSegment
	counted   bool // there is a data count section
	usesData  bool // some instruction needs passive segments or their number
	hasStart  bool
	start     uint32

	function  uint32 // whose body is rewritten
	obstacles []obstacle

	fuel, depth   uint32 // indices of globals
	yield, excess uint32 // indices of imports
	helpers       []helper
	helperOrder   map[helper]uint32
}

// moved returns the new index of a function.
func (w *rewriter) moved(function uint32) uint32 {
	if int64(function) < int64(w.module.importedFunctions) {
		return function
	}
	return function + ownImports
}

// section returns a reader of a section, or nil.
func (w *rewriter) section(id byte) *reader {
	for i := range w.module.sections {
		if s := &w.module.sections[i]; s.ID == id {
			return &reader{all: w.module.bytes[:s.End], pos: s.End - len(s.Data), end: s.End, where: sectionNames[id] + " section"}
		}
	}
	return nil
}

// each reads a section's elements.
func (w *rewriter) each(id byte, one func(r *reader) error) error {
	r := w.section(id)
	if r == nil {
		return nil
	}
	n, err := r.vector(vectorLimit{}, 1)
	if err != nil {
		return err
	}
	for range n {
		if err := one(r); err != nil {
			return err
		}
	}
	return r.done()
}

func (w *rewriter) names() {
	left := w.options.NameBytes
	w.out.Names = map[uint32]string{}
	w.module.functionNames(func(index uint32, name string) bool {
		if int64(index) < int64(len(w.functions)) {
			name = Printable(name, mostNameBytes)
			if left -= len(name); left < 0 {
				return false
			}
			w.out.Names[w.moved(index)] = name
		}
		return true
	})
}

// checkSize bounds what has been written.
func (w *rewriter) checkSize(n int) error {
	if n > w.bytesMost {
		return overLimit("module.rewritten", "with its checks the module is %d bytes or more, at most %d are allowed for one of %d: "+
			"it has too many small functions and loops", n, w.bytesMost, len(w.module.bytes))
	}
	return nil
}
