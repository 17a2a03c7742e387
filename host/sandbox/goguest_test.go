package sandbox_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox"
)

// goGuest is a plugin as its author would write it, without an SDK.
const goGuest = `package main

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"
	"unsafe"
)

//go:wasmimport carrel/v1 input_len
func inputLen() int32

//go:wasmimport carrel/v1 input_read
func inputRead(dst unsafe.Pointer, off, n int32) int32

//go:wasmimport carrel/v1 output_write
func outputWrite(src unsafe.Pointer, n int32) int32

var calls int

// What runs beside all calls, from before the first one.
var (
	ticks  int
	ticker = time.NewTicker(time.Millisecond)
	later  = time.AfterFunc(time.Hour, func() { ticks = -1 })
)

func init() {
	go func() {
		for range ticker.C {
			ticks++
		}
	}()
}

//go:wasmexport echo
func echo() int32 {
	calls++
	in := make([]byte, inputLen()+1)
	in = in[:inputRead(unsafe.Pointer(&in[0]), 0, int32(len(in)))]
	var asked map[string]any
	if err := json.Unmarshal(in, &asked); err != nil {
		fmt.Println("no JSON:", err)
		return 1
	}
	random := make([]byte, 16)
	rand.Read(random)
	start := time.Now()
	var group sync.WaitGroup
	sum := make(chan int, 10)
	for i := range 10 {
		group.Add(1)
		go func() {
			defer group.Done()
			time.Sleep(time.Millisecond)
			sum <- i
		}()
	}
	group.Wait()
	total := 0
	for range 10 {
		total += <-sum
	}
	out, _ := json.Marshal(map[string]any{
		"asked": asked, "random": fmt.Sprintf("%x", random), "calls": calls, "sum": total,
		"slept": time.Since(start) >= time.Millisecond, "year": time.Now().Year(), "args": len(os.Args), "env": len(os.Environ()),
	})
	outputWrite(unsafe.Pointer(&out[0]), int32(len(out)))
	fmt.Println("to stdout")
	fmt.Fprintln(os.Stderr, "to stderr")
	return 0
}

//go:wasmexport crash
func crash() int32 {
	var m map[string]int
	m["x"] = 1
	return 0
}

//go:wasmexport deadlock
func deadlock() int32 {
	ticker.Stop()
	later.Stop()
	<-make(chan int)
	return 0
}

//go:wasmexport leave
func leave() int32 {
	os.Exit(3)
	return 0
}

//go:wasmexport files
func files() int32 {
	if _, err := os.ReadFile("/etc/passwd"); err == nil {
		return 1
	}
	if _, err := os.Create("x"); err == nil {
		return 2
	}
	return 0
}

func down(n int) int {
	if n == 0 {
		return 0
	}
	return down(n-1) + 1
}

//go:wasmexport deep
func deep() int32 {
	return int32(down(10_000) - 10_000)
}

//go:wasmexport noop
func noop() int32 { return 0 }

// The handler of the benchmark.
//
//go:wasmexport json
func handle() int32 {
	in := make([]byte, inputLen())
	inputRead(unsafe.Pointer(&in[0]), 0, int32(len(in)))
	var order struct {
		ID    string
		Items []struct {
			SKU string 
			N   float64
		}
		Note string
		OK   bool  
	}
	if json.Unmarshal(in, &order) != nil {
		return 1
	}
	out, err := json.Marshal(map[string]any{"id": order.ID, "lines": len(order.Items), "first": order.Items[0]})
	if err != nil {
		return 2
	}
	outputWrite(unsafe.Pointer(&out[0]), int32(len(out)))
	return 0
}

var kept [][]byte

// churn makes garbage, collects it, and leaves marks everywhere.
//
//go:wasmexport churn
func churn() int32 {
	secret := make([]byte, inputLen())
	inputRead(unsafe.Pointer(unsafe.SliceData(secret)), 0, int32(len(secret)))
	done := make(chan int)
	for i := range 8 {
		go func() {
			m := map[int][]byte{}
			for j := range 200 {
				m[j] = bytes.Repeat(secret, 1+(i+j)%7)
			}
			done <- len(m)
		}()
	}
	for range 8 {
		<-done
	}
	runtime.GC()
	go func() { select {} }()
	time.AfterFunc(time.Minute, func() {})
	calls++
	kept = append(kept, secret)
	if calls != 1 || len(kept) != 1 {
		return 1
	}
	return 0
}

//go:wasmexport grow
func grow() int32 {
	for range 12 {
		kept = append(kept, bytes.Repeat([]byte{0xEE}, 1<<20))
	}
	return int32(len(kept)) - 12
}

//go:wasmexport spin
func spin() int32 {
	for {
		calls++
	}
}

//go:wasmexport allocate
func allocate() int32 {
	var all [][]byte
	for {
		all = append(all, make([]byte, 1<<20))
	}
}

func main() {}
`

