package sandbox_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox"
	"github.com/carrelhost/carrel/host/sandbox/wasmtest"
)

// hostile are guests whose export "run" must come to an end. Each also has an
// export "fine", which must work before and after.
var hostile = map[string]struct {
	build func(m *wasmtest.Module)
	ends  abi.Code // Timeout: at its deadline
	says  string
}{
	"it spins": {func(m *wasmtest.Module) {
		m.Method("run").Loop().Br(0).End().Unreachable()
	}, abi.Timeout, ""},
	"it spins through a function that it calls": {func(m *wasmtest.Module) {
		f := m.Func(nil, nil)
		m.Method("run").Loop().Call(f.Index).Br(0).End().Unreachable()
	}, abi.Timeout, ""},
	"it spins in calls through a table": {func(m *wasmtest.Module) {
		f := m.Func(nil, nil)
		m.Table(1)
		m.Elements(0, f.Index)
		m.Method("run").Loop().Const(0).CallIndirect(m.Type(nil, nil)).Br(0).End().Unreachable()
	}, abi.Timeout, ""},
	"it calls itself for ever": {func(m *wasmtest.Module) {
		f := m.Method("run")
		f.Call(f.Index).Const(1).Add()
	}, abi.GuestTrap, overflow},
	"two functions call each other for ever, with large frames": {func(m *wasmtest.Module) {
		f := m.Func(nil, []byte{wasmtest.I32}).Locals(1000, wasmtest.I64)
		g := m.Method("run").Locals(1000, wasmtest.V128)
		f.Call(g.Index).Const(1).Add()
		g.Call(f.Index).Const(1).Add()
	}, abi.GuestTrap, overflow},
	"it grows its memory for ever": {func(m *wasmtest.Module) {
		m.Method("run").Loop().Const(1).Grow().Drop().Br(0).End().Unreachable()
	}, abi.Timeout, ""},
	"it grows its memory by all there is for ever": {func(m *wasmtest.Module) {
		m.Method("run").Loop().Const(65535).Grow().Drop().Br(0).End().Unreachable()
	}, abi.Timeout, ""},
	"it logs for ever":                    {flood("log", 1, 0, 65536), abi.Timeout, ""},
	"it logs empty lines for ever":        {flood("log", 1, 0, 0), abi.Timeout, ""},
	"it writes output for ever":           {flood("output_write", 0, 65536), abi.Timeout, ""},
	"it makes host calls for ever":        {flood("call", 0, 2, 0, 65536), abi.Timeout, ""},
	"it makes bad host calls for ever":    {flood("call", 0, 0, 0, 0), abi.Timeout, ""},
	"it asks for randomness for ever":     {flood("random", 0, 65536), abi.Timeout, ""},
	"it asks for its last error for ever": {flood("last_error", 0, 65536), abi.Timeout, ""},
	"it sets errors for ever":             {flood("error_set", 0, abi.MaxGuestErrorBytes), abi.Timeout, ""},
	"it writes to stdout for ever":        {wasiFlood("fd_write", 1, 16, 1, 8), abi.Timeout, ""},
	"it yields for ever":                  {wasiFlood("sched_yield"), abi.Timeout, ""},
	"it polls what is ready for ever":     {wasiFlood("poll_oneoff", 1024, 2048, 1, 8), abi.Timeout, ""},
	"it sleeps for 584 years":             {sleep(0), abi.Timeout, ""},
	"it sleeps until the end of time":     {sleep(1), abi.Timeout, ""},
	"it exits": {func(m *wasmtest.Module) {
		exit := m.WASI("proc_exit")
		m.Method("run").Const(0).Call(exit).Unreachable()
	}, abi.GuestTrap, "it exited with code 0"},
	"it executes unreachable": {func(m *wasmtest.Module) {
		m.Method("run").Unreachable()
	}, abi.GuestTrap, "unreachable"},
	"it divides by zero": {func(m *wasmtest.Module) {
		m.Method("run").Const(1).Const(0).Raw(0x6d)
	}, abi.GuestTrap, "integer divide by zero"},
	"it reads beyond its memory": {func(m *wasmtest.Module) {
		m.Method("run").Const(-1).Load()
	}, abi.GuestTrap, "out of bounds memory access"},
	"it calls an empty table entry": {func(m *wasmtest.Module) {
		m.Table(10)
		m.Method("run").Const(9).CallIndirect(m.Type(nil, nil)).Const(0)
	}, abi.GuestTrap, "invalid table access"},
}

// flood calls a function of carrel/v1 with the same arguments for ever.
func flood(name string, args ...int32) func(*wasmtest.Module) {
	return func(m *wasmtest.Module) { floodWith(m, m.Carrel(name), args) }
}

func wasiFlood(name string, args ...int32) func(*wasmtest.Module) {
	return func(m *wasmtest.Module) { floodWith(m, m.WASI(name), args) }
}

