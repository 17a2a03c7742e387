package module_test

import (
	"math"

	"pgregory.net/rapid"

	"github.com/carrelhost/carrel/host/sandbox/wasmtest"
)

// generator writes well-typed modules that end: each loop and each call takes
// a tick from global 0 and traps without one.
type generator struct {
	t       *rapid.T
	m       *wasmtest.Module
	sigs    []genSignature
	funcs   []*wasmtest.Func
	globals []byte // their types; 0 is the ticks
	f       *wasmtest.Func
	self    genSignature
	locals  []byte
	labels  [][]byte // what a branch to each takes, innermost last
	budget  int
	passive uint32
}

type genSignature struct{ params, results []byte }

const (
	genPages = 40
	genTicks = 300
	genBig   = mib + 5000 // bytes of the large passive segment
)

var genTypes = []byte{i32T, i64T, wasmtest.F64}

func (g *generator) n(most int) int { return rapid.IntRange(0, most).Draw(g.t, "n") }

// rare is true once in so many times.
func (g *generator) rare(times int) bool { return g.n(times-1) == times-1 }

func (g *generator) typ() byte { return genTypes[g.n(len(genTypes)-1)] }

func (g *generator) list(most int) []byte {
	out := make([]byte, g.n(most))
	for i := range out {
		out[i] = g.typ()
	}
	return out
}

// generateModule returns a module whose "run" takes two i32. It exports its
// globals as g0 and so on.
func generateModule(t *rapid.T) (wasm []byte, globals int) {
	g := &generator{t: t, m: wasmtest.New()}
	g.m.Carrel("input_len")
	g.m.Memory(genPages)
	for i := range 4 {
		typ := i32T
		if i > 0 {
			typ = g.typ()
		}
		g.globals = append(g.globals, typ)
		g.m.GlobalOf(typ, "g"+string(rune('0'+i)))
	}
	g.sigs = []genSignature{{params: []byte{i32T, i32T}, results: g.list(3)}}
	for range g.n(4) {
		g.sigs = append(g.sigs, genSignature{g.list(3), g.list(3)})
	}
	for _, s := range g.sigs {
		g.funcs = append(g.funcs, g.m.Func(s.params, s.results))
	}
	g.m.Table(8)
	var all []uint32
	for _, f := range g.funcs {
		all = append(all, f.Index)
	}
	g.m.Elements(1, all...)
	g.passive = g.m.PassiveElements(all...)
	g.m.Data(64, []byte("active data"))
	g.m.Passive([]byte("passive data"))
	g.m.Passive(make([]byte, genBig))
	for i, f := range g.funcs {
		g.function(f, g.sigs[i])
	}
	g.m.Export("run", wasmtest.FuncKind, g.funcs[0].Index)
	return g.m.Bytes(), len(g.globals)
}

func (g *generator) function(f *wasmtest.Func, s genSignature) {
	g.f, g.self, g.budget = f, s, 60
	g.locals = append([]byte{}, s.params...)
	for range 1 + g.n(4) {
		typ := g.typ()
		g.locals = append(g.locals, typ)
		f.Locals(1, typ)
	}
	g.labels = [][]byte{s.results}
	if g.n(3) > 0 { // some are leaves
		g.tick()
	}
	g.statements()
	g.exprs(s.results)
}

func (g *generator) tick() {
	g.f.GlobalGet(0).Eqz().If().Unreachable().End().GlobalGet(0).Const(1).Sub().GlobalSet(0)
}

func (g *generator) statements() {
	for range 1 + g.n(5) {
		if g.budget--; g.budget < 0 {
			return
		}
		g.statement()
	}
}

func (g *generator) exprs(types []byte) {
	for _, t := range types {
		g.expr(t)
	}
}

func (g *generator) localOf(typ byte) (uint32, bool) {
	var found []uint32
	for i, t := range g.locals {
		if t == typ {
			found = append(found, uint32(i))
		}
	}
	if len(found) == 0 {
		return 0, false
	}
	return found[g.n(len(found)-1)], true
}

// drops takes values of a stack.
func (g *generator) drops(types []byte) {
	for i := len(types) - 1; i >= 0; i-- {
		if l, ok := g.localOf(types[i]); ok && g.n(1) == 0 {
			g.f.Set(l)
		} else {
			g.f.Drop()
		}
	}
}

