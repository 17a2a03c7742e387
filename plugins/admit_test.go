package plugins_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox"
	"github.com/carrelhost/carrel/host/sandbox/module"
	"github.com/carrelhost/carrel/host/sandbox/wasmtest"
	"github.com/carrelhost/carrel/plugins"
	"github.com/carrelhost/carrel/plugins/manifest"
)

const wasmHeader = "\x00asm\x01\x00\x00\x00"

// The sections of small modules with code: a type [] -> [], a function of it
// with an empty body, and an import of a function of it, env.f.
const (
	typeSection     = "\x01\x04\x01\x60\x00\x00"
	functionSection = "\x03\x02\x01\x00"
	codeSection     = "\x0a\x04\x01\x02\x00\x0b"
	importSection   = "\x02\x09\x01\x03env\x01f\x00\x00"
)

func withManifest(wasm, manifest string) []byte {
	return module.AppendCustom([]byte(wasm), abi.ManifestSection, []byte(manifest))
}

func TestAdmit(t *testing.T) {
	good := withMethod(msgParams)
	for name, tc := range map[string]struct {
		wasm    []byte
		code    abi.Code
		message string // or, of a module that is admitted, its path
	}{
		"a module of a manifest":                        {withManifest(wasmHeader, good), abi.OK, "prompt"},
		"a module with code":                            {withManifest(wasmHeader+typeSection+functionSection+codeSection, good), abi.OK, "reset"},
		"no module":                                     {[]byte("\x7fELF"), abi.InvalidModule, ""},
		"a module without a manifest":                   {[]byte(wasmHeader), abi.InvalidModule, "carrel pack"},
		"a module with code without a manifest":         {[]byte(wasmHeader + typeSection + functionSection + codeSection), abi.InvalidModule, "carrel build"},
		"code that the engine refuses":                  {withManifest(wasmHeader+typeSection+functionSection+"\x0a\x05\x01\x03\x00\x1a\x0b", good), abi.InvalidModule, "not valid"},
		"more memory than the manifest asks for":        {withManifest(wasmHeader+typeSection+functionSection+"\x05\x04\x01\x00\x80\x08"+codeSection, good), abi.LimitExceeded, "raise limits.memoryMiB"},
		"a handler without code":                        {withManifest(wasmHeader, withHandler(`"export":"f"`)), abi.InvalidManifest, "functions that the module does not have"},
		"a handler that the code lacks":                 {withManifest(wasmHeader+typeSection+functionSection+codeSection, withHandler(`"export":"f"`)), abi.InvalidManifest, "functions that the module does not have"},
		"an id provider that the code lacks":            {withManifest(wasmHeader+typeSection+functionSection+codeSection, withPlugin(`"defaultMemoryId":{"export":"f"}`)), abi.InvalidManifest, "functions that the module does not have"},
		"unknown imports are named before code is":      {withManifest(wasmHeader+typeSection+importSection+functionSection+codeSection, good), abi.UnknownImport, "env"},
		"a manifest that is not JSON":                   {withManifest(wasmHeader, "{"), abi.InvalidManifest, ""},
		"a manifest of a model that the host lacks":     {withManifest(wasmHeader, withMethod(msgParams+`,"model":"big"`)), abi.InvalidManifest, "big"},
		"an application-scoped service that would leak": {withManifest(wasmHeader, withService(`"scope":"application","methods":[{"name":"chat","kind":"chat"`+msgParams+`}]`)), abi.DefaultIDLeak, "memoryId"},
	} {
		t.Run(name, func(t *testing.T) {
			admit := plugins.NewAdmit(manifest.Known{Models: []string{"default", "small"}}, newBox(t))
			before := bytes.Clone(tc.wasm)
			a, err := admit(t.Context(), plugins.Candidate{Module: tc.wasm})
			wantCode(t, err, tc.code)
			if !bytes.Equal(before, tc.wasm) {
				t.Error("the module was changed")
			}
			if err != nil {
				if e, ok := errors.AsType[*carrel.Error](err); !ok || !strings.Contains(e.Msg, tc.message) {
					t.Errorf("got %v, want …%s…", err, tc.message)
				}
				return
			}
			r := a.Report
			if a.Manifest.Name != "a" || r.Path != tc.message || r.ModuleBytes != len(tc.wasm) || r.ManifestBytes != len(good) || !slices.Equal(r.Models, []string{"default"}) {
				t.Errorf("got %+v", a)
			}
		})
	}
}

