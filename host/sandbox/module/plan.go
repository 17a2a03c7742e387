package module

// A unit of fuel is a nanosecond or less, but for what memoryUnits says.
const (
	// runUnits is the most work, in units, between two checks on any way
	// through a function.
	runUnits = 256
	// prepaidUnits is the most that a check at an entry or a loop header
	// charges for the code behind it. Not all of it runs each time, so more
	// would charge dispatch loops for every case that they do not take; what
	// is longer is charged by the checks in it.
	prepaidUnits = 64
	// closeChecks is how many checks of one function are so close. Engines
	// compile a branch the slower the more there are: what comes behind them
	// has checks farUnits apart, and prepays up to farPrepaid.
	closeChecks = 64
	farUnits    = 4096
	farPrepaid  = 1024
	// unwoundBytes is as how many bytes of its frame a unit counts, at least,
	// that a function does after its last check, when it returns. That adds up
	// in a deep stack that unwinds without any check: so the stack limit bounds
	// it too, a million units for 16 MiB.
	unwoundBytes = 16
	// memoryUnits are for what reads or writes memory. What no cache has, nor
	// what maps its page, takes 250 ns, in virtual machines more, where nearly
	// all takes one: whoever divides fuel into slices reckons with it.
	memoryUnits = 6
	// leafUnits is the most that a function may do outside of its loops and not
	// be charged for: callUnits of its caller cover it. It is less than one call
	// costs, so that there is none among it.
	leafUnits = 48
	callUnits = leafUnits + 8
	// leafFrameBytes is the largest frame that a function without calls may
	// put on the stack uncounted. There is never more than one such frame.
	leafFrameBytes = 1024
	// localsChecks bounds locals times checks of one function: a check is a
	// branch, which carries every local in the compiler's graph. Measured, 4
	// million take 8 seconds to compile.
	localsChecks = 1_000_000
	// inlineBulk is how many bulk operations of one function have a branch of
	// their own; the others always call their helper.
	inlineBulk = 64
)

// check is a fuel check before the instruction that starts at a byte of the
// module; none if units is 0.
type check struct {
	at, units int
	prepays   int  // the most that units may be
	repeats   bool // it is the first thing in a loop that a branch without values repeats
}

// plan says what is put into one function.
type plan struct {
	checks  []check // by place
	counted bool    // its frame counts against the stack limit
	spare   bool    // it needs an i32 local more
	frame   int     // bytes of native stack
}

// planner walks a body and makes its plan.
type planner struct {
	rewriter *rewriter
	d        *decoder
	checks   []check
	blocks   []openBlock
	frame    frameEstimate

	run    int // units since the last check on the longest way to here; -1 if nothing gets here
	pays   int // index of the entry's or loop's check that pays for the code here
	moves  int // units of a branch, which may move every local
	calls  bool
	spare  bool
	atHead bool // nothing but openings of blocks before
}

type openBlock struct {
	op     byte
	block  blockType
	base   int // height of the operand stack below its params
	pays   int // for the code behind the block
	joined int // the longest run of a branch to its end; -1 if there is none
	atElse int // the run where its else begins; -1 if it is no if
	since  int // the frame's clock where it began
}

// plan returns the plan of the body that the decoder is at. It is valid until
// the next one.
func (p *planner) plan(s signature, locals int) (plan, error) {
	start := p.d.body.r.pos
	*p = planner{rewriter: p.rewriter, d: p.d, checks: append(p.checks[:0], check{at: start, units: 1, prepays: prepaidUnits}),
		blocks: p.blocks[:0], frame: p.frame, moves: locals / 32, atHead: true}
	p.frame.begin(s, locals)
	p.blocks = append(p.blocks, openBlock{block: blockType{results: len(s.results)}, joined: -1, atElse: -1})
	for len(p.blocks) > 0 {
		i, err := p.d.next()
		if err != nil {
			return plan{}, err
		}
		if err := p.instruction(&i); err != nil {
			return plan{}, err
		}
	}
	if err := p.d.body.r.done(); err != nil {
		return plan{}, err
	}
	if p.checks[0].units <= leafUnits {
		p.checks[0].units = 0
	}
	if n := len(p.checks) * (locals + 1); n > localsChecks {
		return plan{}, overLimit("function.localsChecks", "byte %d (%s): its locals times the checks that it needs are %d, "+
			"at most %d are allowed; split the function", start, p.d.body.r.where, n, localsChecks)
	}
	bytes := p.frame.bytes()
	if p.calls { // else nothing is above it that unwinds
		bytes = max(bytes, unwoundBytes*p.run)
	}
	return plan{p.checks, p.calls || bytes > leafFrameBytes, p.spare, bytes}, nil
}

func (p *planner) instruction(i *instr) error {
	u := p.cost(i)
	p.checks[p.pays].charge(u)
	apart, _ := p.spacing()
	if p.run > 0 && p.run+u > apart {
		p.checks = append(p.checks, check{at: i.start, units: p.run})
		p.frame.event()
		p.run = 0
	}
	if p.run >= 0 {
		p.run += u
	}
	p.atHead = p.atHead && (i.op == opBlock || i.op == opLoop)
	switch i.op {
	case opBlock, opLoop, opIf:
		p.open(i)
	case opElse:
		p.otherwise()
	case opEnd:
		p.close()
	case opBr, opBrIf:
		p.frame.pop(i.pops())
		if err := p.branch(i, i.a); err != nil {
			return err
		}
		if i.op == opBr {
			p.dead()
		}
	case opBrTable:
		for _, label := range i.labels {
			if err := p.branch(i, label); err != nil {
				return err
			}
		}
		p.dead()
	case opReturn:
		p.blocks[0].joined = max(p.blocks[0].joined, p.run)
		p.dead()
	case opUnreachable:
		p.dead()
	case opCall, opCallIndirect:
		return p.call(i)
	case opLocalGet, opLocalSet, opLocalTee:
		if int64(i.a) >= int64(p.frame.locals) { // the rewriter's own would be next
			return malformed(i.start, p.d.body.r.where, "it uses local %d of %d", i.a, p.frame.locals)
		}
		p.plain(i)
	default:
		p.plain(i)
	}
	return nil
}

