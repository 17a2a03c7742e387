package hostile

import (
	"strings"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox/module"
)

// past is a module that is past the limit of a field of module.Limits, by one
// where the limit is a count, and within all limits that are looked at before
// it.
func past(field, limit, name string, bytes func(most module.Limits) []byte) Module {
	m := over(limit, name, func() []byte { return bytes(module.DefaultLimits()) })
	m.Field = field
	return m
}

const (
	block     = "\x02\x40\x0b"
	loop      = "\x03\x40\x0b"
	inputLen  = "\x60\x00\x01\x7f"
	passive   = "\x01\x00"
	const0    = "\x41\x00"
	emptyBody = "\x02\x00\x0b"
)

// branchTable is one with n targets, which are the body.
func branchTable(n int) string { return const0 + "\x0e" + leb(n) + strings.Repeat("\x00", n+1) }

// nest is n loops in one another.
func nest(n int) string { return strings.Repeat("\x03\x40", n) + strings.Repeat("\x0b", n) }

// squares returns numbers, none above most, whose squares add up to sum.
func squares(sum, most int) (out []int) {
	for n := most; sum > 0; {
		for n*n > sum {
			n--
		}
		out = append(out, n)
		sum -= n * n
	}
	return out
}

// pastLimits has a module for each field of module.Limits, which a test of
// this package counts.
func pastLimits() []Module {
	large := past("Bytes", "moduleBytes", "a file that is a byte too large", func(most module.Limits) []byte {
		const around = 8 + 1 + 4 + 2 // the header, and a custom section's id, size and name
		return file(custom("x", strings.Repeat("\x00", most.Bytes+1-around)))
	})
	large.Code = abi.TooLarge // the host stops reading it
	return append([]Module{large}, append(pastOfModule(), append(pastOfFunction(), pastSums()...)...)...)
}

func pastOfModule() []Module {
	return []Module{
		past("Types", "module.types", "a type too many", func(most module.Limits) []byte {
			return file(section(typeID, many(most.Types+1, noParams)))
		}),
		past("Params", "module.params", "a param too many", func(most module.Limits) []byte {
			return file(section(typeID, list("\x60"+many(most.Params+1, "\x7f")+"\x00")))
		}),
		past("Results", "module.results", "a result too many", func(most module.Limits) []byte {
			return file(section(typeID, list("\x60\x00"+many(most.Results+1, "\x7f"))))
		}),
		past("Imports", "module.imports", "an import too many", func(most module.Limits) []byte {
			return file(section(typeID, list(inputLen)), section(importID, many(most.Imports+1, text(abi.Module)+text("input_len")+"\x00\x00")))
		}),
		past("Functions", "module.functions", "a function too many", func(most module.Limits) []byte {
			return code(repeat(most.Functions+1, noLocals)...)
		}),
		past("Tables", "module.tables", "a table too many", func(most module.Limits) []byte {
			return file(section(tableID, many(most.Tables+1, "\x70\x00\x01")))
		}),
		past("Memories", "module.memories", "a memory too many", func(most module.Limits) []byte {
			return file(section(memoryID, many(most.Memories+1, "\x00\x01")))
		}),
		past("Globals", "module.globals", "a global too many", func(most module.Limits) []byte {
			return file(section(globalID, many(most.Globals+1, "\x7f\x00\x41\x00\x0b")))
		}),
		past("Exports", "module.exports", "an export too many", func(most module.Limits) []byte {
			return file(section(typeID, list(noParams)), section(functionID, list("\x00")), section(exportID, many(most.Exports+1, "\x00\x00\x00")), section(codeID, list(emptyBody)))
		}),
		past("Elements", "module.elements", "an element segment too many", func(most module.Limits) []byte {
			return file(section(elementID, many(most.Elements+1, "\x01\x00\x00")))
		}),
		past("DataSegments", "module.dataSegments", "a data segment too many", func(most module.Limits) []byte {
			return file(section(dataID, many(most.DataSegments+1, passive)))
		}),
		past("CustomSections", "module.customSections", "a custom section too many", func(most module.Limits) []byte {
			return file(strings.Repeat(custom("x", ""), most.CustomSections+1))
		}),
		past("TableMin", "module.tableMin", "a table that begins with an element too many", func(most module.Limits) []byte {
			return file(section(tableID, list("\x70\x00"+leb(most.TableMin+1))))
		}),
		past("MemoryMin", "module.memoryMin", "a memory that begins with a page too many", func(most module.Limits) []byte {
			return file(section(memoryID, list("\x00"+leb(most.MemoryMin+1))))
		}),
		past("ElementInits", "module.elementInits", "a table element too many", func(most module.Limits) []byte {
			half := most.ElementInits / 2
			return file(section(elementID, list("\x01\x00"+many(half, "\x00"), "\x01\x00"+many(most.ElementInits+1-half, "\x00"))))
		}),
	}
}

