package module

// Limits bound what Read and Lint accept. The zero value accepts nothing; start from
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

	// Of code and what is declared beside it; Lint checks these.
	TableMin     int // elements that a table begins with
	MemoryMin    int // pages of 64 KiB that the memory begins with
	ElementInits int // elements in all segments

	// Of one function. Compilers take time and memory in proportion to
	// these, some to their products.
	BodyBytes    int
	Locals       int // declared, without params
	Nesting      int // blocks in one another
	BrTable      int // targets of one branch table
	BrTargets    int // of all branch tables
	Loops        int
	Blocks       int // loops and ifs among them
	LocalsBlocks int // locals and params, plus 1, times blocks

	// A branch carries every local and the most that a block takes or gives;
	// blocks and the targets of branch tables are branches here.
	LocalsBranches int // what a branch carries, times branches: memory of the compiler
	Weight         int // the square of it plus 64, times branches, times the depth of nested loops plus 1: its time

	// Of the whole module, over all functions.
	SumLocals           int // params among them
	SumBrTable          int
	SumLocalsBlocks     int
	SumBlocksSquared    int
	SumLoopsSquared     int
	SumJumpsSquared     int // of blocks and branches, those of branch tables not among them; measured, 45 million are a second
	SumIndirect         int // calls through tables, accesses of tables, memory.grow and bulk operations; measured, 15,000 are a second
	SumBrTargetsSquared int
	SumWeight           int
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

		TableMin:     65536,
		MemoryMin:    1024,
		ElementInits: 65536,

		BodyBytes:    256 << 10,
		Locals:       4096,
		Nesting:      2000,
		BrTable:      4096,
		BrTargets:    16384,
		Loops:        500,
		Blocks:       3000,
		LocalsBlocks: 200_000,

		LocalsBranches: 2_000_000,
		Weight:         1_000_000_000,

		SumLocals:           500_000,
		SumBrTable:          500_000,
		SumLocalsBlocks:     4_000_000,
		SumBlocksSquared:    60_000_000,
		SumLoopsSquared:     5_000_000,
		SumJumpsSquared:     150_000_000,
		SumIndirect:         60_000,
		SumBrTargetsSquared: 400_000_000,
		SumWeight:           1_500_000_000,
	}
}
