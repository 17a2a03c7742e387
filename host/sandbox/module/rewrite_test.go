package module_test

import (
	"bytes"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero/api"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox/module"
	"github.com/carrelhost/carrel/host/sandbox/wasmtest"
)

const (
	i32T = wasmtest.I32
	i64T = wasmtest.I64
)

// outcome is what a call did.
type outcome struct {
	results []uint64
	trap    string
}

// bothWays calls "run" in the original and in the rewritten module on every
// engine and wants one outcome, which it returns.
func bothWays(t *testing.T, b []byte, args ...uint64) outcome {
	t.Helper()
	w := mustRewrite(t, b, defaultOptions())
	var all []outcome
	for _, config := range engines() {
		r := newRunner(t, config)
		for _, instantiate := range []func() (api.Module, error){
			func() (api.Module, error) { return r.original(t, b) },
			func() (api.Module, error) { return r.rewritten(t, w) },
		} {
			g, err := instantiate()
			if err != nil {
				all = append(all, outcome{trap: trapKind(err)})
				continue
			}
			results, err := g.ExportedFunction("run").Call(t.Context(), args...)
			all = append(all, outcome{results, trapKind(err)})
			if d := g.ExportedGlobal(module.DepthExport); d != nil && err == nil && d.Get() != 0 {
				t.Errorf("after it returned, %d bytes of stack are counted", d.Get())
			}
		}
	}
	for _, o := range all[1:] {
		if !slices.Equal(o.results, all[0].results) || o.trap != all[0].trap {
			t.Fatalf("outcomes differ: %v", all)
		}
	}
	return all[0]
}

// runs is a module with a memory whose "run" has this body; helpers may come
// before.
func runs(build func(m *wasmtest.Module) func(f *wasmtest.Func)) []byte {
	m := wasmtest.New()
	m.Carrel("input_len") // so that indices move
	m.Memory(1)
	body := build(m)
	f := m.Method("run")
	body(f)
	return m.Bytes()
}