func pastOfFunction() []Module {
	return []Module{
		past("BodyBytes", "function.body", "a body that is a byte too large", func(most module.Limits) []byte {
			return code(noLocals + strings.Repeat("\x01", most.BodyBytes-1)) // and the end
		}),
		past("Locals", "function.locals", "a local too many", func(most module.Limits) []byte {
			return code(locals(most.Locals + 1))
		}),
		past("Nesting", "function.nesting", "a block too deep", func(most module.Limits) []byte {
			return code(noLocals + strings.Repeat("\x02\x40", most.Nesting+1) + strings.Repeat("\x0b", most.Nesting+1))
		}),
		past("BrTable", "function.brTable", "a branch table with a target too many", func(most module.Limits) []byte {
			return code(noLocals + branchTable(most.BrTable+1))
		}),
		past("BrTargets", "function.brTargets", "branch tables of one function with a target too many", func(most module.Limits) []byte {
			return code(noLocals + strings.Repeat(branchTable(most.BrTable), most.BrTargets/most.BrTable) + branchTable(most.BrTargets%most.BrTable+1))
		}),
		past("Loops", "function.loops", "a loop too many", func(most module.Limits) []byte {
			return code(noLocals + strings.Repeat(loop, most.Loops+1))
		}),
		past("Blocks", "function.blocks", "a block too many", func(most module.Limits) []byte {
			return code(noLocals + strings.Repeat(block, most.Blocks+1))
		}),
		past("LocalsBlocks", "function.localsBlocks", "too many blocks for the locals", func(most module.Limits) []byte {
			const n = 399
			return code(locals(n) + strings.Repeat(block, most.LocalsBlocks/(n+1)+1))
		}),
		past("LocalsBranches", "function.localsBranches", "too many branches for the locals", func(most module.Limits) []byte {
			const n = 3999
			return code(locals(n) + strings.Repeat("\x0c\x00", most.LocalsBranches/(n+1)+1))
		}),
		past("Weight", "function.weight", "too many locals in too deep a nest of loops", func(most module.Limits) []byte {
			const n = 99
			deep := 1
			for (deep+1)*deep*((n+1)*(n+1)+64) <= most.Weight {
				deep++
			}
			return code(locals(n) + nest(deep))
		}),
		over("function.localsChecks", "too many calls for the locals", func() []byte {
			return code(locals(4000) + strings.Repeat("\x10\x00", 100_000))
		}),
	}
}