func TestEachStageOfAnAdmissionIsToldOnce(t *testing.T) {
	for name, tc := range map[string]struct {
		wasm []byte
		want []sandbox.Stage
	}{
		"of a prompt plugin":      {withManifest(wasmHeader, smallest), []sandbox.Stage{sandbox.StageLint}},
		"of a module with code":   {codeModule("p", "1"), []sandbox.Stage{sandbox.StageLint, sandbox.StageCompile, sandbox.StageInitialise}},
		"of what cannot be read":  {[]byte("hello"), []sandbox.Stage{sandbox.StageLint}},
		"of a manifest at fault":  {withManifest(wasmHeader, "{"), []sandbox.Stage{sandbox.StageLint}},
		"of a module without one": {[]byte(wasmHeader), []sandbox.Stage{sandbox.StageLint}},
	} {
		t.Run(name, func(t *testing.T) {
			var told []sandbox.Stage
			_, _ = plugins.NewAdmit(manifest.Known{}, newBox(t))(t.Context(), plugins.Candidate{
				Module: tc.wasm, Stage: func(s sandbox.Stage) { told = append(told, s) },
			})
			if !slices.Equal(told, tc.want) {
				t.Errorf("told were %v, want %v", told, tc.want)
			}
		})
	}
}

// talker is a module whose _initialize writes a text and then traps.
func talker(text string) []byte {
	m := wasmtest.New()
	write := m.WASI("fd_write")
	m.Memory(2)
	m.Data(16, binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, 64), uint32(len(text))))
	m.Data(64, []byte(text))
	start := m.Func(nil, nil)
	start.Const(2).Const(16).Const(1).Const(32).Call(write).Drop().Unreachable()
	m.Export("_initialize", 0, start.Index)
	return m.Bytes()
}

func TestCodeThatTrapsInAdmissionIsQuoted(t *testing.T) {
	for name, tc := range map[string]struct {
		text, quoted string
		least, most  int // bytes of the message
	}{
		"what it wrote":                    {"no config\n", "; it wrote: no config", 1, 500},
		"a few lines as they are":          {"one\ntwo\n\nthree\nfour\n\n", "; it wrote: one | two | three | four", 1, 500},
		"the first of many, and the last":  {"one\ntwo\nthree\nfour\nfive\n", "; it wrote: one | two | three | … | five", 1, 500},
		"a panic before its frames":        {"reads\nparses\nchecks\npanic: no table\n\ngoroutine 1 [running]:\nmain.init.0()\n\tmain.go:9\nruntime.main()\n", "; it wrote: … | checks | panic: no table | goroutine 1 [running]: | main.init.0() | … | runtime.main()", 1, 500},
		"the last of several panics":       {"panic: one [recovered]\n\tpanic: two\n\ngoroutine 1 [running]:\n", "; it wrote: panic: one [recovered] | panic: two | goroutine 1 [running]:", 1, 500},
		"what lacked":                      {"runtime: cannot allocate 4194304 bytes\nfatal error: out of memory\n\nruntime stack:\na\nb\nc\n", "; it wrote: runtime: cannot allocate 4194304 bytes | fatal error: out of memory | runtime stack: | a | … | c", 1, 500},
		"a failed assertion":               {"Assertion failed: n > 0 (x.c: main: 7)\n", "; it wrote: Assertion failed: n > 0 (x.c: main: 7)", 1, 500},
		"without what disturbs":            {"a\x1b[31mb\r\u202ec", "; it wrote: a [31mb  c", 1, 500},
		"no more than 400 bytes of a line": {strings.Repeat("ü", 10_000), strings.Repeat("ü", 200) + "…", 400, 700},
		"no more than five lines":          {strings.Repeat(strings.Repeat("x", 900)+"\n", 50), "; it wrote: xxx", 1600, 2300},
		"nothing, where it wrote none":     {"\n \n", "", 1, 300},
	} {
		t.Run(name, func(t *testing.T) {
			admit := plugins.NewAdmit(manifest.Known{}, newBox(t))
			_, err := admit(t.Context(), plugins.Candidate{Module: withManifest(string(talker(tc.text)), smallest)})
			wantCode(t, err, abi.InvalidModule)
			e, ok := errors.AsType[*carrel.Error](err)
			if !ok || !strings.Contains(e.Msg, tc.quoted) || len(e.Msg) < tc.least || len(e.Msg) > tc.most || !utf8.ValidString(e.Msg) {
				t.Errorf("got %v", err)
			}
			if quotes := strings.Contains(e.Msg, "it wrote"); quotes != (tc.quoted != "") {
				t.Errorf("got %q", e.Msg)
			}
		})
	}
}