func floodWith(m *wasmtest.Module, f uint32, args []int32) {
	// A vector of one page of zeroes, and a subscription to stdout.
	m.Data(16, []byte("\x00\x10\x00\x00\x00\x00\x01\x00"))
	m.Data(1024+8, []byte("\x02\x00\x00\x00\x00\x00\x00\x00\x01"))
	run := m.Method("run").Loop()
	for _, a := range args {
		run.Const(a)
	}
	run.Call(f).Drop().Br(0).End().Unreachable()
}

func sleep(flags byte) func(*wasmtest.Module) {
	return func(m *wasmtest.Module) {
		poll := m.WASI("poll_oneoff")
		subscription := make([]byte, 48)
		for i := 24; i < 32; i++ {
			subscription[i] = 0xff
		}
		subscription[40] = flags
		m.Data(1024, subscription)
		m.Method("run").Const(1024).Const(2048).Const(1).Const(8).Call(poll)
	}
}

func hostileModule(build func(*wasmtest.Module)) []byte {
	m := wasmtest.New()
	build(m)
	m.Memory(2)
	m.Method("fine").Const(0)
	return m.Bytes()
}

// overflow is how a runaway recursion ends.
const overflow = "stack overflow: its calls are nested deeper than 16 MiB of frames (limit sandbox.stack)"

const (
	patience = 100 * time.Millisecond            // of the caller of a hostile guest
	late     = slowness * 250 * time.Millisecond // how much later it may end
)

func TestHostileGuestsEnd(t *testing.T) {
	s := newSandbox(t, sandbox.Config{Fuel: 1 << 60}) // growing is dear: time ends it first
	for caseName, tc := range hostile {
		t.Run(caseName, func(t *testing.T) {
			p := open(t, s, hostileModule(tc.build))
			fine := func() {
				t.Helper()
				if _, err := p.Call(t.Context(), sandbox.Call{Export: "fine"}); err != nil {
					t.Errorf("a call of another export: %v", err)
				}
			}
			fine()
			waits := patience
			if tc.ends != abi.Timeout { // by itself, and soon, but on a busy machine
				waits = time.Minute
			}
			deadline := time.Now().Add(patience)
			ctx, cancel := context.WithTimeout(t.Context(), waits)
			defer cancel()
			r, err := p.Call(ctx, sandbox.Call{Export: "run", Host: echo()})
			if d := time.Since(deadline); d > late && tc.ends == abi.Timeout {
				t.Errorf("it ended %v after its deadline", d)
			}
			wantCode(t, err, tc.ends)
			if err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("got %v, want …%s…", err, tc.says)
			}
			if tc.ends == abi.Timeout && !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v does not wrap the context's end", err)
			}
			if len(r.Output) > 1<<20 {
				t.Errorf("%d bytes of output", len(r.Output))
			}
			size := 0
			for _, l := range r.Log {
				size += len(l.Text)
			}
			if size > 80<<10 {
				t.Errorf("%d bytes of log", size)
			}
			fine()
		})
	}
}

func TestHostileInitializationEnds(t *testing.T) {
	for caseName, tc := range map[string]struct {
		body func(m *wasmtest.Module, f *wasmtest.Func)
		ends abi.Code
	}{
		"it spins":       {func(_ *wasmtest.Module, f *wasmtest.Func) { f.Loop().Br(0).End() }, abi.Timeout},
		"it recurses":    {func(_ *wasmtest.Module, f *wasmtest.Func) { f.Call(f.Index) }, abi.GuestTrap},
		"it traps":       {func(_ *wasmtest.Module, f *wasmtest.Func) { f.Unreachable() }, abi.GuestTrap},
		"it divides too": {func(_ *wasmtest.Module, f *wasmtest.Func) { f.Const(1).Const(0).Raw(0x6d).Drop() }, abi.GuestTrap},
	} {
		for where, mark := range map[string]func(m *wasmtest.Module, f *wasmtest.Func){
			"_initialize":        func(m *wasmtest.Module, f *wasmtest.Func) { m.Export(abi.InitializeExport, wasmtest.FuncKind, f.Index) },
			"the start function": (*wasmtest.Module).Start,
		} {
			t.Run(caseName+" in "+where, func(t *testing.T) {
				m := wasmtest.New()
				f := m.Func(nil, nil)
				tc.body(m, f)
				mark(m, f)
				m.Method("run").Const(0)
				waits := patience
				if tc.ends != abi.Timeout { // by itself, and soon, but on a busy machine
					waits = time.Minute
				}
				s := newSandbox(t, sandbox.Config{AdmitTimeout: waits})
				p := open(t, s, m.Bytes())
				ctx, cancel := context.WithTimeout(t.Context(), waits)
				defer cancel()
				start := time.Now()
				_, err := p.Call(ctx, sandbox.Call{Export: "run"})
				wantCode(t, err, tc.ends)
				if !strings.Contains(err.Error(), where) {
					t.Errorf("%v does not say that it was in %s", err, where)
				}
				_, err = s.Admit(t.Context(), sandbox.Candidate{Module: m.Bytes()})
				if tc.ends == abi.Timeout {
					e := asError(t, err)
					if e.Code != abi.LimitExceeded || e.Limit != "sandbox.admitTimeout" || !strings.Contains(e.Msg, "do less") {
						t.Errorf("admission said %v", err)
					}
				} else {
					wantCode(t, err, tc.ends)
				}
				if d := time.Since(start); d > 2*(patience+late) && tc.ends == abi.Timeout {
					t.Errorf("it took %v", d)
				}
			})
		}
	}
}