func pastSums() []Module {
	return []Module{
		past("SumLocals", "module.locals", "functions with a local too many together", func(most module.Limits) []byte {
			full := most.SumLocals / most.Locals
			return code(append(repeat(full, locals(most.Locals)), locals(most.SumLocals-full*most.Locals+1))...)
		}),
		past("SumBrTable", "module.brTable", "branch tables of all functions with a target too many", func(most module.Limits) []byte {
			const n = 500
			return code(append(repeat(most.SumBrTable/n, noLocals+branchTable(n)), noLocals+branchTable(1+most.SumBrTable%n))...)
		}),
		past("SumLocalsBlocks", "module.localsBlocks", "functions with too many blocks for their locals together", func(most module.Limits) []byte {
			const n, blocks = 199, 1000
			return code(append(repeat(most.SumLocalsBlocks/(n+1)/blocks, locals(n)+strings.Repeat(block, blocks)), noLocals+block)...)
		}),
		past("SumBlocksSquared", "module.blocksSquared", "functions with too many blocks together", func(most module.Limits) []byte {
			return code(each(squares(most.SumBlocksSquared+1, most.Blocks), func(n int) string { return noLocals + strings.Repeat(block, n) })...)
		}),
		past("SumLoopsSquared", "module.loopsSquared", "functions with too many loops together", func(most module.Limits) []byte {
			return code(each(squares(most.SumLoopsSquared+1, most.Loops), func(n int) string { return noLocals + strings.Repeat(loop, n) })...)
		}),
		past("SumJumpsSquared", "module.jumpsSquared", "functions with too many branches together", func(most module.Limits) []byte {
			return code(each(squares(most.SumJumpsSquared+1, 12_000), func(n int) string { return noLocals + strings.Repeat(const0+"\x0d\x00", n) })...)
		}),
		past("SumIndirect", "module.indirect", "calls through tables, one too many", func(most module.Limits) []byte {
			const n = 10_000
			return code(append(repeat(most.SumIndirect/n, noLocals+strings.Repeat(const0+"\x11\x00\x00", n)), noLocals+const0+"\x11\x00\x00")...)
		}),
		past("SumBrTargetsSquared", "module.brTargetsSquared", "functions with too large branch tables together", func(most module.Limits) []byte {
			return code(each(squares(most.SumBrTargetsSquared+1, most.BrTable), func(n int) string { return noLocals + branchTable(n) })...)
		}),
		past("SumWeight", "module.weight", "functions with too many locals in nests of loops together", func(most module.Limits) []byte {
			const n, deep = 99, 100
			one := (deep + 1) * deep * ((n+1)*(n+1) + 64)
			return code(repeat(most.SumWeight/one+1, locals(n)+nest(deep))...)
		}),
		over("module.rewritten", "thirty thousand functions of nothing but calls and fuel checks", func() []byte {
			return code(repeat(30_000, noLocals+strings.Repeat("\x10\x00\x03\x40\x0b", 12))...)
		}),
	}
}

func repeat(n int, body string) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = body
	}
	return out
}

func each(numbers []int, body func(n int) string) []string {
	out := make([]string, len(numbers))
	for i, n := range numbers {
		out[i] = body(n)
	}
	return out
}

// sizes are modules of a million of each thing.
func sizes() []Module {
	const million = 1_000_000
	return []Module{
		over("module.types", "a million types", func() []byte { return file(section(typeID, many(million, noParams))) }),
		over("module.functions", "a million functions", func() []byte { return code(repeat(million, noLocals)...) }),
		over("module.globals", "a million globals", func() []byte { return file(section(globalID, many(million, "\x7f\x00\x41\x00\x0b"))) }),
		over("module.exports", "a million exports", func() []byte { return file(section(exportID, many(million, "\x00\x00\x00"))) }),
		over("module.elements", "a million element segments", func() []byte { return file(section(elementID, many(million, "\x01\x00\x00"))) }),
		over("module.elementInits", "a million functions in a table", func() []byte { return file(section(elementID, list("\x01\x00"+many(million, "\x00")))) }),
		over("module.dataSegments", "a million data segments", func() []byte { return file(section(dataID, many(million, passive))) }),
		over("module.tables", "a million tables", func() []byte { return file(section(tableID, many(million, "\x70\x00\x01"))) }),
		over("module.memories", "a million memories", func() []byte { return file(section(memoryID, many(million, "\x00\x01"))) }),
		over("module.customSections", "a million custom sections", func() []byte { return file(strings.Repeat(section(0, "\x01x"), million)) }),
		over("module.imports", "a million imports", func() []byte {
			return file(section(typeID, list(noParams)), section(importID, many(million, "\x01x\x01x\x00\x00")))
		}),
		over("function.body", "a million instructions in one function", func() []byte { return code(noLocals + strings.Repeat("\x01", million)) }),
		over("function.nesting", "a hundred thousand nested blocks", func() []byte {
			return code(noLocals + strings.Repeat("\x02\x40", 100_000) + strings.Repeat("\x0b", 100_000)[:20_000])
		}),
		over("module.tableMin", "a table that begins with four billion elements", func() []byte { return file(section(tableID, list("\x70\x00"+huge))) }),
		over("module.memoryMin", "a memory that begins with 4 GiB", func() []byte { return file(section(memoryID, list("\x00\x80\x80\x04"))) }),
		over("module.memoryMin", "a memory that begins with 256 TiB", func() []byte { return file(section(memoryID, list("\x00"+huge))) }),
	}
}
