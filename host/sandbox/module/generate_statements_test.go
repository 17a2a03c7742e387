package module_test

import "github.com/carrelhost/carrel/host/sandbox/wasmtest"

// statement leaves the operand stack as it was.
func (g *generator) statement() {
	f := g.f
	switch g.n(15) {
	case 0, 1:
		l := g.n(len(g.locals) - 1)
		g.expr(g.locals[l])
		f.Set(uint32(l))
	case 2:
		global := 1 + g.n(len(g.globals)-2)
		g.expr(g.globals[global])
		f.GlobalSet(uint32(global))
	case 3:
		g.address()
		g.expr(i32T)
		f.Store()
	case 4:
		g.expr(i32T)
		f.If()
		g.nested(nil)
		if g.n(1) == 0 {
			f.Else()
			g.nested(nil)
		}
		f.End()
	case 5:
		f.Block()
		g.nested(nil)
		f.End()
	case 6:
		f.Loop()
		g.labels = append(g.labels, nil)
		g.tick()
		g.statements()
		g.expr(i32T)
		f.BrIf(0)
		g.labels = g.labels[:len(g.labels)-1]
		f.End()
	case 7: // br or br_if
		label := g.n(len(g.labels) - 1)
		takes := g.labels[len(g.labels)-1-label]
		g.exprs(takes)
		if g.rare(4) {
			f.Br(uint32(label))
			return
		}
		g.expr(i32T)
		f.BrIf(uint32(label))
		g.drops(takes)
	case 8:
		g.branchTable()
	case 9:
		if g.rare(4) {
			g.exprs(g.self.results)
			f.Raw(0x0f)
		}
	case 10:
		i := g.n(len(g.sigs) - 1)
		g.exprs(g.sigs[i].params)
		f.Call(g.funcs[i].Index)
		g.drops(g.sigs[i].results)
	case 11:
		i := g.n(len(g.sigs) - 1)
		g.exprs(g.sigs[i].params)
		g.f.Const(int32(g.n(9)))
		f.CallIndirect(g.m.Type(g.sigs[i].params, g.sigs[i].results))
		g.drops(g.sigs[i].results)
	case 12, 13:
		g.bulk()
	case 14:
		if g.rare(10) {
			f.Unreachable()
		}
	default:
		g.tables()
	}
}

// nested writes the inside of a block whose label takes such values.
func (g *generator) nested(takes []byte) {
	g.labels = append(g.labels, takes)
	g.statements()
	g.labels = g.labels[:len(g.labels)-1]
}

// branchTable goes to labels that all take nothing.
func (g *generator) branchTable() {
	var labels []byte
	for label := range g.labels {
		if len(g.labels[len(g.labels)-1-label]) == 0 {
			labels = append(labels, byte(label))
		}
	}
	if len(labels) == 0 {
		return
	}
	n := g.n(3)
	g.f.Block()
	g.expr(i32T)
	g.f.Raw(0x0e, byte(n))
	for range n + 1 {
		g.f.Raw(1 + labels[g.n(len(labels)-1)])
	}
	g.f.End()
}

// length pushes that of a bulk operation: short, long, and seldom too much.
func (g *generator) length() {
	g.f.Const([]int32{0, 1, 40, 4096, 4097, mib, mib + 1, 2*mib + 3, -1}[g.n(8)])
}

func (g *generator) place() {
	g.f.Const([]int32{0, 3, 5000, 1000, mib / 2, genPages << 16, -8}[g.n(6)])
}

func (g *generator) bulk() {
	f := g.f
	switch g.n(4) {
	case 0:
		g.place()
		g.expr(i32T)
		g.length()
		f.Raw(0xfc, 11, 0)
	case 1, 2:
		g.place()
		g.place()
		g.length()
		f.Raw(0xfc, 10, 0, 0)
	case 3:
		g.place()
		g.f.Const([]int32{0, 2, 5000, genBig}[g.n(3)])
		g.f.Const([]int32{0, 5, mib, mib + 2, genBig}[g.n(4)])
		f.Raw(0xfc, 8, byte(1+g.n(1)), 0)
	default:
		if g.rare(3) {
			f.Raw(0xfc, 9, byte(1+g.n(1))) // data.drop
		}
	}
}

func (g *generator) tables() {
	f := g.f
	switch g.n(4) {
	case 0:
		f.Const(int32(g.n(9)))
		if g.n(1) == 0 {
			f.Raw(0xd0, wasmtest.FuncRef)
		} else {
			f.Raw(0xd2, byte(g.funcs[g.n(len(g.funcs)-1)].Index))
		}
		f.Raw(0x26, 0)
	case 1:
		f.Const(int32(g.n(8))).Const(int32(g.n(8))).Const(int32(g.n(3))).Raw(0xfc, 14, 0, 0)
	case 2:
		f.Const(int32(g.n(8))).Const(int32(g.n(2))).Const(int32(g.n(2))).Raw(0xfc, 12, byte(g.passive), 0)
	case 3:
		f.Const(int32(g.n(8))).Raw(0x25, 0, 0xd1).Drop()
	default:
		if g.rare(3) {
			f.Raw(0xfc, 13, byte(g.passive))
		}
	}
}
