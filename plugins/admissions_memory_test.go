package plugins_test

import (
	"bytes"
	"runtime"
	"testing"
	"weak"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/plugins"
)

// An end is remembered for an hour, of thousands of modules of up to 20 MiB.
func TestWhatIsRememberedOfAnAdmissionHoldsNoModule(t *testing.T) {
	l := newLibrary(t, nil)
	refused := func() weak.Pointer[byte] {
		wasm := bytes.Repeat([]byte("junk"), 1<<18)
		_, err := l.Upload(t.Context(), plugins.Upload{Tenant: acme, Module: wasm})
		wantCode(t, err, abi.InvalidModule)
		return weak.Make(&wasm[0])
	}()
	runtime.GC()
	if refused.Value() != nil {
		t.Error("the module is still held")
	}
	runtime.KeepAlive(l)
}