// buildGo is shared by the tests of this package: building takes seconds.
var buildGo = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "guest")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	for name, text := range map[string]string{"main.go": goGuest, "go.mod": "module guest\n\ngo 1.24\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return nil, err
		}
	}
	cmd := exec.Command("go", "build", "-buildmode=c-shared", "-o", "guest.wasm", ".")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "GOFLAGS=-mod=mod", "GOWORK=off")
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return nil, err
	}
	return os.ReadFile(filepath.Join(dir, "guest.wasm"))
})

func goModule(t testing.TB) []byte {
	t.Helper()
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("install Go 1.26 and put its go command into PATH: this test builds a guest with it")
	}
	wasm, err := buildGo()
	if err != nil {
		t.Fatal(err)
	}
	return wasm
}

func TestAGoGuest(t *testing.T) {
	wasm := goModule(t)
	s := newSandbox(t, sandbox.Config{})
	report, err := s.Admit(t.Context(), sandbox.Candidate{Module: wasm})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("compiled %d bytes in %v", len(wasm), report.CompileFor)
	if report.Path != sandbox.PathReset || !report.Has("echo") || report.Has(abi.InitializeExport) || len(report.Imports) == 0 {
		t.Errorf("got %+v", report)
	}
	p := open(t, s, wasm)
	call := func(t *testing.T, export, input string) (sandbox.Result, error) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		return p.Call(ctx, sandbox.Call{Export: export, Input: []byte(input)})
	}
	logged := func(r sandbox.Result) string {
		var b strings.Builder
		for _, l := range r.Log {
			b.WriteString(l.Text + "\n")
		}
		return b.String()
	}
	var last string
	for range 3 {
		r, err := call(t, "echo", `{"msg":"grüß","n":[1,2.5,null]}`)
		if err != nil {
			t.Fatalf("%v\n%s", err, logged(r))
		}
		var out struct {
			Asked                       map[string]any
			Random                      string
			Calls, Sum, Year, Args, Env int
			Slept                       bool
		}
		if err := json.Unmarshal(r.Output, &out); err != nil {
			t.Fatalf("%v in %q", err, r.Output)
		}
		if out.Asked["msg"] != "grüß" || out.Calls != 1 || out.Sum != 45 || out.Year < 2024 || out.Args != 0 || out.Env != 0 || !out.Slept {
			t.Errorf("got %+v", out)
		}
		if out.Random == last {
			t.Error("the random bytes are those of the last call")
		}
		last = out.Random
		if len(r.Log) != 2 || r.Log[0] != (sandbox.LogLine{Level: 1, Text: "to stdout"}) || r.Log[1] != (sandbox.LogLine{Level: 2, Text: "to stderr"}) {
			t.Errorf("got %v", r.Log)
		}
		if r.Guest <= 0 {
			t.Error("it took no time")
		}
	}
	t.Run("an error returned", func(t *testing.T) {
		r, err := call(t, "echo", `nope`)
		wantCode(t, err, abi.GuestFailed)
		if !strings.Contains(logged(r), "no JSON: invalid character") {
			t.Errorf("the log is %q", logged(r))
		}
	})
	t.Run("a panic, with its text and stack", func(t *testing.T) {
		r, err := call(t, "crash", "")
		wantCode(t, err, abi.GuestTrap)
		if text := logged(r); !strings.Contains(text, "assignment to entry in nil map") || !strings.Contains(text, "main.crash") {
			t.Errorf("the log is %q", text)
		}
	})
	t.Run("a deadlock", func(t *testing.T) {
		r, err := call(t, "deadlock", "")
		wantCode(t, err, abi.GuestTrap)
		if !strings.Contains(logged(r), "all goroutines are asleep") {
			t.Errorf("the log is %q", logged(r))
		}
	})
	t.Run("an exit", func(t *testing.T) {
		_, err := call(t, "leave", "")
		if e := asError(t, err); e.Code != abi.GuestTrap || !strings.Contains(e.Msg, "exited with code 3") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("ten thousand calls deep", func(t *testing.T) {
		for range 3 {
			if r, err := call(t, "deep", ""); err != nil {
				t.Errorf("%v\n%s", err, logged(r))
			}
		}
	})
	t.Run("no files", func(t *testing.T) {
		if _, err := call(t, "files", ""); err != nil {
			t.Error(err)
		}
	})
	t.Run("more memory than there is", func(t *testing.T) {
		r, err := call(t, "allocate", "")
		wantCode(t, err, abi.GuestTrap)
		if !strings.Contains(logged(r), "out of memory") {
			t.Errorf("the log is %q", logged(r))
		}
	})
}
