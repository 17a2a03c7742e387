package module_test

import (
	"bytes"
	"runtime"
	"testing"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox/module"
)

// TestReadOfCountBombs feeds modules of a few bytes whose declared counts
// would need gigabytes. Read must refuse each without allocating for it.
func TestReadOfCountBombs(t *testing.T) {
	const huge = "\xff\xff\xff\xff\x0f"
	limits := map[byte]string{1: "module.types", 2: "module.imports", 3: "module.functions", 4: "module.tables", 5: "module.memories",
		6: "module.globals", 7: "module.exports", 9: "module.elements", 10: "module.functions", 11: "module.dataSegments"}
	for id, limit := range limits {
		t.Run(limit, func(t *testing.T) {
			b := wasm(section(id, huge))
			var err error
			if n := allocated(func() { _, err = module.Read(b, module.DefaultLimits()) }); n > 1<<16 {
				t.Errorf("Read allocated %d bytes for %d", n, len(b))
			}
			wantError(t, err, abi.LimitExceeded, limit, "4294967295 elements, at most ")
		})
	}
	inside := map[string]string{
		"params":          section(1, "\x01\x60"+huge),
		"results":         section(1, "\x01\x60\x00"+huge),
		"function names":  custom("name", "\x01"+name(huge)),
		"local names":     custom("name", "\x02"+name(huge)),
		"one's locals":    custom("name", "\x02"+name("\x01\x00"+huge)),
		"labels":          custom("name", "\x03"+name(huge)),
		"field names":     custom("name", "\x0a"+name(huge)),
		"the module name": custom("name", "\x00"+name(huge)),
	}
	for caseName, s := range inside {
		t.Run(caseName, func(t *testing.T) {
			b := wasm(s)
			var err error
			if n := allocated(func() { _, err = module.Read(b, module.DefaultLimits()) }); n > 1<<16 {
				t.Errorf("Read allocated %d bytes for %d", n, len(b))
			}
			if c := carrel.CodeOf(err); c != abi.LimitExceeded && c != abi.InvalidModule {
				t.Errorf("got %v", err)
			}
		})
	}
	t.Run("a count within the limit but not within the file", func(t *testing.T) {
		for id := range limits {
			_, err := module.Read(wasm(section(id, "\x01")), module.DefaultLimits())
			wantError(t, err, abi.InvalidModule, "", "it declares 1 elements, but only 0 bytes follow")
		}
	})
}

func TestReadNamesTheLimit(t *testing.T) {
	small := module.DefaultLimits()
	small.Types, small.Params, small.Results, small.Imports, small.CustomSections = 1, 1, 1, 1, 2
	for caseName, tc := range map[string]struct {
		in    []byte
		limit string
	}{
		"types":           {wasm(section(1, vec(fn("", ""), fn("", "")))), "module.types"},
		"params":          {wasm(section(1, vec(fn(i32+i32, "")))), "module.params"},
		"results":         {wasm(section(1, vec(fn("", i32+i32)))), "module.results"},
		"imports":         {wasm(section(1, vec(fn("", i32))), section(2, vec(importFn(abi.Module, "input_len", 0), importFn(abi.Module, "input_len", 0)))), "module.imports"},
		"custom sections": {wasm(custom("a", ""), custom("b", ""), custom("c", "")), "module.customSections"},
	} {
		t.Run(caseName, func(t *testing.T) {
			_, err := module.Read(tc.in, small)
			wantError(t, err, abi.LimitExceeded, tc.limit, "(limit "+tc.limit+")")
		})
	}
	t.Run("the largest file is read and one byte more is not", func(t *testing.T) {
		limits := module.DefaultLimits()
		b := module.AppendCustom(module.Empty(), "x", make([]byte, limits.Bytes-8-1-4-2))
		if len(b) != limits.Bytes {
			t.Fatalf("the test's module has %d bytes", len(b))
		}
		if _, err := module.Read(b, limits); err != nil {
			t.Error(err)
		}
		_, err := module.Read(append(b, 0), limits)
		wantError(t, err, abi.LimitExceeded, "module.bytes", "20971521 bytes, at most 20971520")
	})
}

// allocated returns the bytes that f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// FuzzRead checks that no bytes make Read panic or allocate much more than
// they are long, and that the sections of an accepted module cover it.
func FuzzRead(f *testing.F) {
	f.Add(full())
	f.Add(module.Prompt([]byte("{}")))
	f.Add(wasm(section(1, "\xff\xff\xff\xff\x0f")))
	f.Add(wasm(section(1, vec(fn("", i32))), section(2, vec(importFn("env", "f", 0)))))
	f.Fuzz(func(t *testing.T, b []byte) {
		var m *module.Module
		var err error
		n := allocated(func() { m, err = module.Read(b, module.DefaultLimits()) })
		if n > 4*uint64(len(b))+1<<17 {
			t.Errorf("Read allocated %d bytes for %d", n, len(b))
		}
		if err != nil {
			switch carrel.CodeOf(err) {
			case abi.InvalidModule, abi.LimitExceeded, abi.UnknownImport:
			default:
				t.Fatal(err)
			}
			return
		}
		end := 8
		for _, s := range m.Sections() {
			if s.Offset != end || s.End <= s.Offset || b[s.Offset] != s.ID {
				t.Fatalf("a section from %d to %d after one that ends at %d", s.Offset, s.End, end)
			}
			end = s.End
		}
		if end != len(b) {
			t.Fatalf("the sections end at %d of %d", end, len(b))
		}
		if _, err := module.Read(module.AppendCustom(bytes.Clone(b), "more", []byte("x")), module.DefaultLimits()); err != nil && limitOf(err) != "module.customSections" {
			t.Fatal(err)
		}
	})
}
