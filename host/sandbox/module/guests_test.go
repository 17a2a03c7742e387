package module_test

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero/api"

	"github.com/carrelhost/carrel/host/sandbox/module"
)

// TestTheProjectsGuests rewrites every module in the project: each is valid
// afterwards, and all that it exports does the same as before.
func TestTheProjectsGuests(t *testing.T) {
	root := filepath.Join("..", "..", "..")
	found := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != root && strings.HasPrefix(d.Name(), ".") {
			return filepath.SkipDir
		}
		// Those of Go take long to compile; one of them is below.
		if info, err := d.Info(); err != nil || filepath.Ext(path) != ".wasm" || info.Size() > 1<<20 {
			return err
		}
		found++
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		t.Run(path, func(t *testing.T) { exportsDoTheSame(t, b) })
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if found == 0 {
		t.Error("there is no module")
	}
}

func exportsDoTheSame(t *testing.T, b []byte) {
	t.Helper()
	w := mustRewrite(t, b, defaultOptions())
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
		for name, d := range plain.ExportedFunctionDefinitions() {
			if len(d.ParamTypes()) > 0 {
				continue
			}
			before, errBefore := plain.ExportedFunction(name).Call(t.Context())
			after, errAfter := checked.ExportedFunction(name).Call(t.Context())
			if !slices.Equal(before, after) || trapKind(errBefore) != trapKind(errAfter) {
				t.Errorf("%s: %s gave %v, %v and gives %v, %v", engine, name, before, errBefore, after, errAfter)
			}
		}
		left, _ := plain.Memory().Read(0, plain.Memory().Size())
		right, _ := checked.Memory().Read(0, checked.Memory().Size())
		if !bytes.Equal(left, right) {
			t.Errorf("%s: the memories differ", engine)
		}
	}
}

// TestAGoGuest initialises one, handles JSON, recurses and resets: globals set
// back and memory written back are a fresh instance.
func TestAGoGuest(t *testing.T) {
	b := goGuest(t)
	w := mustRewrite(t, b, defaultOptions())
	if !w.Resettable || len(w.Globals) == 0 {
		t.Errorf("it cannot be reset: %s", w.Why)
	}
	t.Logf("%d bytes became %d, and %d segments", len(b), len(w.Code), len(w.Data))
	r := newRunner(t, engines()["compiler"])
	var guests []api.Module
	for _, instantiate := range []func() (api.Module, error){
		func() (api.Module, error) { return r.original(t, b) },
		func() (api.Module, error) { return r.rewritten(t, w) },
	} {
		g, err := instantiate()
		if err != nil {
			t.Fatal(err)
		}
		call(t, g, "_initialize")
		guests = append(guests, g)
	}
	checked := guests[1]
	depth := mutable(t, checked, module.DepthExport)
	image, _ := checked.Memory().Read(0, checked.Memory().Size())
	image = bytes.Clone(image)
	globals := make([]uint64, len(w.Globals))
	for i, g := range w.Globals {
		globals[i] = checked.ExportedGlobal(g.Export).Get()
	}
	want := call(t, guests[0], "handle")
	for range 3 {
		r.yields = 0
		if got := call(t, checked, "handle"); !slices.Equal(got, want) {
			t.Fatalf("it was %v and is %v", want, got)
		}
		if r.yield = func(api.Module) int64 { panic(errOutOfFuel) }; depth.Get() != 0 {
			t.Errorf("%d bytes of stack are still counted", depth.Get())
		}
		// Stop it in the middle, then reset it.
		mutable(t, checked, module.FuelExport).Set(20_000)
		if _, err := checked.ExportedFunction("handle").Call(t.Context()); trapKind(err) != "out of fuel" {
			t.Errorf("got %v", err)
		}
		r.yield = nil
		depth.Set(0)
		checked.Memory().Write(0, image)
		size := checked.Memory().Size()
		if rest, _ := checked.Memory().Read(uint32(len(image)), size-uint32(len(image))); len(rest) > 0 {
			clear(rest)
		}
		for i, g := range w.Globals {
			mutable(t, checked, g.Export).Set(globals[i])
		}
	}
	for _, n := range []uint64{10, 10_000} {
		if got := call(t, checked, "recurse", n); got[0] != n {
			t.Errorf("a recursion of %d gives %v", n, got)
		}
	}
}

func call(t *testing.T, g api.Module, export string, args ...uint64) []uint64 {
	t.Helper()
	results, err := g.ExportedFunction(export).Call(t.Context(), args...)
	if err != nil {
		t.Fatalf("%s: %v", export, err)
	}
	return results
}
