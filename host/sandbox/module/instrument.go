package module

// codeSection returns the rewritten bodies, each behind its size, without
// their number.
func (w *rewriter) codeSection() (code, error) {
	var out code
	b := &body{linter: &linter{module: w.module, limits: DefaultLimits()}}
	d := &decoder{body: b, types: w.types[:w.ownTypes]}
	in := &instrumenter{rewriter: w, d: d, planner: &planner{rewriter: w, d: d}}
	function := w.module.importedFunctions
	err := w.each(sectionCode, func(r *reader) error {
		n, err := r.u32("body size")
		if err != nil {
			return err
		}
		b.r = r.take(int(n), within(function))
		w.function = uint32(function)
		if err := in.function(w.types[w.functions[function]]); err != nil {
			return err
		}
		out.bytes(in.out)
		function++
		return w.checkSize(len(out))
	})
	return out, err
}

// instrumenter writes one function after the other.
type instrumenter struct {
	rewriter *rewriter
	d        *decoder
	planner  *planner
	out      code // of the function at hand
	copied   int  // up to this byte of the module
	plan     plan
	nesting  int
	inlined  int    // bulk operations with a branch
	spare    uint32 // the local of that name in plan
}

func (n *instrumenter) function(s signature) error {
	r := n.d.body.r
	start := r.pos
	locals, err := n.locals(s)
	if err != nil {
		return err
	}
	first := *r
	if n.plan, err = n.planner.plan(s, locals); err != nil {
		return err
	}
	*r = first
	n.spare = uint32(locals)
	if err := n.declare(start); err != nil {
		return err
	}
	n.copied, n.nesting, n.inlined = r.pos, 1, 0
	if n.plan.counted {
		n.enter()
	}
	checks := n.plan.checks
	if len(checks) > 0 && checks[0].at == r.pos {
		n.check(checks[0])
		checks = checks[1:]
	}
	if n.plan.counted {
		n.wrap(s)
	}
	for n.nesting > 0 {
		if len(checks) > 0 && checks[0].at == r.pos {
			n.flush(r.pos)
			n.check(checks[0])
			checks = checks[1:]
		}
		i, err := n.d.next()
		if err != nil {
			return err
		}
		if err := n.instruction(&i); err != nil {
			return err
		}
	}
	n.flush(r.pos)
	return r.done()
}

// locals reads the declarations and returns how many there are, with params.
func (n *instrumenter) locals(s signature) (int, error) {
	r := n.d.body.r
	groups, err := r.vector(vectorLimit{}, 2)
	if err != nil {
		return 0, err
	}
	total := len(s.params)
	for range groups {
		start := r.pos
		count, err := r.u32("number of locals")
		if err != nil {
			return 0, err
		}
		if total += int(count); count > 1<<20 || total > 1<<20 {
			return 0, malformed(start, r.where, "it has %d locals", total)
		}
		if err := valType(r); err != nil {
			return 0, err
		}
	}
	return total, nil
}

// declare writes the declarations of the locals that begin at a byte of the
// module, and one more if the plan needs it.
func (n *instrumenter) declare(start int) error {
	r := *n.d.body.r
	n.out = n.out[:0]
	if !n.plan.spare {
		n.out = append(n.out, r.all[start:r.pos]...)
		return nil
	}
	end := r.pos
	r.pos = start
	groups, err := r.u32("count")
	if err != nil {
		return err
	}
	n.out.u32(groups + 1)
	n.out = append(n.out, r.all[r.pos:end]...)
	n.out.op(1, typeI32)
	return nil
}

// flush copies the module's bytes up to at.
func (n *instrumenter) flush(at int) {
	n.out = append(n.out, n.d.body.r.all[n.copied:at]...)
	n.copied = at
}

// instead leaves out the instruction.
func (n *instrumenter) instead(i *instr) {
	n.flush(i.start)
	n.copied = i.end
}

func (n *instrumenter) instruction(i *instr) error {
	w, where := n.rewriter, n.d.body.r.where
	w.use(i)
	switch i.op {
	case opBlock, opLoop, opIf:
		n.nesting++
	case opEnd:
		n.nesting--
		if n.nesting == 0 && n.plan.counted {
			n.flush(i.start)
			n.out.op(opEnd)
			n.leave()
		}
	case opReturn:
		if n.plan.counted {
			n.instead(i)
			n.out.index(opBr, uint32(n.nesting-1))
		}
	case opCall, opRefFunc:
		if err := w.checkFunction(i.start, where, i.a); err != nil {
			return err
		}
		if w.moved(i.a) != i.a {
			n.instead(i)
			n.out.index(i.op, w.moved(i.a))
		}
	case opGlobalGet, opGlobalSet:
		return w.checkGlobal(i.start, where, i.a)
	case opMemoryGrow, opMisc:
		n.bulk(i)
	}
	return nil
}