func TestRewrittenModulesComputeTheSame(t *testing.T) {
	type build = func(m *wasmtest.Module) func(f *wasmtest.Func)
	for caseName, tc := range map[string]struct {
		build build
		want  uint64
		trap  string
	}{
		"a call of an import and of a function": {build: func(m *wasmtest.Module) func(*wasmtest.Func) {
			seven := m.Func(nil, []byte{i32T})
			seven.Const(7)
			return func(f *wasmtest.Func) { f.Call(0).Call(seven.Index).Add() }
		}, want: 7},
		"a function of several results, left in each way": {build: func(m *wasmtest.Module) func(*wasmtest.Func) {
			three := m.Func([]byte{i32T}, []byte{i32T, i64T, i32T})
			// With an extra value below: return and br drop it.
			three.Const(99)
			three.Block().Block().Block().Get(0).Raw(0x0e, 3, 0, 1, 2, 2).End()
			three.Const(1).Const64(2).Const(3).Raw(0x0f).End()
			three.Const(10).Const64(20).Const(30).Br(1).End()
			three.Call(0).Drop() // it has calls, so its frame counts
			three.Drop().Const(100).Const64(200).Const(300)
			return func(f *wasmtest.Func) {
				f.Const(0)
				for _, arg := range []int32{0, 1, 2} {
					f.Const(arg).Call(three.Index).Set(0).Wrap().Add().Get(0).Add().Add()
				}
				f.Locals(1, i32T)
			}
		}, want: 6 + 60 + 600},
		"br_table to the function's own label": {build: func(m *wasmtest.Module) func(*wasmtest.Func) {
			pick := m.Func([]byte{i32T}, []byte{i32T})
			pick.Call(0).Drop().Const(5).Get(0).Raw(0x0e, 1, 0, 0).Unreachable()
			return func(f *wasmtest.Func) { f.Const(0).Call(pick.Index).Const(7).Call(pick.Index).Add() }
		}, want: 10},
		"blocks and loops with params and results": {build: func(m *wasmtest.Module) func(*wasmtest.Func) {
			typ := byte(m.Type([]byte{i32T, i32T}, []byte{i32T, i32T}))
			return func(f *wasmtest.Func) {
				// (sum, n) until n is 0
				f.Locals(2, i32T)
				f.Const(0).Const(10).Raw(0x03, typ).Set(1).Set(0)
				f.Get(0).Get(1).Add().Get(1).Const(1).Sub().Raw(0x22, 1).Get(1).BrIf(0).End().Drop()
			}
		}, want: 55},
		"an if with params": {build: func(m *wasmtest.Module) func(*wasmtest.Func) {
			typ := byte(m.Type([]byte{i32T}, []byte{i32T}))
			return func(f *wasmtest.Func) {
				f.Const(4).Const(1).Raw(0x04, typ).Const(1).Add().Call(0).Add().Else().Const(2).Add().End()
			}
		}, want: 5},
		"call_indirect and ref.func": {build: func(m *wasmtest.Module) func(*wasmtest.Func) {
			one := m.Func(nil, []byte{i32T})
			one.Const(1)
			two := m.Func(nil, []byte{i32T})
			two.Const(2)
			m.Table(4)
			m.Elements(1, two.Index, one.Index)
			typ := m.Type(nil, []byte{i32T})
			return func(f *wasmtest.Func) {
				f.Const(0).Raw(0xd2, byte(two.Index), 0x26, 0).Const(0).CallIndirect(typ).Const(10).Raw(0x6c)
				f.Const(2).CallIndirect(typ).Add()
			}
		}, want: 21},
		"a null element": {build: func(m *wasmtest.Module) func(*wasmtest.Func) {
			m.Table(4)
			typ := m.Type(nil, []byte{i32T})
			return func(f *wasmtest.Func) { f.Const(3).CallIndirect(typ) }
		}, trap: "invalid table access"},
		"globals": {build: func(m *wasmtest.Module) func(*wasmtest.Func) {
			g := m.Global(40)
			return func(f *wasmtest.Func) { f.GlobalGet(g).Const(2).Add().GlobalSet(g).GlobalGet(g) }
		}, want: 42},
		"memory.grow, and one beyond the maximum": {build: func(*wasmtest.Module) func(*wasmtest.Func) {
			return func(f *wasmtest.Func) {
				f.Const(2).Grow().Const(-1).Grow().Add().Raw(0x3f, 0).Add()
			}
		}, want: 3}, // 1 before, -1, 3 now
		"active and passive data": {build: func(m *wasmtest.Module) func(*wasmtest.Func) {
			m.Data(8, []byte{1, 0, 0, 0})
			m.Passive([]byte{0, 2, 0, 0, 0})
			return func(f *wasmtest.Func) {
				f.Const(16).Const(1).Const(4).Raw(0xfc, 8, 1, 0).Const(16).Load().Const(8).Load().Add()
			}
		}, want: 3},
		"a start function": {build: func(m *wasmtest.Module) func(*wasmtest.Func) {
			g := m.Global(1)
			start := m.Func(nil, nil)
			start.Const(9).GlobalSet(g)
			m.Start(start)
			return func(f *wasmtest.Func) { f.GlobalGet(g) }
		}, want: 9},
		"a start function that traps": {build: func(m *wasmtest.Module) func(*wasmtest.Func) {
			start := m.Func(nil, nil)
			start.Unreachable()
			m.Start(start)
			return func(f *wasmtest.Func) { f.Const(0) }
		}, trap: "unreachable"},
		"code that nothing reaches": {build: func(*wasmtest.Module) func(*wasmtest.Func) {
			return func(f *wasmtest.Func) {
				f.Const(3).Raw(0x0f).Raw(0xfc, 10, 0, 0).Raw(0x40, 0).Drop().Loop().Unreachable().Raw(0xfc, 11, 0).Call(0).Drop().Br(0).End().Unreachable()
			}
		}, want: 3},
		"a body that begins with loops": {build: func(*wasmtest.Module) func(*wasmtest.Func) {
			return func(f *wasmtest.Func) {
				f.Locals(1, i32T)
				f.Block().Loop().Loop().Get(0).Const(1).Add().Raw(0x22, 0).Const(50).Raw(0x48).BrIf(1).End().End().End().Get(0)
			}
		}, want: 50},
		"v128 locals across a call": {build: func(*wasmtest.Module) func(*wasmtest.Func) {
			return func(f *wasmtest.Func) {
				f.Locals(1, wasmtest.V128)
				f.Const(5).Raw(0xfd, 17).Set(0).Call(0).Drop().Get(0).Get(0).Raw(0xfd, 0xae, 1, 0xfd, 27, 3)
			}
		}, want: 10},
	} {
		t.Run(caseName, func(t *testing.T) {
			got := bothWays(t, runs(tc.build))
			if got.trap != tc.trap || tc.trap == "" && !slices.Equal(got.results, []uint64{tc.want}) {
				t.Errorf("got %v, want %d %q", got, tc.want, tc.trap)
			}
		})
	}
}

