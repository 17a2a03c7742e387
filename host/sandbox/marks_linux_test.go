//go:build linux && !portable

package sandbox_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox"
	"github.com/carrelhost/carrel/host/sandbox/marker"
	"github.com/carrelhost/carrel/host/sandbox/wasmtest"
	"github.com/carrelhost/carrel/internal/testproc"
)

// faultEnv makes a test the process that crashes, with its files in a
// directory.
const faultEnv = "SANDBOX_TEST_FAULT"

// storing is a guest that writes to its memory for ever.
func storing() []byte {
	m := wasmtest.New()
	m.Memory(1)
	m.Method("write").Loop().Const(0).Const(1).Raw(0x36, 2, 0).Br(0).End().Const(0) // i32.store
	m.Method("noop").Const(0)
	return m.Bytes()
}

// asking is a guest that makes a host call.
func asking() []byte {
	m := wasmtest.New()
	ask := m.Carrel("call")
	m.Memory(1)
	m.Data(0, []byte("op"))
	m.Method("ask").Const(0).Const(2).Const(0).Const(0).Call(ask).Raw(0x1a).Const(0) // drop
	return m.Bytes()
}

// asker does something in a host call.
type asker struct{ do func() }

func (a asker) Knows(string) bool { return true }

func (a asker) Do(context.Context, abi.Op, []byte) ([]byte, *sandbox.Refusal) {
	a.do()
	return nil, nil
}

// crashing lets the runtime of this process report a crash, and returns a
// sandbox whose guests are marked.
func crashing(t *testing.T, dir string) *sandbox.Sandbox {
	report, err := os.Create(filepath.Join(dir, "report"))
	if err != nil {
		t.Fatal(err)
	}
	if err := debug.SetCrashOutput(report, debug.CrashOptions{}); err != nil {
		t.Fatal(err)
	}
	marks, _, err := marker.Open(filepath.Join(dir, "running"), 10)
	if err != nil {
		t.Fatal(err)
	}
	return newSandbox(t, sandbox.Config{Marks: marks})
}

// awaitGuest returns when a guest runs.
func awaitGuest(dir string) {
	for {
		if guests, err := marker.Read(filepath.Join(dir, "running")); err != nil || len(guests) > 0 {
			return
		}
	}
}

// faults runs a guest in this process and takes its memory away, so that its
// compiled code faults.
func faults(t *testing.T, dir string) {
	p := sandbox.OpenOn(t, crashing(t, dir), storing(), abi.DefaultMemoryMiB, sandbox.PathReset)
	if _, err := p.Call(t.Context(), sandbox.Call{Export: "noop"}); err != nil {
		t.Fatal(err)
	}
	memory := sandbox.IdleMemory(p)
	go func() {
		awaitGuest(dir)
		if err := syscall.Mprotect(memory, syscall.PROT_NONE); err != nil {
			panic(err)
		}
	}()
	_, err := p.Call(t.Context(), sandbox.Call{Export: "write", Share: "mallory"})
	fmt.Println("it went on:", err)
	os.Exit(0)
}

// overflows runs a guest whose host call ends the process, beside one that
// does nothing to that end.
func overflows(t *testing.T, dir string) {
	s := crashing(t, dir)
	busy := sandbox.OpenOn(t, s, storing(), abi.DefaultMemoryMiB, sandbox.PathReset)
	go func() { _, _ = busy.Call(t.Context(), sandbox.Call{Export: "write", Share: "acme"}) }()
	awaitGuest(dir)
	p := sandbox.OpenOn(t, s, asking(), abi.DefaultMemoryMiB, sandbox.PathReset)
	debug.SetMaxStack(1 << 20)
	_, err := p.Call(t.Context(), sandbox.Call{Export: "ask", Share: "mallory", Host: asker{func() { fmt.Println(bottomless(1)) }}})
	fmt.Println("it went on:", err)
	os.Exit(0)
}

func bottomless(n int) int { return bottomless(n+1) + n } //nolint:staticcheck // it is to end the process

// crashed runs the test again in a process that ends, and returns what that
// left.
func crashed(t *testing.T) (report []byte, guests []marker.Guest) {
	t.Helper()
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if out, err := testproc.Again(ctx, t, faultEnv+"="+dir).CombinedOutput(); err == nil || ctx.Err() != nil {
		t.Fatalf("the process did not crash: %s", out)
	}
	report, err := os.ReadFile(filepath.Join(dir, "report"))
	if err != nil {
		t.Fatal(err)
	}
	if guests, err = marker.Read(filepath.Join(dir, "running")); err != nil {
		t.Fatal(err)
	}
	return report, guests
}

func TestAFaultInCompiledCodeEndsTheProcessAndIsReportedWithWhatRan(t *testing.T) {
	if dir := os.Getenv(faultEnv); dir != "" {
		faults(t, dir)
	}
	report, guests := crashed(t)
	if !strings.Contains(string(report), "runtime.sigpanic") {
		t.Errorf("the report is %.2000s", report)
	}
	suspects := marker.Suspects(report, guests)
	if len(suspects) != 1 || suspects[0].Digest != sha256.Sum256(storing()) || suspects[0].Share != "mallory" {
		t.Errorf("the suspects are %+v", suspects)
	}
}

func TestACrashInAHostCallIsThatOfTheGuestThatMadeIt(t *testing.T) {
	if dir := os.Getenv(faultEnv); dir != "" {
		overflows(t, dir)
	}
	report, guests := crashed(t)
	suspects := marker.Suspects(report, guests)
	if len(guests) != 2 || len(suspects) != 1 || suspects[0].Digest != sha256.Sum256(asking()) || suspects[0].Running {
		t.Errorf("the suspects are %+v of %+v, and the report %.3000s", suspects, guests, report)
	}
}

func TestAGuestIsMarkedWhileItRunsAndAsAwayInAHostCall(t *testing.T) {
	path := filepath.Join(t.TempDir(), "running")
	marks, _, err := marker.Open(path, 10)
	if err != nil {
		t.Fatal(err)
	}
	defer marks.Close() //nolint:errcheck // its file goes with the test
	wasm := asking()
	away := func() {
		guests, err := marker.Read(path)
		if err != nil {
			t.Fatal(err)
		}
		for i := range guests {
			guests[i].Number = 0
		}
		want := []marker.Guest{{Digest: sha256.Sum256(wasm), Share: "acme", Running: false}}
		if !slices.Equal(guests, want) {
			t.Errorf("in a host call %+v is marked, want %+v", guests, want)
		}
	}
	s := newSandbox(t, sandbox.Config{Marks: marks})
	for _, path := range everyPath {
		p := sandbox.OpenOn(t, s, wasm, abi.DefaultMemoryMiB, path)
		asked := false
		_, err := p.Call(t.Context(), sandbox.Call{Export: "ask", Share: "acme", Host: asker{func() { asked = true; away() }}})
		if err != nil || !asked {
			t.Errorf("on the path %s: %v, asked: %v", path, err, asked)
		}
	}
	if guests, err := marker.Read(path); err != nil || len(guests) > 0 {
		t.Errorf("%+v is marked after the calls, %v", guests, err)
	}
}