func (n *instrumenter) bulk(i *instr) {
	w := n.rewriter
	if i.op == opMisc && (i.sub == miscMemoryInit || i.sub == miscDataDrop) {
		w.usesData = true
	}
	if !i.bulk() {
		return
	}
	index := w.helperIndex(w.helperOf(i))
	switch {
	case i.op == opMemoryGrow:
		n.instead(i)
		n.out.index(opCall, index)
	case i.often() && n.inlined < inlineBulk:
		n.inlined++
		n.flush(i.start)
		n.out.index(opLocalTee, n.spare)
		n.out.get(n.spare)
		n.out.i32(freeBytes)
		n.out.op(opI32GtU, opIf)
		n.out.s64(int64(w.threeType()))
		n.out.index(opCall, index)
		n.out.op(opEnd)
	case i.often():
		whole := helper{kind: helperWholeFill} // index, which it calls, is there already
		if i.sub == miscMemoryCopy {
			whole.kind = helperWholeCopy
		}
		n.instead(i)
		n.out.index(opCall, w.helperIndex(whole))
	default:
		n.flush(i.start)
		n.out.index(opCall, index)
	}
}

// check takes fuel.
func (n *instrumenter) check(c check) {
	if c.units == 0 {
		return
	}
	w := n.rewriter
	n.out.index(opGlobalGet, w.fuel)
	n.out.i64(int64(c.units))
	n.out.op(opI64Sub)
	n.out.index(opGlobalSet, w.fuel)
	if !c.repeats {
		w.yieldIfEmpty(&n.out)
		return
	}
	// The yield leads to the header again, and gives back what it takes there
	// once more: so the rest of the loop has one way to it, and the engine
	// puts the yield behind it.
	w.ifEmpty(&n.out)
	n.out.i64(int64(c.units))
	n.out.op(opI64Add)
	n.out.index(opGlobalSet, w.fuel)
	n.out.index(opBr, 1)
	n.out.op(opEnd)
}

func (w *rewriter) yieldIfEmpty(c *code) {
	w.ifEmpty(c)
	c.index(opGlobalSet, w.fuel)
	c.op(opEnd)
}

// ifEmpty begins a block that runs without fuel, with what yield returned on
// the stack. It is an else: the engine gives the code behind it the registers
// that the first of the ways there leaves, and a call leaves none. With the
// call in the first, all that is live would be stored and loaded each time.
func (w *rewriter) ifEmpty(c *code) {
	c.index(opGlobalGet, w.fuel)
	c.i64(0)
	c.op(opI64GeS, opIf, typeEmpty, opElse)
	c.index(opCall, w.yield)
}

// enter counts the frame, unless it is too much.
func (n *instrumenter) enter() {
	w := n.rewriter
	n.addDepth(opI32Add)
	n.out.index(opGlobalGet, w.depth)
	n.out.i32(int64(w.stackBytes()))
	n.out.op(opI32GtU, opIf, typeEmpty)
	n.out.index(opCall, w.excess)
	n.out.op(opUnreachable, opEnd)
}

func (n *instrumenter) leave() { n.addDepth(opI32Sub) }

func (n *instrumenter) addDepth(op byte) {
	n.out.index(opGlobalGet, n.rewriter.depth)
	n.out.i32(int64(n.plan.frame))
	n.out.op(op)
	n.out.index(opGlobalSet, n.rewriter.depth)
}

// mostStack leaves room for one frame more in the counter's 32 bits.
const mostStack = 1 << 30

func (w *rewriter) stackBytes() int32 { return int32(max(1, min(w.options.StackBytes, mostStack))) }

// wrap begins a block around the whole body. Its label is where the
// function's own was, so branches need no change and lead to leave.
func (n *instrumenter) wrap(s signature) {
	n.out.op(opBlock)
	switch len(s.results) {
	case 0:
		n.out.op(typeEmpty)
	case 1:
		n.out.op(s.results[0])
	default:
		n.out.s64(int64(n.rewriter.typeIndex(nil, s.results)))
	}
}
