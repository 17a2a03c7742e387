package sandbox_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox"
	"github.com/carrelhost/carrel/host/sandbox/module"
	"github.com/carrelhost/carrel/host/sandbox/wasmtest"
)

func TestAdmissionReports(t *testing.T) {
	s := newSandbox(t, sandbox.Config{})
	t.Run("a module with a manifest section", func(t *testing.T) {
		m := counter()
		m.Method("another").Const(0)
		m.Method(abi.DescribeExport).Unreachable()
		m.Custom(abi.ManifestSection, []byte(`{"abi":"carrel/v1"}`))
		r, err := s.Admit(t.Context(), sandbox.Candidate{Module: m.Bytes()})
		if err != nil {
			t.Fatal(err)
		}
		if r.Path != sandbox.PathReset || string(r.Manifest) != `{"abi":"carrel/v1"}` || r.Described || r.CompileFor <= 0 ||
			!slices.Equal(r.Exports, []string{"another", "run"}) || !slices.Equal(r.Imports, []string{"carrel/v1.output_write"}) || !r.Has("run") || r.Has("memory") {
			t.Errorf("got %+v", r)
		}
	})
	t.Run("a prompt plugin", func(t *testing.T) {
		r, err := s.Admit(t.Context(), sandbox.Candidate{Module: module.Prompt([]byte("{}"))})
		if err != nil || r.Path != sandbox.PathPrompt || string(r.Manifest) != "{}" {
			t.Errorf("got %+v, %v", r, err)
		}
	})
	t.Run("a module without any manifest", func(t *testing.T) {
		r, err := s.Admit(t.Context(), sandbox.Candidate{Module: caller()})
		if err != nil || r.Manifest != nil || r.Described {
			t.Errorf("got %+v, %v", r, err)
		}
	})
}

// describer writes what its imports answer into its manifest.
func describer() []byte {
	m := wasmtest.New()
	names := []string{"call", "open", "emit", "feature", "deadline_ms", "now_ns", "random", "error_set", "close", "next", "input_len"}
	index := map[string]uint32{}
	for _, n := range append(names, "output_write", "log") {
		index[n] = m.Carrel(n)
	}
	clockTime, randomGet, poll := m.WASI("clock_time_get"), m.WASI("random_get"), m.WASI("poll_oneoff")
	m.Memory(1)
	m.Data(0, []byte("context"))
	// A sleep of a second by the monotonic clock.
	m.Data(1024, []byte("\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\xca\x9a\x3b\x00\x00\x00\x00"))
	f := m.Method(abi.DescribeExport)
	at := int32(100)
	for _, sig := range abi.Imports() {
		if !slices.Contains(names, sig.Name) {
			continue
		}
		f.Const(at)
		for _, p := range [][]int32{{0, 7, 50, 0}, {300, 16}, {0, 0, 7}, {0}} {
			if len(p) == len(sig.Params) {
				for _, v := range p {
					f.Const(v)
				}
			}
		}
		f.Call(index[sig.Name])
		if sig.Results[0] == abi.I32 {
			f.Raw(0xac)
		}
		f.Store64()
		at += 8
	}
	f.Const(0).Const64(0).Const(316).Call(clockTime).Drop()
	f.Const(1).Const64(0).Const(324).Call(clockTime).Drop()
	f.Const(1024).Const(2048).Const(1).Const(332).Call(poll).Drop()
	f.Const(1).Const64(0).Const(340).Call(clockTime).Drop()
	f.Const(348).Const(16).Call(randomGet).Drop()
	f.Const(1).Const(0).Const(7).Call(index["log"]).Drop()
	f.Const(100).Const(300).Call(index["output_write"])
	return m.Bytes()
}

func TestAdmissionDependsOnTheBytesOnly(t *testing.T) {
	s := newSandbox(t, sandbox.Config{})
	a, err := s.Admit(t.Context(), sandbox.Candidate{Module: describer()})
	if err != nil {
		t.Fatal(err)
	}
	if !a.Described || len(a.Manifest) != 300 || len(a.Log) != 1 || a.Log[0].Text != "context" {
		t.Errorf("got %+v", a)
	}
	b, err := newSandbox(t, sandbox.Config{}).Admit(t.Context(), sandbox.Candidate{Module: describer()})
	if err != nil || !bytes.Equal(a.Manifest, b.Manifest) {
		t.Errorf("admissions differ:\n%x\n%x %v", a.Manifest, b.Manifest, err)
	}
	word := func(at int) int64 {
		var v int64
		for i := 7; i >= 0; i-- {
			v = v<<8 | int64(a.Manifest[at-100+i])
		}
		return v
	}
	want := map[string]int64{"input_len": 0, "random": 0}
	at := 100
	for _, f := range abi.Imports() {
		if f.Name == "output_write" || f.Name == "log" || f.Name == "input_read" || f.Name == "last_error" || f.Name == "read" || f.Name == "send" {
			continue
		}
		w, works := want[f.Name]
		switch got := word(at); {
		case f.Name == "now_ns":
			if got < 1_700_000_000_000_000_000 {
				t.Errorf("now_ns answers %d", got)
			}
		case works && got != w, !works && got != -int64(abi.ENOSYS):
			t.Errorf("%s answers %d", f.Name, got)
		}
		at += 8
	}
	if slept := word(340) - word(324); slept < 1_000_000_000 || slept > 1_001_000_000 {
		t.Errorf("a second took %d ns", slept)
	}
	if bytes.Equal(a.Manifest[200:216], make([]byte, 16)) || bytes.Equal(a.Manifest[200:216], a.Manifest[248:264]) {
		t.Errorf("random bytes are %x, then %x", a.Manifest[200:216], a.Manifest[248:264])
	}
}

