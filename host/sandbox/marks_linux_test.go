//go:build linux && !portable

package sandbox_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
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
)

// faultEnv makes a test the process that faults, with its files in a directory.
const faultEnv = "SANDBOX_TEST_FAULT"

// storing is a guest that writes to its memory for ever.
func storing() []byte {
	m := wasmtest.New()
	m.Memory(1)
	m.Method("write").Loop().Const(0).Const(1).Raw(0x36, 2, 0).Br(0).End().Const(0) // i32.store
	m.Method("noop").Const(0)
	return m.Bytes()
}

// faults runs the guest in this process and takes its memory away, so that
// its compiled code faults.
func faults(t *testing.T, dir string) {
	report, err := os.Create(filepath.Join(dir, "report"))
	if err != nil {
		t.Fatal(err)
	}
	if err := debug.SetCrashOutput(report, debug.CrashOptions{}); err != nil {
		t.Fatal(err)
	}
	running := filepath.Join(dir, "running")
	marks, _, err := marker.Open(running, 10)
	if err != nil {
		t.Fatal(err)
	}
	s := newSandbox(t, sandbox.Config{Marks: marks})
	p := sandbox.OpenOn(t, s, storing(), abi.DefaultMemoryMiB, sandbox.PathReset)
	if _, err := p.Call(t.Context(), sandbox.Call{Export: "noop"}); err != nil {
		t.Fatal(err)
	}
	memory := sandbox.IdleMemory(p)
	go func() {
		for {
			if guests, err := marker.Read(running); err != nil || len(guests) > 0 {
				break
			}
		}
		if err := syscall.Mprotect(memory, syscall.PROT_NONE); err != nil {
			panic(err)
		}
	}()
	_, err = p.Call(t.Context(), sandbox.Call{Export: "write", Share: "mallory"})
	fmt.Println("it went on:", err)
	os.Exit(0)
}

func TestAFaultInCompiledCodeEndsTheProcessAndIsReportedWithWhatRan(t *testing.T) {
	if dir := os.Getenv(faultEnv); dir != "" {
		faults(t, dir)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	dir := t.TempDir()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), faultEnv+"="+dir)
	if out, err := cmd.CombinedOutput(); err == nil {
		t.Fatalf("the process ended well: %s", out)
	}
	report, err := os.ReadFile(filepath.Join(dir, "report"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(report), "runtime.sigpanic") {
		t.Errorf("the report is %.2000s", report)
	}
	guests, err := marker.Read(filepath.Join(dir, "running"))
	if err != nil {
		t.Fatal(err)
	}
	suspects := marker.Suspects(report, guests)
	if len(suspects) != 1 || suspects[0].Digest != sha256.Sum256(storing()) || suspects[0].Share != "mallory" {
		t.Errorf("the suspects are %+v", suspects)
	}
}

// asker looks at the marks while a guest is in a host call.
type asker struct{ look func() }

func (a asker) Knows(string) bool { return true }

func (a asker) Do(context.Context, abi.Op, []byte) ([]byte, *sandbox.Refusal) {
	a.look()
	return nil, nil
}

func TestAGuestIsMarkedWhileItRunsAndAsAwayInAHostCall(t *testing.T) {
	path := filepath.Join(t.TempDir(), "running")
	marks, _, err := marker.Open(path, 10)
	if err != nil {
		t.Fatal(err)
	}
	defer marks.Close() //nolint:errcheck // its file goes with the test
	m := wasmtest.New()
	ask := m.Carrel("call")
	m.Memory(1)
	m.Data(0, []byte("op"))
	m.Method("ask").Const(0).Const(2).Const(0).Const(0).Call(ask).Raw(0x1a).Const(0)
	wasm := m.Bytes()
	seen := func(running bool) {
		t.Helper()
		guests, err := marker.Read(path)
		if err != nil {
			t.Fatal(err)
		}
		want := []marker.Guest{{Digest: sha256.Sum256(wasm), Share: "acme", Running: running}}
		for i := range guests {
			guests[i].Number = 0
		}
		if !slices.Equal(guests, want) {
			t.Errorf("%+v is marked, want %+v", guests, want)
		}
	}
	s := newSandbox(t, sandbox.Config{Marks: marks})
	for _, path := range everyPath {
		p := sandbox.OpenOn(t, s, wasm, abi.DefaultMemoryMiB, path)
		asked := false
		if _, err := p.Call(t.Context(), sandbox.Call{Export: "ask", Share: "acme", Host: asker{func() { asked = true; seen(false) }}}); err != nil || !asked {
			t.Errorf("on the path %s: %v, asked: %v", path, err, asked)
		}
	}
	if guests, err := marker.Read(path); err != nil || len(guests) > 0 {
		t.Errorf("%+v is marked after the calls, %v", guests, err)
	}
}