func (c *check) charge(units int) { c.units = min(c.units+units, c.prepays) }

// spacing returns how many units may be between two checks, and how many a
// check prepays.
func (p *planner) spacing() (apart, prepays int) {
	if len(p.checks) > closeChecks {
		return farUnits, farPrepaid
	}
	return runUnits, prepaidUnits
}

func (p *planner) plain(i *instr) {
	f := &p.frame
	switch {
	case i.op == opLocalSet, i.op == opLocalTee:
		f.write(int(i.a))
	case i.op == opVector:
		f.vectors = true
	case i.bulk():
		// There will be a call.
		p.spare = p.spare || i.often()
		f.pop(i.pops())
		p.called()
		f.push(i.pushes())
		return
	}
	f.pop(i.pops())
	f.push(i.pushes())
}

func (p *planner) call(i *instr) error {
	w := p.rewriter
	var t signature
	switch {
	case i.op == opCall && int64(i.a) < int64(len(w.functions)):
		t = w.types[w.functions[i.a]]
	case i.op == opCallIndirect && int64(i.a) < int64(w.ownTypes):
		t = w.types[i.a]
		p.frame.pop(1)
	default:
		return malformed(i.start, p.d.body.r.where, "it calls %d, which is not there", i.a)
	}
	p.frame.pop(len(t.params))
	p.called()
	p.frame.arguments(t)
	p.frame.push(len(t.results))
	return nil
}

func (p *planner) called() {
	p.calls = true
	p.frame.event()
}

func (p *planner) open(i *instr) {
	f := &p.frame
	if i.op == opIf {
		f.pop(1)
	}
	f.pop(i.block.params)
	b := openBlock{op: i.op, block: i.block, base: f.height, pays: p.pays, joined: -1, atElse: -1, since: f.clock}
	f.push(i.block.params)
	switch i.op {
	case opIf:
		b.atElse = p.run
	case opLoop:
		if p.atHead {
			p.checks[p.pays].units = 0 // the loop's own comes at once; the code behind the loop is charged anew
		}
		p.pays = len(p.checks)
		_, prepays := p.spacing()
		p.checks = append(p.checks, check{at: i.end, units: 1, prepays: prepays, repeats: i.block.params == 0})
		if p.run >= 0 {
			p.run = 0
		}
		f.event()
	}
	p.blocks = append(p.blocks, b)
}

// otherwise goes from the end of an if's first branch to its second.
func (p *planner) otherwise() {
	b := &p.blocks[len(p.blocks)-1]
	b.joined = max(b.joined, p.run)
	p.run, b.atElse = b.atElse, -1
	p.frame.reset(b.base)
	p.frame.push(b.block.params)
	p.pays = b.pays
}

func (p *planner) close() {
	b := p.blocks[len(p.blocks)-1]
	p.blocks = p.blocks[:len(p.blocks)-1]
	p.run = max(p.run, b.joined, b.atElse)
	p.pays = b.pays
	p.frame.join(&b)
}

// branch refuses labels that are not there: behind wrap there would be one more.
func (p *planner) branch(i *instr, label uint32) error {
	if int64(label) >= int64(len(p.blocks)) {
		return malformed(i.start, p.d.body.r.where, "it branches to label %d of %d", label, len(p.blocks))
	}
	if b := &p.blocks[len(p.blocks)-1-int(label)]; b.op != opLoop {
		b.joined = max(b.joined, p.run)
	}
	return nil
}

// dead begins code that nothing reaches.
func (p *planner) dead() {
	p.run = -1
	p.frame.reset(p.blocks[len(p.blocks)-1].base)
}

// cost returns the units of an instruction.
func (p *planner) cost(i *instr) int {
	switch op := i.op; {
	case op == opBr, op == opBrIf, op == opBrTable, op == opElse, op == opEnd, op == opReturn:
		return 1 + p.moves
	case op == opCall:
		return callUnits
	case op == opCallIndirect, op == opRefFunc, i.bulk(): // engines call a function of their own for a reference
		return callUnits + 8
	case op >= 0x6d && op <= 0x70: // divisions of integers of 32 bits
		return 12
	case op >= 0x7f && op <= 0x82: // of 64 bits
		return 24
	case op == 0x91, op == 0x95, op == 0x9f, op == 0xa3: // square roots, divisions of floats
		return 8
	case op == opVector && (i.sub <= 11 || i.sub >= 84 && i.sub <= 93), // loads and stores of vectors and lanes
		op == opTableGet, op == opTableSet, op >= 0x28 && op <= 0x3e:
		return memoryUnits
	case op == opVector, op >= 0xa8 && op <= 0xb1, op == opMisc: // conversions
		return 4
	default:
		return 1
	}
}