func TestWhatIsNotAdmitted(t *testing.T) {
	build := func(f func(m *wasmtest.Module)) []byte {
		m := wasmtest.New()
		f(m)
		return m.Bytes()
	}
	for caseName, tc := range map[string]struct {
		wasm    []byte
		code    abi.Code
		message string
	}{
		"no module":                     {[]byte("hello"), abi.InvalidModule, "not WebAssembly"},
		"an unknown import":             {build(func(m *wasmtest.Module) { m.Import("env", "puts", nil, nil) }), abi.UnknownImport, `"env" "puts"`},
		"code of the wrong type":        {build(func(m *wasmtest.Module) { m.Method("run").Const64(0) }), abi.InvalidModule, "the module is not valid: "},
		"a tail call":                   {build(func(m *wasmtest.Module) { m.Method("run").Raw(0x12, 0) }), abi.InvalidModule, "tail calls"},
		"a reserved export":             {build(func(m *wasmtest.Module) { m.Method("carrel$fuel").Const(0) }), abi.InvalidModule, "carrel$"},
		"an _initialize with a result":  {build(func(m *wasmtest.Module) { m.Method("_initialize").Const(0) }), abi.InvalidModule, "_initialize has another signature than () -> ()"},
		"a carrel_wake without one":     {build(func(m *wasmtest.Module) { m.Export("carrel_wake", 0, m.Func(nil, nil).Index) }), abi.InvalidModule, "carrel_wake has another signature than () -> (i32)"},
		"a command":                     {build(func(m *wasmtest.Module) { m.Export("_start", 0, m.Func(nil, nil).Index) }), abi.InvalidModule, "build a reactor"},
		"carrel_describe that fails":    {build(func(m *wasmtest.Module) { m.Method("carrel_describe").Const(3) }), abi.GuestFailed, "returned 3"},
		"carrel_describe that traps":    {build(func(m *wasmtest.Module) { m.Method("carrel_describe").Unreachable() }), abi.GuestTrap, "trapped in carrel_describe: unreachable"},
		"data beyond the memory":        {build(func(m *wasmtest.Module) { m.Memory(1); m.Data(65536, []byte("x")); m.Method("run").Const(0) }), abi.InvalidModule, "data segment 0 goes from address 65536 to 65537"},
		"a carrel_describe that floods": {build(func(m *wasmtest.Module) { floodDescribe(m) }), abi.GuestFailed, "returned -4"},
	} {
		t.Run(caseName, func(t *testing.T) {
			s := newSandbox(t, sandbox.Config{})
			r, err := s.Admit(t.Context(), sandbox.Candidate{Module: tc.wasm})
			e := asError(t, err)
			if e.Code != tc.code || !strings.Contains(e.Msg, tc.message) {
				t.Errorf("got %v, want %v with …%s…", err, tc.code, tc.message)
			}
			if tc.code == abi.GuestTrap && len(r.Log) != 1 {
				t.Errorf("the log is %v", r.Log)
			}
		})
	}
}

// floodDescribe writes one byte more than a manifest can have.
func floodDescribe(m *wasmtest.Module) {
	write := m.Carrel("output_write")
	m.Memory(4)
	m.Method(abi.DescribeExport).Const(0).Const(abi.MaxManifestBytes).Call(write).Drop().Const(0).Const(1).Call(write)
}

func TestOpeningWithTooLittleMemory(t *testing.T) {
	s := newSandbox(t, sandbox.Config{})
	m := wasmtest.New()
	m.Memory(33) // 2 MiB and a page
	m.Method("run").Const(0)
	for mib, want := range map[int]abi.Code{-1: abi.LimitExceeded, 65: abi.LimitExceeded, 2: abi.LimitExceeded, 3: abi.OK, 0: abi.OK} {
		p, err := s.Open(t.Context(), m.Bytes(), sandbox.Setup{MemoryMiB: mib})
		wantCode(t, err, want)
		if err != nil && asError(t, err).Limit != "memoryMiB" {
			t.Errorf("%d MiB: got %v", mib, err)
		}
		if err == nil {
			if _, err := p.Call(t.Context(), sandbox.Call{Export: "run"}); err != nil {
				t.Errorf("%d MiB: %v", mib, err)
			}
		}
	}
	if _, err := s.Open(t.Context(), module.Prompt(nil), sandbox.Setup{}); err == nil {
		t.Error("a prompt plugin was opened")
	}
}

func TestEndedContexts(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := sandbox.New(ctx, sandbox.Config{}); !errors.Is(err, context.Canceled) {
		t.Errorf("New: %v", err)
	}
	s := newSandbox(t, sandbox.Config{})
	if _, err := s.Admit(ctx, sandbox.Candidate{Module: caller()}); !errors.Is(err, context.Canceled) {
		t.Errorf("Admit: %v", err)
	}
	if _, err := s.Open(ctx, caller(), sandbox.Setup{}); !errors.Is(err, context.Canceled) {
		t.Errorf("Open: %v", err)
	}
	if _, err := open(t, s, caller()).Call(ctx, sandbox.Call{Export: "fine"}); !errors.Is(err, context.Canceled) {
		t.Errorf("Call: %v", err)
	}
}

func TestConfigNamesAllFaults(t *testing.T) {
	_, err := sandbox.New(t.Context(), sandbox.Config{Slots: -1, OutputBytes: 1 << 31, AdmitTimeout: -1, CloseTimeout: -1})
	for _, name := range []string{"Slots", "OutputBytes", "AdmitTimeout", "CloseTimeout"} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v does not name %s", err, name)
		}
	}
}