func TestAllKindsOfElementsMove(t *testing.T) {
	// Table 0 gets functions through each kind of segment that writes one.
	const fifty = "\x04\x00\x41\x32\x0b"
	elements := vec(
		"\x00\x41\x00\x0b\x01\x02",                 // table 0, indices
		"\x02\x00\x41\x01\x0b\x00\x01\x02",         // a table, indices
		"\x04\x41\x02\x0b\x01\xd2\x02\x0b",         // table 0, expressions
		"\x06\x00\x41\x03\x0b\x70\x01\xd2\x02\x0b", // a table, expressions
		"\x01\x00\x01\x02",                         // passive, indices
		"\x05\x70\x02\xd2\x02\x0b\xd0\x70\x0b",     // passive, expressions
		"\x03\x00\x01\x02",                         // declared
		"\x07\x70\x01\xd2\x02\x0b",                 // declared, expressions
	)
	// run: table.init from both passive ones, then the sum of six calls.
	body := "\x41\x04\x41\x00\x41\x01\xfc\x0c\x04\x00\x41\x05\x41\x00\x41\x01\xfc\x0c\x05\x00\x41\x00"
	for i := range 6 {
		body += "\x41" + string(rune(i)) + "\x11\x00\x00\x6a"
	}
	b := wasm(
		section(1, vec(fn("", i32))),
		section(2, vec(importFn(abi.Module, "input_len", 0))),
		section(3, vec("\x00", "\x00")),
		section(4, vec("\x70\x00\x08")),
		section(6, vec("\x70\x00\xd2\x02\x0b")),
		section(7, vec(name("run")+"\x00\x01")),
		section(9, elements),
		section(10, vec(name("\x00"+body+"\x0b"), fifty)),
	)
	if got := bothWays(t, b); !slices.Equal(got.results, []uint64{300}) {
		t.Errorf("got %v", got)
	}
}

func TestWhatRewriteReports(t *testing.T) {
	m := wasmtest.New()
	m.Carrel("input_len")
	m.Memory(3)
	m.Global(5)
	start := m.Func(nil, nil)
	m.Start(start)
	m.Method("run").Const(1)
	m.Name(start.Index, "the\nstart")
	m.Data(70000, []byte("later"))
	m.Data(0, nil)
	m.Data(1, []byte("first"))
	m.Custom("x", []byte("y"))
	b := m.Bytes()
	w := mustRewrite(t, b, defaultOptions())
	if !w.Start || w.MinPages != 3 || w.MaxPages != 1024 || !w.Resettable || len(w.Why) > 0 {
		t.Errorf("got %+v", w)
	}
	if len(w.Data) != 2 || w.Data[0].Offset != 70000 || string(w.Data[0].Bytes) != "later" || w.Data[1].Offset != 1 || string(w.Data[1].Bytes) != "first" {
		t.Errorf("got data %v", w.Data)
	}
	if !slices.Equal(w.Globals, []module.Global{{Export: "carrel$g0", Type: i32T}}) || !w.Globals[0].Restorable() {
		t.Errorf("got globals %v", w.Globals)
	}
	if want := map[uint32]string{start.Index + 2: "the start", start.Index + 3: "run"}; !maps.Equal(w.Names, want) {
		t.Errorf("got names %v, want %v", w.Names, want)
	}
	if again := mustRewrite(t, bytes.Clone(b), defaultOptions()); !bytes.Equal(again.Code, w.Code) {
		t.Error("the same bytes gave other code")
	}
	code, err := module.Read(w.Code, module.DefaultLimits())
	if c := carrel.CodeOf(err); c != abi.UnknownImport {
		t.Errorf("what is rewritten is no plugin, but it reads with %v", err)
	}
	if code != nil {
		t.Error("want no module")
	}
	for _, s := range []string{"later", "first", "x\x01y"} {
		if bytes.Contains(w.Code, []byte(s)) {
			t.Errorf("the code still has %q", s)
		}
	}
}

// TestActiveDataIsDropped as the specification has it; the engine by itself
// keeps it.
func TestActiveDataIsDropped(t *testing.T) {
	b := runs(func(m *wasmtest.Module) func(*wasmtest.Func) {
		m.Data(8, []byte{1})
		m.Passive([]byte{2})
		return func(f *wasmtest.Func) {
			f.Const(16).Const(0).Const(1).Raw(0xfc, 8, 1, 0).Const(0).Const(0).Const(0).Raw(0xfc, 8, 0, 0)
			f.Const(16).Const(0).Const(1).Raw(0xfc, 8, 0, 0).Const(1)
		}
	})
	g, err := newRunner(t, engines()["interpreter"]).rewritten(t, mustRewrite(t, b, defaultOptions()))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.ExportedFunction("run").Call(t.Context()); trapKind(err) != "out of bounds memory access" {
		t.Errorf("got %v", err)
	}
	if v, _ := g.Memory().ReadByte(16); v != 2 {
		t.Errorf("the passive segment wrote %d", v)
	}
}