// TestCodeThatFailsInAdmissionIsTheModulesFault has each way in which what runs
// at admission can end without success.
func TestCodeThatFailsInAdmissionIsTheModulesFault(t *testing.T) {
	type body = func(f *wasmtest.Func, exit uint32)
	trap := func(f *wasmtest.Func, _ uint32) { f.Unreachable() }
	spin := func(f *wasmtest.Func, _ uint32) { f.Loop().Br(0).End().Unreachable() }
	deep := func(f *wasmtest.Func, _ uint32) { f.Call(f.Index).Unreachable() }
	exit := func(f *wasmtest.Func, exit uint32) { f.Const(3).Call(exit).Unreachable() }
	steps := map[string]func(b body) []byte{
		"the start function": func(b body) []byte {
			return withManifest(string(failing(b, func(m *wasmtest.Module, f *wasmtest.Func) { m.Start(f) })), smallest)
		},
		"_initialize": func(b body) []byte {
			return withManifest(string(failing(b, func(m *wasmtest.Module, f *wasmtest.Func) {
				m.Export(abi.InitializeExport, wasmtest.FuncKind, f.Index)
			})), smallest)
		},
		abi.DescribeExport: func(b body) []byte {
			return failing(b, func(m *wasmtest.Module, f *wasmtest.Func) { m.Method(abi.DescribeExport).Call(f.Index).Const(0) })
		},
	}
	for end, tc := range map[string]struct {
		does  body
		fuel  int64
		time  time.Duration
		code  abi.Code
		limit string
		says  string
	}{
		"it traps":                    {trap, 0, 0, abi.InvalidModule, "", "trapped"},
		"it exits":                    {exit, 0, 0, abi.InvalidModule, "", "exited with code 3"},
		"its calls nest too deep":     {deep, 0, 0, abi.LimitExceeded, "sandbox.stack", "nest fewer calls"},
		"it uses all of its fuel":     {spin, 1_000_000, 0, abi.LimitExceeded, "sandbox.fuel", "1000000 units"},
		"it does not end in its time": {spin, 0, 50 * time.Millisecond, abi.LimitExceeded, "sandbox.admitTimeout", "did not end within 50ms"},
	} {
		for step, build := range steps {
			t.Run(step+": "+end, func(t *testing.T) {
				box := newBoxOf(t, sandbox.Config{Fuel: tc.fuel, AdmitTimeout: tc.time})
				_, err := plugins.NewAdmit(manifest.Known{}, box)(t.Context(), plugins.Candidate{Module: build(tc.does)})
				wantCode(t, err, tc.code)
				e, ok := errors.AsType[*carrel.Error](err)
				if !ok || e.Limit != tc.limit || !strings.Contains(e.Msg, tc.limit) || !strings.Contains(e.Msg, tc.says) || e.GuestCode != "" {
					t.Errorf("got %+v", err)
				}
				if text := err.Error(); strings.Count(text, tc.says) != 1 {
					t.Errorf("the log would say %q", text)
				}
			})
		}
	}
	t.Run("carrel_describe returns a failure", func(t *testing.T) {
		m := wasmtest.New()
		m.Method(abi.DescribeExport).Const(7)
		_, err := plugins.NewAdmit(manifest.Known{}, newBox(t))(t.Context(), plugins.Candidate{Module: m.Bytes()})
		wantCode(t, err, abi.InvalidModule)
		if !strings.Contains(err.Error(), "returned 7") {
			t.Errorf("got %v", err)
		}
	})
}

