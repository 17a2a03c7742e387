package module

// code walks the bodies of all functions, in step with their types: params
// are locals to a compiler.
func (l *linter) code(r *reader) error {
	n, err := r.vector(vectorLimit{}, 3)
	if err != nil {
		return err
	}
	l.bodies = n
	if n != l.functions {
		return malformed(r.pos, r.where, "%d functions have code, but %d are declared", n, l.functions)
	}
	for i := range n {
		start := r.pos
		size, err := r.u32("body size")
		if err != nil {
			return err
		}
		if int64(size) > int64(r.left()) {
			return malformed(start, r.where, "the body of function %d says it is %d bytes long, but only %d follow", i, size, r.left())
		}
		where := within(l.module.importedFunctions + i)
		if int64(size) > int64(l.limits.BodyBytes) {
			return overLimit("function.body", "byte %d (%s): its body is %d bytes, at most %d are allowed; "+
				"split the function or turn down inlining", start, where, size, l.limits.BodyBytes)
		}
		params, err := l.nextParams()
		if err != nil {
			return err
		}
		b := &body{linter: l, r: r.take(int(size), where), locals: params}
		if err := b.walk(); err != nil {
			return err
		}
	}
	return r.done()
}

// nextParams returns how many params the next declared function has.
func (l *linter) nextParams() (int, error) {
	index, err := l.functionTypes.u32("type index")
	if err != nil {
		return 0, err
	}
	n, err := l.typeReader(int(index)).u32("params")
	return int(n), err
}

// typeReader reads a function type, which exists, from its number of params on.
func (l *linter) typeReader(index int) *reader {
	return &reader{all: l.module.bytes, pos: int(l.module.types[index]) + 1, end: len(l.module.bytes), where: "type section"}
}

// body is the walk through one function.
type body struct {
	*linter
	r      *reader
	locals int // with params

	depth, loops, blocks, brTable int

	branches  int // blocks, branches and the targets of branch tables
	jumps     int // of these, without the targets
	indirect  int // calls through tables, table accesses, memory.grow and bulk operations
	wide      int // the most params or results of one block
	loopsIn   int // loops around this place
	loopsDeep int // the most loops around any place
}

func (b *body) walk() error {
	if err := b.readLocals(); err != nil {
		return err
	}
	b.opened = append(b.opened[:0], false)
	for b.depth = 1; b.depth > 0; {
		start := b.r.pos
		op, err := b.r.byte("instruction")
		if err != nil {
			return err
		}
		if err := b.instruction(op, start); err != nil {
			return err
		}
	}
	if err := b.r.done(); err != nil {
		return err
	}
	return b.sums()
}

func (b *body) readLocals() error {
	groups, err := b.r.vector(vectorLimit{"function.locals", b.limits.Locals}, 2)
	if err != nil {
		return err
	}
	declared := 0
	for range groups {
		start := b.r.pos
		n, err := b.r.u32("number of locals")
		if err != nil {
			return err
		}
		if int64(n) > int64(b.limits.Locals-declared) {
			return overLimit("function.locals", "byte %d (%s): it has %d locals or more, at most %d are allowed",
				start, b.r.where, int64(declared)+int64(n), b.limits.Locals)
		}
		declared += int(n)
		if err := valType(b.r); err != nil {
			return err
		}
	}
	b.locals += declared
	return nil
}

// carried is how many values a branch carries at most in the compiler's graph:
// every local, and what the block that it goes to takes or gives.
func (b *body) carried() int { return b.locals + 1 + b.wide }

// weight is what the compiler's hunt for values that are always the same can
// take: it looks at each value of a branch once for every other one, and goes
// through the whole function again for each loop around a loop. The constant
// is what a branch costs that carries nothing. Measured, a billion is up to a
// second.
func (b *body) weight() int {
	return (b.loopsDeep + 1) * b.branches * (b.carried()*b.carried() + 64)
}

