// Package abi is the contract between a Carrel host and its guests: names,
// codes, limits, function signatures and the shape of the manifest. It is
// data, needs only the standard library, and builds for GOOS=wasip1, so host,
// guest SDKs and tools share one source of truth.
//
// Everything here is append-only inside one major version: numbers cross the
// guest boundary and are stored, names are written into plugins.
package abi

// Module is the import module name. The version is part of the name, so a
// guest built for another version fails at link time, not at the first call.
const Module = "carrel/v1"

// WASIModule is the only other module a guest may import from.
const WASIModule = "wasi_snapshot_preview1"

// ManifestSection is the custom section that holds the manifest as UTF-8 JSON.
const ManifestSection = "carrel.manifest"

// SourceSection is the custom section that holds a plugin's source text.
const SourceSection = "carrel.source"

// ReservedExportPrefix starts the export names that belong to the host.
const ReservedExportPrefix = "carrel$"

// MemoryExport is the name under which a guest exports its memory. All
// pointers of the imports point into it.
const MemoryExport = "memory"

// The exports that the host calls by itself. None of them is a method.
const (
	InitializeExport = "_initialize"     // () -> (): the reactor's start, once in a fresh instance
	WakeExport       = "carrel_wake"     // () -> i32: first in every call
	DescribeExport   = "carrel_describe" // () -> i32: writes the manifest, at admission
)

// ValType is a WebAssembly value type, with its binary encoding as value.
type ValType byte

// The value types that occur in signatures of this contract.
const (
	I32 ValType = 0x7f
	I64 ValType = 0x7e
)

// Func is the name and the signature of a function that a guest imports.
type Func struct {
	Name    string
	Params  []ValType
	Results []ValType
}