// failing is a module with a function () -> () that body writes and mark puts
// into its place.
func failing(body func(f *wasmtest.Func, exit uint32), mark func(m *wasmtest.Module, f *wasmtest.Func)) []byte {
	m := wasmtest.New()
	exit := m.WASI("proc_exit")
	f := m.Func(nil, nil)
	body(f, exit)
	mark(m, f)
	return m.Bytes()
}

func mustJSON(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestTheReportNamesEachModelOnce(t *testing.T) {
	admit := plugins.NewAdmit(manifest.Known{}, newBox(t))
	method := func(name, model string) string {
		return `{"name":"` + name + `","kind":"chat","model":"` + model + `"` + msgParams + `}`
	}
	a, err := admit(t.Context(), plugins.Candidate{Module: withManifest(wasmHeader, withPlugin(`"services":[`+
		`{"name":"A","methods":[`+method("x", "small")+","+method("y", "default")+`]},`+
		`{"name":"B","methods":[`+method("x", "small")+","+method("y", "big")+`]}]`))})
	if err != nil || !slices.Equal(a.Report.Models, []string{"small", "default", "big"}) {
		t.Errorf("got %v, %v", a.Report.Models, err)
	}
	a, err = admit(t.Context(), plugins.Candidate{Module: withManifest(wasmHeader, smallest)})
	if err != nil || a.Report.Models == nil || len(a.Report.Models) != 0 {
		t.Errorf("a plugin without services calls %v, %v", a.Report.Models, err)
	}
}

func TestEmbed(t *testing.T) {
	limits := module.DefaultLimits()
	bare := make([]byte, len(wasmHeader), 4096) // with room that an append could write to
	copy(bare, wasmHeader)
	raw := []byte(withMethod(msgParams))
	out, err := plugins.Embed(bare, raw, limits)
	if err != nil {
		t.Fatal(err)
	}
	if want := withManifest(wasmHeader, string(raw)); !bytes.Equal(out, want) {
		t.Errorf("got %q, want %q", out, want)
	}
	if !bytes.Equal(bare[:cap(bare)], append([]byte(wasmHeader), make([]byte, cap(bare)-len(wasmHeader))...)) {
		t.Error("the module's own bytes were written to")
	}
	m, err := module.Read(out, limits)
	if err != nil {
		t.Fatal(err)
	}
	if got, ok := m.Custom(abi.ManifestSection); !ok || !bytes.Equal(got, raw) {
		t.Errorf("the manifest is read back as %q", got)
	}
	admit := plugins.NewAdmit(manifest.Known{}, newBox(t))
	if a, err := admit(t.Context(), plugins.Candidate{Module: out}); err != nil || a.Manifest.Name != "a" {
		t.Errorf("got %+v, %v", a, err)
	}

	_, err = plugins.Embed(out, raw, limits)
	wantCode(t, err, abi.InvalidManifest)
	_, err = plugins.Embed([]byte("hello"), raw, limits)
	wantCode(t, err, abi.InvalidModule)
	coded, err := plugins.Embed([]byte(wasmHeader+typeSection+functionSection+codeSection), raw, limits)
	if err != nil {
		t.Fatal(err)
	}
	if a, err := admit(t.Context(), plugins.Candidate{Module: coded}); err != nil || a.Report.Path != "reset" {
		t.Errorf("got %+v, %v", a, err)
	}
}

// The same two parts are the same version, whichever way they arrive.
func TestAnEmbeddedManifestMakesTheSameVersion(t *testing.T) {
	l := newLibrary(t, nil)
	raw := []byte(strings.ReplaceAll(withMethod(msgParams), `"name":"a"`, `"name":"p"`))
	for i := range 2 {
		wasm, err := plugins.Embed([]byte(wasmHeader), raw, module.DefaultLimits())
		if err != nil {
			t.Fatal(err)
		}
		up, err := l.Upload(t.Context(), plugins.Upload{Tenant: acme, Module: wasm, Activate: true})
		if err != nil || up.Created != (i == 0) || up.Version.N != 1 || up.Version.Digest != carrel.DigestOf(wasm) {
			t.Errorf("upload %d is %+v, %v", i, up, err)
		}
	}
	l.wantRunning(active, "1")
}
