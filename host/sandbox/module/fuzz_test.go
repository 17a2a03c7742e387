package module_test

import (
	"os"
	"strings"
	"testing"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox/module"
)

// FuzzRewrite holds the rewriter against the engine: what Lint accepts is
// taken by the engine before and after, or refused both times, by the engine
// or with a clean error.
func FuzzRewrite(f *testing.F) {
	f.Add(full())
	f.Add(tightLoops())
	f.Add(bulkModule([]byte("abc"), nil))
	for _, shape := range recursions() {
		f.Add(recursionModule(shape))
	}
	f.Add(function("\x02\x40\x41\x00\x0e\x01\x00\x00\x0b\xfc\x0b\x00\xfd\x80\x01"))
	f.Add(wasm(section(1, vec(fn("", ""))), section(3, vec("\x00")), section(4, vec("\x70\x00\x01")), section(9, vec("\x04\x41\x00\x0b\x01\xd2\x00\x0b")), section(10, vec("\x02\x00\x0b"))))
	if b, err := os.ReadFile("../../testdata/alone/alone.wasm"); err == nil {
		f.Add(b)
	}
	r := newRunner(f, engines()["interpreter"])
	f.Fuzz(func(t *testing.T, b []byte) {
		w, err := rewrite(b, defaultOptions())
		if err != nil {
			switch carrel.CodeOf(err) {
			case abi.LimitExceeded, abi.UnknownImport: // ours alone
				return
			case abi.InvalidModule:
			default:
				t.Fatal(err)
			}
			m, readErr := module.Read(b, module.DefaultLimits())
			if readErr != nil || module.Lint(m, module.DefaultLimits()) != nil {
				return
			}
			if compiled, engineErr := r.runtime.CompileModule(t.Context(), b); engineErr == nil && !outsideData(err) {
				_ = compiled.Close(t.Context())
				t.Fatalf("the engine takes what Rewrite refuses: %v", err)
			}
			return
		}
		if most := len(b)*5/2 + module.DefaultGrowth; len(w.Code) > most {
			t.Errorf("%d bytes became %d, more than %d", len(b), len(w.Code), most)
		}
		before, errBefore := r.runtime.CompileModule(t.Context(), b)
		after, errAfter := r.runtime.CompileModule(t.Context(), w.Code)
		if (errBefore == nil) != (errAfter == nil) {
			t.Fatalf("the engine says %v before and %v after", errBefore, errAfter)
		}
		if errBefore == nil {
			_ = before.Close(t.Context())
			_ = after.Close(t.Context())
		}
	})
}

// outsideData reports the refusal of data that no instance could hold: the
// engine finds out when it instantiates.
func outsideData(err error) bool {
	return carrel.CodeOf(err) == abi.InvalidModule && strings.Contains(err.Error(), "beyond the memory's")
}
