package module_test

import (
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/tetratelabs/wazero/api"

	"github.com/carrelhost/carrel/host/sandbox/module"
	"github.com/carrelhost/carrel/host/sandbox/wasmtest"
)

// jsonGuest decodes and encodes, as handlers do.
const jsonGuest = `package main

import "encoding/json"

type order struct {
	ID    string            ` + "`json:\"id\"`" + `
	Items []item            ` + "`json:\"items\"`" + `
	Notes map[string]string ` + "`json:\"notes\"`" + `
}

type item struct {
	Name  string  ` + "`json:\"name\"`" + `
	Price float64 ` + "`json:\"price\"`" + `
	Count int     ` + "`json:\"count\"`" + `
}

const text = ` + "`" + `{"id":"A-1","items":[{"name":"pencil","price":1.25,"count":12},{"name":"paper","price":7.5,"count":3},{"name":"ink","price":30,"count":1}],"notes":{"to":"the desk","by":"noon"}}` + "`" + `

//go:wasmexport handle
func handle() int32 {
	var o order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return -1
	}
	for i := range o.Items {
		o.Items[i].Price *= float64(o.Items[i].Count)
	}
	out, err := json.Marshal(o)
	if err != nil {
		return -1
	}
	sum := int32(0)
	for _, c := range out {
		sum = sum*31 + int32(c)
	}
	return sum
}

//go:wasmexport recurse
func recurse(n int32) int32 {
	if n == 0 {
		return 0
	}
	return recurse(n-1) + 1
}

func main() {}
`

// buildJSONGuest is shared by the tests of this package: building takes
// seconds.
var buildJSONGuest = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "guest")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	for name, text := range map[string]string{"main.go": jsonGuest, "go.mod": "module guest\n\ngo 1.24\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return nil, err
		}
	}
	cmd := exec.Command("go", "build", "-buildmode=c-shared", "-ldflags=-s -w", "-o", "guest.wasm", ".")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "GOFLAGS=-mod=mod", "GOWORK=off")
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return nil, err
	}
	return os.ReadFile(filepath.Join(dir, "guest.wasm"))
})

func goGuest(t testing.TB) []byte {
	t.Helper()
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("install Go 1.26 and put its go command into PATH: this test builds a guest with it")
	}
	b, err := buildJSONGuest()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// tightLoops is what C compilers make of loops over an array: a checksum, and
// a function called in a loop, small and not.
func tightLoops() []byte {
	m := wasmtest.New()
	m.Memory(1)
	tiny := m.Func([]byte{wasmtest.I32}, []byte{wasmtest.I32})
	tiny.Get(0).Const(3).Raw(0x74).Get(0).Raw(0x73)
	middle := m.Func([]byte{wasmtest.I32}, []byte{wasmtest.I32}).Locals(1, wasmtest.I32)
	middle.Get(0).Call(tiny.Index).Set(1).Get(1).Const(5).Raw(0x76).Get(1).Raw(0x73).Const(17).Raw(0x6c).Get(0).Call(tiny.Index).Add()
	loop := func(name string, body func(f *wasmtest.Func)) {
		f := m.Method(name).Locals(2, wasmtest.I32)
		f.Loop()
		body(f)
		f.Get(0).Const(1).Add().Raw(0x22, 0).Const(100_000).Raw(0x48).BrIf(0).End().Get(1)
	}
	loop("checksum", func(f *wasmtest.Func) {
		f.Get(1).Const(31).Raw(0x6c).Get(0).Const(0xfffc).Raw(0x71).Load().Add().Set(1)
	})
	loop("tiny", func(f *wasmtest.Func) { f.Get(1).Call(tiny.Index).Get(0).Add().Set(1) })
	loop("middle", func(f *wasmtest.Func) { f.Get(1).Call(middle.Index).Get(0).Add().Set(1) })
	loop("copies", func(f *wasmtest.Func) {
		f.Get(1).Const(0xfff).Raw(0x71).Get(0).Const(0xfff).Raw(0x71).Const(40).Raw(0xfc, 10, 0, 0)
		f.Get(0).Const(0xfff).Raw(0x71).Load().Get(1).Add().Set(1)
	})
	return m.Bytes()
}

// BenchmarkRewritten runs the same functions in the original and in the
// rewritten module, in turns: their ratio is what checks cost.
func BenchmarkRewritten(b *testing.B) {
	loops := tightLoops()
	for _, bench := range []struct {
		name, export string
		wasm         func() []byte
	}{
		{"Go JSON handler", "handle", func() []byte { return goGuest(b) }},
		{"checksum of an array", "checksum", func() []byte { return loops }},
		{"calls of a leaf", "tiny", func() []byte { return loops }},
		{"calls of a function that calls", "middle", func() []byte { return loops }},
		{"copies of 40 bytes", "copies", func() []byte { return loops }},
	} {
		b.Run(bench.name, func(b *testing.B) {
			wasm := bench.wasm()
			r := newRunner(b, engines()["compiler"])
			w := mustRewrite(b, wasm, defaultOptions())
			plain, err := r.original(b, wasm)
			if err != nil {
				b.Fatal(err)
			}
			checked, err := r.rewritten(b, w)
			if err != nil {
				b.Fatal(err)
			}
			for _, g := range []api.Module{plain, checked} {
				if f := g.ExportedFunction("_initialize"); f != nil {
					if _, err := f.Call(b.Context()); err != nil {
						b.Fatal(err)
					}
				}
			}
			compare(b, plain.ExportedFunction(bench.export), checked.ExportedFunction(bench.export))
		})
	}
}

// compare reports the fastest call of each: others measure the machine's load.
func compare(b *testing.B, plain, checked api.Function) {
	b.Helper()
	best := [2]int64{math.MaxInt64, math.MaxInt64}
	for b.Loop() {
		for i, f := range []api.Function{plain, checked} {
			best[i] = min(best[i], timed(b, f))
		}
	}
	b.ReportMetric(float64(best[0]), "plain-ns")
	b.ReportMetric(float64(best[1]), "checked-ns")
	b.ReportMetric(float64(best[1])/float64(best[0]), "ratio")
}

// BenchmarkRewrite is what rewriting itself costs.
func BenchmarkRewrite(b *testing.B) {
	wasm := goGuest(b)
	m, err := module.Read(wasm, module.DefaultLimits())
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(wasm)))
	b.ReportAllocs()
	for b.Loop() {
		w, err := module.Rewrite(m, defaultOptions())
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(len(w.Code))/float64(len(wasm)), "size-ratio")
	}
}