func (g *generator) constant(typ byte) {
	switch typ {
	case i32T:
		g.f.Const([]int32{0, 1, -1, 7, 1 << 20, math.MinInt32, int32(g.n(70000))}[g.n(6)])
	case i64T:
		g.f.Const64([]int64{0, 1, -1, 1 << 40, math.MinInt64, int64(g.n(1000))}[g.n(5)])
	default:
		g.f.Raw(0x44, 0, 0, 0, 0, 0, 0, byte(g.n(255)), byte(0x3f+g.n(1)))
	}
}

// expr pushes a value.
func (g *generator) expr(typ byte) {
	if g.budget--; g.budget < 0 {
		g.constant(typ)
		return
	}
	f := g.f
	switch g.n(11) {
	case 0, 1:
		if l, ok := g.localOf(typ); ok {
			f.Get(l)
			return
		}
		g.constant(typ)
	case 2:
		for i, t := range g.globals {
			if t == typ && i > 0 {
				f.GlobalGet(uint32(i))
				return
			}
		}
		g.constant(typ)
	case 3, 4:
		g.expr(typ)
		g.expr(typ)
		f.Raw(map[byte][]byte{
			i32T:         {0x6a, 0x6b, 0x6c, 0x6d, 0x70, 0x71, 0x74, 0x48},
			i64T:         {0x7c, 0x7d, 0x7e, 0x7f, 0x82, 0x83, 0x86, 0x85},
			wasmtest.F64: {0xa0, 0xa1, 0xa2, 0xa0, 0xa1, 0xa2, 0xa0, 0xa2},
		}[typ][g.n(7)])
		if typ == i32T && g.rare(4) {
			f.Eqz()
		}
	case 5: // a conversion
		switch typ {
		case i32T:
			g.expr(i64T)
			f.Wrap()
		case i64T:
			g.expr(i32T)
			f.Raw(0xac)
		default:
			g.expr(i32T)
			f.Raw(0xb7)
		}
	case 6: // a load, mostly within the memory
		g.address()
		switch typ {
		case i32T:
			f.Load()
		case i64T:
			f.Raw(0x29, 3, 0)
		default:
			f.Raw(0x2c, 0, 0, 0xb7) // i32.load8_s, so that no NaN comes out of memory
		}
	case 7: // a block, an if or a loop with a result
		g.blockExpr(typ)
	case 8:
		g.expr(typ)
		g.expr(typ)
		g.expr(i32T)
		f.Raw(0x1b)
	case 9:
		for i, s := range g.sigs {
			if len(s.results) == 1 && s.results[0] == typ {
				g.exprs(s.params)
				f.Call(g.funcs[i].Index)
				return
			}
		}
		g.constant(typ)
	case 10:
		if typ != i32T {
			g.constant(typ)
			return
		}
		switch g.n(2) {
		case 0:
			f.Raw(0x3f, 0)
		case 1:
			f.Const([]int32{0, 1, -1, 5000}[g.n(3)]).Grow()
		default:
			f.Call(0)
		}
	default:
		if l, ok := g.localOf(typ); ok {
			g.expr(typ)
			f.Raw(0x22, byte(l))
			return
		}
		g.constant(typ)
	}
}

func (g *generator) blockExpr(typ byte) {
	f := g.f
	switch g.n(2) {
	case 0:
		f.Raw(0x02, typ)
		g.labels = append(g.labels, []byte{typ})
		g.statements()
		if g.n(1) == 0 {
			g.expr(typ)
			g.expr(i32T)
			f.BrIf(0).Drop()
		}
	case 1:
		g.expr(i32T)
		f.Raw(0x04, typ)
		g.labels = append(g.labels, []byte{typ})
		g.statements()
		g.expr(typ)
		f.Else()
	default:
		f.Raw(0x03, typ)
		g.labels = append(g.labels, nil)
		g.tick()
		g.statements()
	}
	g.expr(typ)
	f.End()
	g.labels = g.labels[:len(g.labels)-1]
}

// address pushes one that is mostly within the memory.
func (g *generator) address() {
	g.expr(i32T)
	if !g.rare(12) {
		g.f.Const(0xfff8).Raw(0x71)
	}
}
