package sandbox_test

import (
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox"
	"github.com/carrelhost/carrel/host/sandbox/module"
	"github.com/carrelhost/carrel/host/sandbox/wasmtest"
)

// generator writes valid modules: each statement leaves the stack as it found
// it, and every index exists.
type generator struct {
	r      *rand.Rand
	m      *wasmtest.Module
	f      *wasmtest.Func
	funcs  []*wasmtest.Func
	budget int
}

func generate(seed uint64) []byte {
	g := &generator{r: rand.New(rand.NewPCG(seed, 1)), m: wasmtest.New()}
	g.m.Carrel("now_ns")
	g.m.WASI("sched_yield")
	g.m.Memory(1)
	g.m.Table(4)
	g.m.Global(7)
	for range 1 + g.r.IntN(5) {
		g.funcs = append(g.funcs, g.m.Func(nil, nil).Locals(2, wasmtest.I32).Locals(1, wasmtest.I64).Locals(1, wasmtest.F64).Locals(1, wasmtest.V128))
	}
	g.m.Elements(0, g.funcs[0].Index)
	g.m.Passive([]byte("passive"))
	g.m.Data(16, []byte("active"))
	for _, g.f = range g.funcs {
		g.budget = 40
		g.statements(0)
	}
	g.m.Method("run").Const(0)
	return g.m.Bytes()
}

func (g *generator) statements(depth int) {
	for range 1 + g.r.IntN(6) {
		if g.budget--; g.budget < 0 {
			return
		}
		g.statement(depth)
	}
}

// value pushes an i32.
func (g *generator) value() *wasmtest.Code {
	switch f := g.f; g.r.IntN(7) {
	case 0:
		return f.Const(g.r.Int32())
	case 1:
		return f.Get(uint32(g.r.IntN(2)))
	case 2:
		return f.GlobalGet(0)
	case 3:
		return f.Const(int32(g.r.IntN(65000))).Load()
	case 4:
		return f.Raw(0x3f, 0)
	case 5:
		return f.Get(4).Raw(0xfd, 0x1b, 3) // i32x4.extract_lane
	default:
		return f.Const(1).Const(2).Raw(byte(0x46 + g.r.IntN(10))) // a comparison
	}
}

func (g *generator) statement(depth int) {
	f := g.f
	switch g.r.IntN(17) {
	case 0:
		f.Block()
		g.statements(depth + 1)
		f.End()
	case 1:
		f.Loop()
		g.statements(depth + 1)
		f.End()
	case 2:
		g.value().If()
		g.statements(depth + 1)
		f.Else()
		g.statements(depth + 1)
		f.End()
	case 3:
		g.value().BrIf(uint32(g.r.IntN(depth + 1)))
	case 4:
		g.value().Set(uint32(g.r.IntN(2)))
	case 5:
		g.value().GlobalSet(0)
	case 6:
		f.Call(g.funcs[g.r.IntN(len(g.funcs))].Index)
	case 7:
		g.value()
		g.value().Store()
	case 8:
		f.Call(0).Set(2)
	case 9:
		g.value().CallIndirect(g.m.Type(nil, nil))
	case 10:
		// A block of one result.
		f.Raw(0x02, wasmtest.I32)
		g.value().End().Drop()
	case 11:
		f.Block().Block()
		g.value().Raw(0x0e, 2, 0, 1, byte(g.r.IntN(depth+3))).End().End()
	case 12:
		f.Const(0).Const(0).Const(7).Raw(0xfc, 8, 0, 0).Raw(0xfc, 9, 0) // memory.init, data.drop
	case 13:
		f.Const(0).Const(64).Const(9).Raw(0xfc, 10, 0, 0).Const(0).Const(1).Const(2).Raw(0xfc, 11, 0)
	case 14:
		f.Get(3).Get(3).Raw(0xa2).Set(3).Get(3).Raw(0xfc, 6).Set(2) // f64.mul, i64.trunc_sat_f64_s
	case 15:
		f.Get(4).Get(4).Raw(0xfd, 0xae, 1).Set(4) // i32x4.add
	default:
		g.value()
		g.value()
		g.value().Raw(0x1c, 1, wasmtest.I32).Drop()
	}
}

func TestEveryGeneratedModuleIsAdmitted(t *testing.T) {
	s := newSandbox(t, sandbox.Config{})
	for seed := range uint64(300) {
		if _, err := s.Admit(t.Context(), sandbox.Candidate{Module: generate(seed)}); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
}

func FuzzGeneratedModules(f *testing.F) {
	f.Add(uint64(0))
	s := newSandbox(f, sandbox.Config{})
	f.Fuzz(func(t *testing.T, seed uint64) {
		if _, err := s.Admit(t.Context(), sandbox.Candidate{Module: generate(seed)}); err != nil {
			t.Error(err)
		}
	})
}

// FuzzCompile holds what Lint accepts against the engine: it compiles the
// module or says what is wrong with it, and takes neither five seconds nor
// hundreds of megabytes for it.
func FuzzCompile(f *testing.F) {
	for seed := range uint64(10) {
		f.Add(generate(seed))
	}
	f.Add(counter().Bytes())
	f.Add(describer())
	s := newSandbox(f, sandbox.Config{})
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := module.Read(b, module.DefaultLimits())
		if err != nil || module.Lint(m, module.DefaultLimits()) != nil || !m.HasCode() {
			return
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		start := time.Now()
		p, err := s.Open(t.Context(), b, sandbox.Setup{MemoryMiB: abi.MaxMemoryMiB})
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > 256<<20 {
			t.Errorf("%d bytes were allocated for %d", n, len(b))
		}
		if d := time.Since(start); d > 5*time.Second {
			t.Errorf("it took %v", d)
		}
		if err != nil {
			if c := carrel.CodeOf(err); c != abi.InvalidModule {
				t.Error(err)
			}
			return
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
}
