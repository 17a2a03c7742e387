package module

// Limits bound what Read accepts. The zero value accepts nothing; start from
// DefaultLimits. A count limit is checked against the declared count, before
// anything is read or allocated for it.
type Limits struct {
	Bytes          int // of the whole file
	Types          int
	Params         int // of one function type
	Results        int // of one function type
	Imports        int
	Functions      int // declared by the module itself
	Tables         int
	Memories       int
	Globals        int
	Exports        int
	Elements       int // element segments
	DataSegments   int
	CustomSections int
}

// DefaultLimits returns the limits that real modules stay under, Go programs
// of 15 MB among them.
func DefaultLimits() Limits {
	return Limits{
		Bytes:          20 << 20,
		Types:          5000,
		Params:         128,
		Results:        16,
		Imports:        256,
		Functions:      30000,
		Tables:         4,
		Memories:       1,
		Globals:        1000,
		Exports:        1000,
		Elements:       65536,
		DataSegments:   100000,
		CustomSections: 64,
	}
}
