package sandbox_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"

	"github.com/tetratelabs/wazero"

	"github.com/carrelhost/carrel/host/sandbox"
	"github.com/carrelhost/carrel/host/sandbox/wasmtest"
)

// diver has exports that call themselves a thousand times, with frames of some
// kilobytes.
func diver(exports int) []byte {
	const values = 500
	m := wasmtest.New()
	m.Memory(1)
	g := m.Func([]byte{wasmtest.I32}, []byte{wasmtest.I32})
	g.Get(0).Eqz().If().Const(0).Raw(0x0f).End()
	for n := range int32(values) {
		g.Get(0).Const(n + 3).Raw(0x6c)
	}
	g.Get(0).Const(1).Sub().Call(g.Index)
	for range values {
		g.Add()
	}
	for n := range exports {
		m.Method(fmt.Sprintf("dive%d", n)).Const(1000).Call(g.Index).Drop().Const(0)
	}
	return m.Bytes()
}

// TestDeepStacksAreNotKept calls every export of an instance: each has a stack
// of its own in the engine.
func TestDeepStacksAreNotKept(t *testing.T) {
	const exports = 20
	p := open(t, newSandbox(t, sandbox.Config{}), diver(exports))
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	for n := range exports {
		if _, err := p.Call(t.Context(), sandbox.Call{Export: fmt.Sprintf("dive%d", n)}); err != nil {
			t.Fatal(err)
		}
	}
	if after := heap(); after > before+8<<20 {
		t.Errorf("the host has %d KiB more", (after-before)>>10)
	}
	if n, _ := sandbox.Idle(p); n != 1 {
		t.Errorf("%d instances wait", n)
	}
}

// TestTheEnginesStacksAreFound looks into what the engine makes for a function.
func TestTheEnginesStacksAreFound(t *testing.T) {
	for name, config := range map[string]wazero.RuntimeConfig{
		"compiler": wazero.NewRuntimeConfigCompiler(), "interpreter": wazero.NewRuntimeConfigInterpreter(),
	} {
		t.Run(name, func(t *testing.T) {
			ctx := context.Background()
			r := wazero.NewRuntimeWithConfig(ctx, config)
			defer func() {
				if err := r.Close(ctx); err != nil {
					t.Error(err)
				}
			}()
			m := wasmtest.New()
			m.Method("run").Const(0)
			in, err := r.Instantiate(ctx, m.Bytes())
			if err != nil {
				t.Fatal(err)
			}
			f := in.ExportedFunction("run")
			if _, err := f.Call(ctx); err != nil {
				t.Fatal(err)
			}
			if n, found := sandbox.StackOf(f); !found || n == 0 || n > 64<<10 {
				t.Errorf("it is of %d bytes, found: %v", n, found)
			}
		})
	}
}
