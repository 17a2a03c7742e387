package client

// Report is what a version's admission found. It is the same wherever
// a host of one version admits the same bytes, but for Measured, and for Notes on
// windows, which depend on the host's limit windowBytes. Reports of versions that
// older hosts admitted lack members; a newer host may have classes and paths that
// are not listed here.
type Report struct {
	Class string   `json:"class,omitempty"` // what its code can reach: inert < pure < chat < tools < network
	Path  string   `json:"path"`            // how calls run: prompt, reset, image or plain
	Why   []string `json:"why,omitempty"`   // why on that path

	ModuleBytes   int    `json:"moduleBytes"`
	ManifestBytes int    `json:"manifestBytes"`
	CustomBytes   int    `json:"customBytes,omitempty"` // of all custom sections, which are not compiled
	CodeBytes     int    `json:"codeBytes,omitempty"`   // of the code with the host's checks, which is
	DataBytes     int    `json:"dataBytes,omitempty"`   // that memory begins with
	Image         *Image `json:"image,omitempty"`       // nil: calls begin with no image
	Fuel          int64  `json:"fuel,omitempty"`        // that initialisation used
	Warmup        string `json:"warmup,omitempty"`      // kept, or discarded and a note says why; "" without one

	Models   []string  `json:"models"` // aliases that its chat methods call
	Imports  []string  `json:"imports,omitempty"`
	Exports  []string  `json:"exports,omitempty"`
	Measured *Measured `json:"measured,omitempty"` // nil: there is no code
	Notes    []string  `json:"notes,omitempty"`    // what the host does otherwise than the manifest says
}

// Image is the memory that each call of a version begins with.
type Image struct {
	Pages  int `json:"pages"`  // of 64 KiB: its size
	Filled int `json:"filled"` // of these, with a byte that is not zero
	Bytes  int `json:"bytes"`  // of its blocks of 4 KiB with a byte that is not zero
}

// Measured is what depends on the host that admitted the version.
type Measured struct {
	CompileMicros    int64  `json:"compileMicros"`
	InitialiseMicros int64  `json:"initialiseMicros"`
	MachineBytes     int64  `json:"machineBytes,omitempty"` // of machine code on disk; 0: the host keeps none there
	Restore          string `json:"restore,omitempty"`      // how memory is set back after a call: page scan, madvise or copy
}
