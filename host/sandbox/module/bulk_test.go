package module_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tetratelabs/wazero/api"

	"github.com/carrelhost/carrel/host/sandbox/module"
	"github.com/carrelhost/carrel/host/sandbox/wasmtest"
)

const (
	mib     = 1 << 20
	bulkMiB = 8
	bigSeg  = 3*mib + 17
)

// bulkModule exports fill, copy, init of a large and of a small segment, drop
// and grow.
func bulkModule(big, small []byte) []byte {
	m := wasmtest.New()
	m.Carrel("input_len")
	m.Memory(bulkMiB * 16)
	m.Passive(big)
	m.Passive(small)
	three := func(name string, op ...byte) {
		f := m.Func([]byte{i32T, i32T, i32T}, nil)
		f.Get(0).Get(1).Get(2).Raw(op...)
		m.Export(name, wasmtest.FuncKind, f.Index)
	}
	three("fill", 0xfc, 11, 0)
	three("copy", 0xfc, 10, 0, 0)
	three("big", 0xfc, 8, 0, 0)
	three("small", 0xfc, 8, 1, 0)
	drop := m.Func(nil, nil)
	drop.Raw(0xfc, 9, 0)
	m.Export("drop", wasmtest.FuncKind, drop.Index)
	grow := m.Func([]byte{i32T}, []byte{i32T})
	grow.Get(0).Grow()
	m.Export("grow", wasmtest.FuncKind, grow.Index)
	return m.Bytes()
}

func random(n int, seed uint64) []byte {
	out := make([]byte, n)
	r := rand.New(rand.NewPCG(seed, 0))
	for i := range out {
		out[i] = byte(r.Uint32())
	}
	return out
}

// TestBulkOperationsAreTheSame compares traps and the whole memory, also
// after a trap: it must have written nothing.
func TestBulkOperationsAreTheSame(t *testing.T) {
	const size = bulkMiB * mib
	b := bulkModule(random(bigSeg, 1), random(300, 2))
	w := mustRewrite(t, b, defaultOptions())
	initial := random(size, 3)
	type call struct {
		export string
		args   [3]uint32
		trap   bool
	}
	calls := []call{
		{"fill", [3]uint32{10, 7, 100}, false},
		{"fill", [3]uint32{1, 0x1ff, 4096}, false},
		{"fill", [3]uint32{1, 9, 4097}, false},
		{"fill", [3]uint32{1, 9, mib}, false},
		{"fill", [3]uint32{1, 9, mib + 1}, false},
		{"fill", [3]uint32{1, 9, 3*mib + 5}, false},
		{"fill", [3]uint32{0, 1, size}, false},
		{"fill", [3]uint32{1, 1, size}, true},
		{"fill", [3]uint32{size, 1, 0}, false},
		{"fill", [3]uint32{size + 1, 1, 0}, true},
		{"fill", [3]uint32{size - 5, 1, 6}, true},
		{"fill", [3]uint32{size - 5000, 1, 5001}, true},
		{"fill", [3]uint32{4, 1, 0xffffffff}, true},
		{"fill", [3]uint32{0xffffffff, 1, 2}, true},
		{"copy", [3]uint32{10, 20, 30}, false},
		{"copy", [3]uint32{0, 1, 2*mib + 7}, false},
		{"copy", [3]uint32{1, 0, 2*mib + 7}, false},
		{"copy", [3]uint32{mib, mib + mib/2, 5 * mib}, false},
		{"copy", [3]uint32{mib + mib/2, mib, 5 * mib}, false},
		{"copy", [3]uint32{7, 7, 2 * mib}, false},
		{"copy", [3]uint32{6 * mib, 0, 2 * mib}, false},
		{"copy", [3]uint32{0, 6 * mib, 2 * mib}, false},
		{"copy", [3]uint32{0, 6*mib + 1, 2 * mib}, true},
		{"copy", [3]uint32{6*mib + 1, 0, 2 * mib}, true},
		{"copy", [3]uint32{size, size, 0}, false},
		{"copy", [3]uint32{size + 1, 0, 0}, true},
		{"copy", [3]uint32{0, size + 1, 0}, true},
		{"copy", [3]uint32{0, 0, 0xffffffff}, true},
		{"copy", [3]uint32{0xfffffff0, 0, 2 * mib}, true},
		{"small", [3]uint32{0, 0, 300}, false},
		{"small", [3]uint32{0, 1, 300}, true},
		{"small", [3]uint32{0, 300, 0}, false},
		{"small", [3]uint32{0, 301, 0}, true},
		{"small", [3]uint32{0, 0, 0xffffffff}, true},
		{"big", [3]uint32{3, 0, bigSeg}, false},
		{"big", [3]uint32{3, 17, bigSeg - 17}, false},
		{"big", [3]uint32{3, 1, bigSeg}, true},
		{"big", [3]uint32{3, 0xfffffff0, 2 * mib}, true},
		{"big", [3]uint32{size - bigSeg, 0, bigSeg}, false},
		{"big", [3]uint32{size - bigSeg + 1, 0, bigSeg}, true},
		{"big", [3]uint32{size, bigSeg, 0}, false},
		{"drop", [3]uint32{}, false},
		{"big", [3]uint32{3, 0, bigSeg}, true},
		{"big", [3]uint32{3, 0, 1}, true},
		{"big", [3]uint32{3, 0, 0}, false},
	}
	for engine, config := range engines() {
		r := newRunner(t, config)
		plain, err := r.original(t, b)
		if err != nil {
			t.Fatal(err)
		}
		checked, err := r.rewritten(t, w)
		if err != nil {
			t.Fatal(err)
		}
		guests := []api.Module{plain, checked}
		for _, c := range calls {
			t.Run(fmt.Sprintf("%s %s %v", engine, c.export, c.args), func(t *testing.T) {
				var traps [2]string
				for i, g := range guests {
					g.Memory().Write(0, initial)
					f := g.ExportedFunction(c.export)
					args := []uint64{uint64(c.args[0]), uint64(c.args[1]), uint64(c.args[2])}
					_, err := f.Call(t.Context(), args[:len(f.Definition().ParamTypes())]...)
					traps[i] = trapKind(err)
				}
				if traps[0] != traps[1] || (traps[0] != "") != c.trap {
					t.Fatalf("traps are %q and %q, want one: %v", traps[0], traps[1], c.trap)
				}
				before, _ := plain.Memory().Read(0, size)
				after, _ := checked.Memory().Read(0, size)
				if !bytes.Equal(before, after) {
					t.Error("the memories differ")
				}
				if c.trap && !bytes.Equal(after, initial) {
					t.Error("it wrote before it trapped")
				}
			})
		}
	}
}

