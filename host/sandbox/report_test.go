package sandbox_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox"
	"github.com/carrelhost/carrel/host/sandbox/module"
	"github.com/carrelhost/carrel/host/sandbox/wasmtest"
)

// setTable is a body that writes null to a table's first element.
func setTable(f *wasmtest.Func) { f.Const(0).Raw(0xd0, 0x70, 0x26, 0) }

// TestReports is a guest for each path and for each reason to be on it.
func TestReports(t *testing.T) {
	s := newSandbox(t, sandbox.Config{})
	const restored = "memory and globals are all that a call can change, and both can be set back"
	for caseName, tc := range map[string]struct {
		build func(m *wasmtest.Module)
		path  string
		why   []string // each the beginning of a sentence
		image sandbox.Image
		data  int
	}{
		"one that changes its memory is reset": {build: func(m *wasmtest.Module) {
			m.Memory(3)
			m.Data(sandbox.PageBytes-1, []byte{1, 1}) // on two pages
			start := m.Func(nil, nil)
			start.Const(2*sandbox.PageBytes + 5000).Const(7).Store()
			m.Start(start)
		}, path: sandbox.PathReset, why: []string{restored}, image: sandbox.Image{Pages: 3, Filled: 3, Bytes: 3 * 4096}, data: 2},
		"memory that it grew at first is in the image": {build: func(m *wasmtest.Module) {
			m.Memory(1)
			start := m.Func(nil, nil)
			start.Const(4).Grow().Drop()
			m.Start(start)
		}, path: sandbox.PathReset, why: []string{restored}, image: sandbox.Image{Pages: 5}},
		"a page counts once, however much of it is not zero": {build: func(m *wasmtest.Module) {
			m.Memory(4)
			m.Data(0, []byte{1})
			m.Data(2*4096, []byte{1})
			m.Data(sandbox.PageBytes-4096, make([]byte, 4096))
			m.Data(3*sandbox.PageBytes, []byte{1})
		}, path: sandbox.PathReset, why: []string{restored}, image: sandbox.Image{Pages: 4, Filled: 2, Bytes: 3 * 4096}, data: 3 + 4096},
		"one without a memory is reset, too": {build: func(*wasmtest.Module) {}, path: sandbox.PathReset, why: []string{restored}},
		"one that writes to a table has an image": {build: func(m *wasmtest.Module) {
			m.Memory(1)
			m.Data(8, []byte("data"))
			m.Table(4)
			f := m.Func(nil, nil)
			setTable(f)
			m.Name(f.Index, "swap")
		}, path: sandbox.PathImage, why: []string{"function 0 (swap) writes to a table (table.set, byte "}, image: sandbox.Image{Pages: 1, Filled: 1, Bytes: 4096}, data: 4},
		"one that may do so in _initialize is plain": {build: func(m *wasmtest.Module) {
			m.Memory(1)
			m.Table(4)
			f := m.Func(nil, nil)
			setTable(f)
			m.Export(abi.InitializeExport, 0, f.Index)
		}, path: sandbox.PathPlain, why: []string{"function 0 writes to a table (table.set, byte ", "_initialize runs code before the first call, which may do that, too"}},
		"or in its start function": {build: func(m *wasmtest.Module) {
			m.Memory(1)
			m.Table(4)
			setTable(m.Func(nil, nil))
			m.Start(m.Func(nil, nil))
		}, path: sandbox.PathPlain, why: []string{"function 0 writes to a table (table.set, byte ", "the start function runs code before the first call, which may do that, too"}},
	} {
		t.Run(caseName, func(t *testing.T) {
			m := wasmtest.New()
			tc.build(m)
			m.Method("run").Const(0)
			b := m.Bytes()
			r, err := s.Admit(t.Context(), sandbox.Candidate{Module: b})
			if err != nil {
				t.Fatal(err)
			}
			if r.Path != tc.path || !slices.EqualFunc(r.Why, tc.why, strings.HasPrefix) {
				t.Errorf("it runs by %s: %q", r.Path, r.Why)
			}
			if r.Image != tc.image || r.DataBytes != tc.data {
				t.Errorf("got %d bytes of data and image %+v", r.DataBytes, r.Image)
			}
			if restored := tc.path == sandbox.PathReset && tc.image.Pages > 0; restored != (r.Restore != "") {
				t.Errorf("memory is set back by %q", r.Restore)
			}
			if r.CodeBytes <= 0 || r.CompileFor <= 0 || r.InitialiseFor <= 0 || r.MachineBytes != 0 {
				t.Errorf("got %+v", r)
			}
		})
	}
}

