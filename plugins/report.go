package plugins

import "github.com/carrelhost/carrel/host/sandbox"

// Report tells a plugin's author what admission found. It is stored with the
// version.
type Report struct {
	Path          string   `json:"path"` // how it runs: "prompt", or one of sandbox.Report.Path
	ModuleBytes   int      `json:"moduleBytes"`
	ManifestBytes int      `json:"manifestBytes"`
	Models        []string `json:"models"` // aliases that its chat methods call
	Imports       []string `json:"imports,omitempty"`
	Exports       []string `json:"exports,omitempty"`
	CompileMicros int64    `json:"compileMicros,omitempty"`
	// Notes are sentences on what this host does otherwise than the manifest
	// says.
	Notes []string `json:"notes,omitempty"`
}

// code adds what the sandbox found out about the code.
func (r *Report) code(found sandbox.Report) {
	r.Path, r.Imports, r.Exports = found.Path, found.Imports, found.Exports
	r.CompileMicros = found.CompileFor.Microseconds()
}