// TestBulkOperationsAreChargedAndStop runs long ones with little fuel: they
// take fuel in proportion and yield at each chunk.
func TestBulkOperationsAreChargedAndStop(t *testing.T) {
	w := mustRewrite(t, bulkModule(make([]byte, bigSeg), make([]byte, 300)), defaultOptions())
	for engine, config := range engines() {
		for _, tc := range []struct {
			export       string
			args         []uint64
			units, atop  int64 // how much it takes, and at most
			leastYielded int
		}{
			{"fill", []uint64{0, 1, 4000}, 40, 300, 0},
			{"fill", []uint64{0, 1, 80_000}, 10_000, 10_300, 1},
			{"fill", []uint64{0, 1, 8 * mib}, mib, mib + 300, 8},
			{"copy", []uint64{0, mib, 7 * mib}, 7 * mib / 8, 7*mib/8 + 300, 7},
			{"copy", []uint64{mib, 0, 7 * mib}, 7 * mib / 8, 7*mib/8 + 300, 7},
			{"big", []uint64{0, 0, bigSeg}, bigSeg / 8, bigSeg/8 + 300, 3},
			{"small", []uint64{0, 0, 300}, 300 / 8, 300/8 + 300, 0},
			{"grow", []uint64{10}, 160_000, 165_000, 1},
			{"fill", []uint64{1, 1, 0xfffffff0}, 0, 300, 0},
		} {
			t.Run(fmt.Sprintf("%s %s %v", engine, tc.export, tc.args), func(t *testing.T) {
				r := newRunner(t, config)
				g, err := r.rewritten(t, w)
				if err != nil {
					t.Fatal(err)
				}
				fuel := mutable(t, g, module.FuelExport)
				// Each yield gives so little that the next charge yields again.
				given := int64(0)
				fuel.Set(1000)
				r.yield = func(api.Module) int64 {
					given += 1000 - int64(fuel.Get())
					return 1000
				}
				before := int64(fuel.Get())
				_, _ = g.ExportedFunction(tc.export).Call(t.Context(), tc.args...)
				used := before + given - int64(fuel.Get())
				if used < tc.units || used > tc.atop {
					t.Errorf("it took %d units, want %d to %d", used, tc.units, tc.atop)
				}
				if r.yields < tc.leastYielded {
					t.Errorf("it yielded %d times, want %d", r.yields, tc.leastYielded)
				}
				// And it stops at the first of them.
				if tc.leastYielded > 0 {
					r.yield = func(api.Module) int64 { panic(errOutOfFuel) }
					fuel.Set(100)
					if _, err := g.ExportedFunction(tc.export).Call(t.Context(), tc.args...); trapKind(err) != "out of fuel" {
						t.Errorf("got %v", err)
					}
				}
			})
		}
	}
}

func mutable(t testing.TB, g api.Module, name string) api.MutableGlobal {
	t.Helper()
	global, ok := g.ExportedGlobal(name).(api.MutableGlobal)
	if !ok {
		t.Fatalf("there is no mutable global %s", name)
	}
	return global
}

func TestTableOperationsAreTheSameAndCharged(t *testing.T) {
	m := wasmtest.New()
	m.Carrel("input_len")
	m.Memory(1)
	nine := m.Func(nil, []byte{i32T})
	nine.Const(9)
	m.Table(5000)
	m.Elements(0, nine.Index)
	typ := m.Type(nil, []byte{i32T})
	f := m.Func([]byte{i32T, i32T, i32T}, []byte{i32T})
	f.Get(0).Get(1).Get(2).Raw(0xfc, 14, 0, 0).Const(4321).CallIndirect(typ)
	m.Export("run", wasmtest.FuncKind, f.Index)
	b := m.Bytes()
	if got := bothWays(t, b, 4321, 0, 1); !slices.Equal(got.results, []uint64{9}) {
		t.Errorf("got %v", got)
	}
	for _, n := range []uint64{5000, 0xffffffff} {
		if got := bothWays(t, b, 4321, 0, n); got.trap != "invalid table access" {
			t.Errorf("got %v", got)
		}
	}
	if got := bothWays(t, b, 0, 1, 4999); got.trap != "invalid table access" {
		t.Errorf("got %v", got)
	}
	r := newRunner(t, engines()["compiler"])
	g, err := r.rewritten(t, mustRewrite(t, b, defaultOptions()))
	if err != nil {
		t.Fatal(err)
	}
	fuel := mutable(t, g, module.FuelExport)
	fuel.Set(10_000)
	_, _ = g.ExportedFunction("run").Call(t.Context(), 0, 1, 4999)
	if used := 10_000 - int64(fuel.Get()); used < 4999 || used > 5200 {
		t.Errorf("it took %d units", used)
	}
}