func TestOtherDataIsTheSameCode(t *testing.T) {
	with := func(data string) []byte {
		m := wasmtest.New()
		m.Memory(1)
		m.Method("run").Const(1)
		m.Data(0, []byte(data))
		m.Custom(abi.ManifestSection, []byte(data))
		return mustRewrite(t, m.Bytes(), defaultOptions()).Code
	}
	if !bytes.Equal(with("a"), with("the others")) {
		t.Error("the code depends on data")
	}
}

func TestWhatForbidsAReset(t *testing.T) {
	const zero, dataDrop = "\x41\x00", "\xfc\x09\x00"
	for caseName, tc := range map[string]struct {
		body string
		why  []string
	}{
		"nothing, in what reads tables and copies segments": {body: zero + "\x25\x00\x1a" + zero + zero + zero + "\xfc\x08\x00\x00"},
		"table.set":  {zero + "\xd0\x70\x26\x00", []string{"function 0 (grow_table) writes to a table (table.set, byte 47)"}},
		"table.init": {zero + zero + zero + "\xfc\x0c\x00\x00", []string{"function 0 (grow_table) writes to a table (table.init, byte 49)"}},
		"table.copy": {zero + zero + zero + "\xfc\x0e\x00\x00", []string{"function 0 (grow_table) writes to a table (table.copy, byte 49)"}},
		"elem.drop":  {"\xfc\x0d\x00", []string{"function 0 (grow_table) drops a segment of elements (elem.drop, byte 43)"}},
		"data.drop":  {dataDrop, []string{"function 0 (grow_table) drops a segment of data (data.drop, byte 43)"}},
		"each instruction is told once, where it is first": {"\xfc\x0d\x00" + dataDrop + dataDrop + "\xfc\x0d\x00", []string{
			"function 0 (grow_table) drops a segment of elements (elem.drop, byte 43)",
			"function 0 (grow_table) drops a segment of data (data.drop, byte 46)",
		}},
	} {
		t.Run(caseName, func(t *testing.T) {
			b := wasm(section(1, vec(fn("", ""))), section(3, vec("\x00")), section(4, vec("\x70\x00\x08")), section(5, vec("\x00\x01")),
				section(9, vec("\x01\x00\x00")), section(12, "\x01"), section(10, vec(name("\x00"+tc.body+"\x0b"))), section(11, vec("\x01\x01a")),
				section(0, name("name")+"\x01"+name("\x01\x00"+name("grow_table"))))
			w := mustRewrite(t, b, defaultOptions())
			if w.Resettable != (tc.why == nil) || !slices.Equal(w.Why, tc.why) {
				t.Errorf("got %v, %q", w.Resettable, w.Why)
			}
			if _, err := newRunner(t, engines()["interpreter"]).rewritten(t, w); err != nil {
				t.Error(err)
			}
		})
	}
	const vector, ref = "\x7b\x01\xfd\x0c0123456789abcdef\x0b", "\x70\x01\xd0\x70\x0b"
	for caseName, tc := range map[string]struct {
		globals []string
		why     []string
	}{
		"a mutable vector":      {[]string{vector}, []string{"global 0 is mutable and of the type v128, which cannot be set back (byte 11)"}},
		"a mutable reference":   {[]string{ref}, []string{"global 0 is mutable and of the type funcref, which cannot be set back (byte 11)"}},
		"the first of a type":   {[]string{ref, ref, vector, vector}, []string{"global 0 is mutable and of the type funcref, which cannot be set back (byte 11)", "global 2 is mutable and of the type v128, which cannot be set back (byte 21)"}},
		"not a vector constant": {globals: []string{"\x7b\x00\xfd\x0c0123456789abcdef\x0b"}},
	} {
		t.Run(caseName, func(t *testing.T) {
			w := mustRewrite(t, wasm(section(6, vec(tc.globals...))), defaultOptions())
			if w.Resettable != (tc.why == nil) || !slices.Equal(w.Why, tc.why) {
				t.Errorf("got %v, %q, want %q", w.Resettable, w.Why, tc.why)
			}
		})
	}
}

// TestFunctionsAreNamedAsTheModuleCountsThem although the rewriter moves them,
// and without a name by their index alone.
func TestFunctionsAreNamedAsTheModuleCountsThem(t *testing.T) {
	m := wasmtest.New()
	m.Carrel("input_len")
	m.Table(4)
	m.Func(nil, nil)
	m.Func(nil, nil).Const(0).Raw(0xd0, 0x70, 0x26, 0)
	w := mustRewrite(t, m.Bytes(), defaultOptions())
	if len(w.Why) != 1 || !strings.HasPrefix(w.Why[0], "function 2 writes to a table (table.set, byte ") {
		t.Errorf("got %q", w.Why)
	}
}