func TestMemoryStopsAtItsLimit(t *testing.T) {
	m := wasmtest.New()
	write := m.Carrel("output_write")
	m.Memory(1)
	// It grows page by page until it cannot, then reports the pages.
	m.Method("run").Loop().Const(1).Grow().Const(-1).Raw(0x47).BrIf(0).End().
		Const(0).Raw(0x3f, 0).Store().Const(0).Const(4).Call(write)
	s := newSandbox(t, sandbox.Config{})
	for _, mib := range []int{1, 3, abi.MaxMemoryMiB} {
		p, err := s.Open(t.Context(), m.Bytes(), sandbox.Setup{MemoryMiB: mib})
		if err != nil {
			t.Fatal(err)
		}
		r, err := p.Call(t.Context(), sandbox.Call{Export: "run"})
		if err != nil {
			t.Fatal(err)
		}
		if pages := int(r.Output[0]) | int(r.Output[1])<<8; pages != mib*16 {
			t.Errorf("with %d MiB it had %d pages", mib, pages)
		}
	}
}

func TestALogFloodIsCut(t *testing.T) {
	s := newSandbox(t, sandbox.Config{LogBytes: 1000})
	m := wasmtest.New()
	log := m.Carrel("log")
	m.Memory(1)
	m.Data(0, []byte(strings.Repeat("é", 300)))
	run := m.Method("run")
	for range 5 {
		run.Const(1).Const(0).Const(600).Call(log).Drop()
	}
	run.Unreachable()
	p := open(t, s, m.Bytes())
	r, err := p.Call(t.Context(), sandbox.Call{Export: "run"})
	wantCode(t, err, abi.GuestTrap)
	if len(r.Log) != 4 {
		t.Fatalf("got %d lines: %v", len(r.Log), r.Log)
	}
	if r.Log[0].Text != strings.Repeat("é", 300) || r.Log[1].Text != strings.Repeat("é", (1000-616-16)/2) {
		t.Errorf("the guest's lines are %q and %q", r.Log[0].Text, r.Log[1].Text)
	}
	if r.Log[2].Level != 3 || !strings.Contains(r.Log[2].Text, "unreachable") || !strings.Contains(r.Log[2].Text, "run()") {
		t.Errorf("the trap is %v", r.Log[2])
	}
	if !strings.Contains(r.Log[3].Text, "4 lines or parts of lines were dropped") || !strings.Contains(r.Log[3].Text, "1000 bytes (limit sandbox.logBytes)") {
		t.Errorf("the last line is %v", r.Log[3])
	}
}

func TestAStackHasTheGuestsNames(t *testing.T) {
	m := wasmtest.New()
	inner := m.Func(nil, nil)
	inner.Unreachable()
	m.Name(inner.Index, "acme::orders::look_up")
	m.Method("run").Call(inner.Index).Const(0)
	r, err := open(t, newSandbox(t, sandbox.Config{}), m.Bytes()).Call(t.Context(), sandbox.Call{Export: "run"})
	if e := asError(t, err); e.Code != abi.GuestTrap || e.Msg != "the guest trapped in run: unreachable" {
		t.Errorf("got %v", err)
	}
	if len(r.Log) != 1 || !strings.Contains(r.Log[0].Text, "acme::orders::look_up()") || strings.Contains(r.Log[0].Text, ".go:") {
		t.Errorf("got %v", r.Log)
	}
}

func TestALogOfBytesThatAreNoTextHasTheSameBound(t *testing.T) {
	const most = 400
	text := strings.Repeat("a\xff", most/2)
	for length := range int64(most) {
		p := &probe{cfg: sandbox.Config{LogBytes: most}, data: map[int32]string{0: text}, steps: []step{{"log", []int64{1, 0, length}}, {"log", []int64{1, 0, most}}}}
		got := p.run(t)
		size, lines := 0, got.result.Log
		for _, l := range lines[:len(lines)-1] {
			size += len(l.Text)
		}
		if size > most || !strings.Contains(lines[len(lines)-1].Text, "were dropped") {
			t.Errorf("after %d bytes the log has %d: %v", length, size, lines)
		}
	}
}