// TestAVectorGlobalIsPlain by itself, and whatever else there is.
func TestAVectorGlobalIsPlain(t *testing.T) {
	global := []byte("\x06\x16\x01\x7b\x01\xfd\x0c0123456789abcdef\x0b")
	r, err := newSandbox(t, sandbox.Config{}).Admit(t.Context(), sandbox.Candidate{Module: slices.Concat(module.Empty(), global)})
	if err != nil || r.Path != sandbox.PathPlain || !slices.Equal(r.Why, []string{"global 0 is mutable and of the type v128, which cannot be set back (byte 11)"}) {
		t.Errorf("got %+v, %v", r, err)
	}
}

// TestMachineCodeOnDiskIsMeasured when it is compiled and when it is found.
func TestMachineCodeOnDiskIsMeasured(t *testing.T) {
	dir := t.TempDir()
	var sizes []int64
	for range 2 {
		s := newSandbox(t, sandbox.Config{CacheDir: dir})
		r, err := s.Admit(t.Context(), sandbox.Candidate{Module: counter().Bytes()})
		if err != nil {
			t.Fatal(err)
		}
		sizes = append(sizes, r.MachineBytes)
	}
	if sizes[0] <= 0 || sizes[1] != sizes[0] {
		t.Errorf("got %d bytes", sizes)
	}
}

// TestDescribingIsNotInTheImage: calls begin before it.
func TestDescribingIsNotInTheImage(t *testing.T) {
	m := wasmtest.New()
	m.Memory(1)
	m.Method(abi.DescribeExport).Const(16).Const(1).Store().Const(0)
	r, err := newSandbox(t, sandbox.Config{}).Admit(t.Context(), sandbox.Candidate{Module: m.Bytes()})
	if err != nil || !r.Described || r.Image != (sandbox.Image{Pages: 1}) || r.Fuel != 0 {
		t.Errorf("got %+v, %v", r, err)
	}
}

// TestInitialisationIsMeasured: its fuel is the same each time, that of the
// description is not in it.
func TestInitialisationIsMeasured(t *testing.T) {
	m := wasmtest.New()
	m.Memory(2)
	loop := func(f *wasmtest.Func) {
		f.Locals(1, wasmtest.I32)
		f.Const(1000).Set(0).Loop().Get(0).Const(1).Sub().Raw(0x22, 0).BrIf(0).End()
	}
	start := m.Func(nil, nil)
	loop(start)
	start.Const(16).Const(1).Store()
	m.Start(start)
	b := m.Bytes()
	describe := m.Method(abi.DescribeExport)
	loop(describe)
	describe.Const(0)
	var fuel []int64
	for _, wasm := range [][]byte{b, b, m.Bytes()} {
		r, err := newSandbox(t, sandbox.Config{}).Admit(t.Context(), sandbox.Candidate{Module: wasm})
		if err != nil || r.Image != (sandbox.Image{Pages: 2, Filled: 1, Bytes: 4096}) {
			t.Fatalf("got %+v, %v", r, err)
		}
		fuel = append(fuel, r.Fuel)
	}
	if fuel[0] < 1000 || fuel[1] != fuel[0] || fuel[2] != fuel[0] {
		t.Errorf("a thousand rounds used %d of fuel", fuel)
	}
}