// sums adds what the function costs to the module's sums.
func (b *body) sums() error {
	for _, c := range []struct {
		name       string
		have, most int
		what       string
	}{
		{"function.localsBranches", b.carried() * b.branches, b.limits.LocalsBranches, "locals times branches"},
		{"function.weight", b.weight(), b.limits.Weight, "nested loops times branches times the square of the locals"},
	} {
		if c.have > c.most {
			return overLimit(c.name, "byte %d (%s): %s are %d, at most %d are allowed; split the function",
				b.r.pos, b.r.where, c.what, c.have, c.most)
		}
	}
	for _, sum := range []struct {
		name  string
		total *int
		more  int
		most  int
	}{
		{"module.locals", &b.linter.locals, b.locals, b.limits.SumLocals},
		{"module.brTable", &b.linter.brTable, b.brTable, b.limits.SumBrTable},
		{"module.localsBlocks", &b.localsBlocks, (b.locals + 1) * b.blocks, b.limits.SumLocalsBlocks},
		{"module.blocksSquared", &b.blocksSquared, b.blocks * b.blocks, b.limits.SumBlocksSquared},
		{"module.brTargetsSquared", &b.brTargetsSquared, b.brTable * b.brTable, b.limits.SumBrTargetsSquared},
		{"module.jumpsSquared", &b.jumpsSquared, b.jumps * b.jumps, b.limits.SumJumpsSquared},
		{"module.indirect", &b.linter.indirect, b.indirect, b.limits.SumIndirect},
		{"module.loopsSquared", &b.loopsSquared, b.loops * b.loops, b.limits.SumLoopsSquared},
		{"module.weight", &b.linter.weight, b.weight(), b.limits.SumWeight},
	} {
		if *sum.total += sum.more; *sum.total > sum.most {
			return overLimit(sum.name, "byte %d (%s): with this function the module's sum is %d, at most %d are allowed; "+
				"it would take too long to compile", b.r.pos, b.r.where, *sum.total, sum.most)
		}
	}
	return nil
}

// open counts a block, loop or if.
func (b *body) open(start int, loop bool) error {
	if err := b.blockType(); err != nil {
		return err
	}
	b.depth++
	b.blocks++
	b.branches++
	b.jumps++
	b.opened = append(b.opened, loop)
	if loop {
		b.loops++
		b.loopsIn++
		b.loopsDeep = max(b.loopsDeep, b.loopsIn)
	}
	for _, c := range []struct {
		name       string
		have, most int
		what       string
	}{
		// The body itself is the outermost block.
		{"function.nesting", b.depth - 1, b.limits.Nesting, "nested blocks"},
		{"function.blocks", b.blocks, b.limits.Blocks, "blocks"},
		{"function.loops", b.loops, b.limits.Loops, "loops"},
		{"function.localsBlocks", (b.locals + 1) * b.blocks, b.limits.LocalsBlocks, "locals times blocks"},
	} {
		if c.have > c.most {
			return overLimit(c.name, "byte %d (%s): it has more than %d %s; split the function", start, b.r.where, c.most, c.what)
		}
	}
	return nil
}

// blockType reads nothing (0x40), a value type or a type index.
func (b *body) blockType() error {
	start := b.r.pos
	c, err := b.r.byte("block type")
	if err != nil {
		return err
	}
	if c == 0x40 || valTypeName(c) != "" {
		return nil
	}
	b.r.pos = start
	index, err := b.r.signed("block type", 33)
	if err != nil {
		return err
	}
	if index < 0 || index >= int64(len(b.module.types)) {
		return malformed(start, b.r.where, "block type %d, but there are %d types", index, len(b.module.types))
	}
	r := b.typeReader(int(index))
	for range 2 { // params, then results
		n, err := r.u32("types")
		if err != nil {
			return err
		}
		b.wide = max(b.wide, int(n))
		if err := r.skip(int(n), "types"); err != nil {
			return err
		}
	}
	return nil
}

// close leaves a block, or the body.
func (b *body) close() {
	b.depth--
	if b.opened[b.depth] {
		b.loopsIn--
	}
	b.opened = b.opened[:b.depth]
}

// indices skips n unsigned immediates.
func (b *body) indices(n int, what string) error {
	for range n {
		if _, err := b.r.u32(what); err != nil {
			return err
		}
	}
	return nil
}

// memory skips an alignment and an offset. Higher alignments than any access
// has are those of the multi-memory proposal.
func (b *body) memory() error {
	start := b.r.pos
	align, err := b.r.u32("alignment")
	if err != nil {
		return err
	}
	if align >= 32 {
		return malformed(start, b.r.where, "alignment 2^%d; more than one memory is not supported", align)
	}
	_, err = b.r.u32("offset")
	return err
}

func (b *body) branchTable() error {
	start := b.r.pos
	n, err := b.r.vector(vectorLimit{"function.brTable", b.limits.BrTable}, 1)
	if err != nil {
		return err
	}
	b.branches += n + 1
	if b.brTable += n; b.brTable > b.limits.BrTargets {
		return overLimit("function.brTargets", "byte %d (%s): its branch tables have more than %d targets; split the function",
			start, b.r.where, b.limits.BrTargets)
	}
	return b.indices(n+1, "branch target")
}

func (b *body) unknown(start int, text string) error {
	return malformed(start, b.r.where, "%s; turn it off in the compiler", text)
}
