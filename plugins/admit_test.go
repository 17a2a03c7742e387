package plugins_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox"
	"github.com/carrelhost/carrel/host/sandbox/module"
	"github.com/carrelhost/carrel/host/sandbox/wasmtest"
	"github.com/carrelhost/carrel/plugins"
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
			admit := plugins.NewAdmit(plugins.Known{Models: []string{"default", "small"}}, newBox(t))
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
			_, _ = plugins.NewAdmit(plugins.Known{}, newBox(t))(t.Context(), plugins.Candidate{
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
		"what it wrote last":             {"panic: no config\n", "the last that it wrote: panic: no config", 1, 500},
		"the last lines, in their order": {"one\ntwo\nthree\nfour\n\n", "the last that it wrote: two; three; four", 1, 500},
		"without what disturbs":          {"a\x1b[31mb\r\u202ec", "the last that it wrote: a [31mb  c", 1, 500},
		"no more than 1 KiB of it":       {strings.Repeat("ü", 10_000), strings.Repeat("ü", 500), 1000, 1024 + 300},
		"nothing, where it wrote none":   {"\n \n", "", 1, 300},
	} {
		t.Run(name, func(t *testing.T) {
			admit := plugins.NewAdmit(plugins.Known{}, newBox(t))
			_, err := admit(t.Context(), plugins.Candidate{Module: withManifest(string(talker(tc.text)), smallest)})
			wantCode(t, err, abi.GuestTrap)
			e, ok := errors.AsType[*carrel.Error](err)
			if !ok || !strings.Contains(e.Msg, tc.quoted) || len(e.Msg) < tc.least || len(e.Msg) > tc.most || !utf8.ValidString(e.Msg) {
				t.Errorf("got %v", err)
			}
			if quotes := strings.Contains(e.Msg, "that it wrote"); quotes != (tc.quoted != "") {
				t.Errorf("got %q", e.Msg)
			}
		})
	}
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
	admit := plugins.NewAdmit(plugins.Known{}, newBox(t))
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
	manifest := []byte(withMethod(msgParams))
	out, err := plugins.Embed(bare, manifest, limits)
	if err != nil {
		t.Fatal(err)
	}
	if want := withManifest(wasmHeader, string(manifest)); !bytes.Equal(out, want) {
		t.Errorf("got %q, want %q", out, want)
	}
	if !bytes.Equal(bare[:cap(bare)], append([]byte(wasmHeader), make([]byte, cap(bare)-len(wasmHeader))...)) {
		t.Error("the module's own bytes were written to")
	}
	m, err := module.Read(out, limits)
	if err != nil {
		t.Fatal(err)
	}
	if got, ok := m.Custom(abi.ManifestSection); !ok || !bytes.Equal(got, manifest) {
		t.Errorf("the manifest is read back as %q", got)
	}
	admit := plugins.NewAdmit(plugins.Known{}, newBox(t))
	if a, err := admit(t.Context(), plugins.Candidate{Module: out}); err != nil || a.Manifest.Name != "a" {
		t.Errorf("got %+v, %v", a, err)
	}

	_, err = plugins.Embed(out, manifest, limits)
	wantCode(t, err, abi.InvalidManifest)
	_, err = plugins.Embed([]byte("hello"), manifest, limits)
	wantCode(t, err, abi.InvalidModule)
	coded, err := plugins.Embed([]byte(wasmHeader+typeSection+functionSection+codeSection), manifest, limits)
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
	manifest := []byte(strings.ReplaceAll(withMethod(msgParams), `"name":"a"`, `"name":"p"`))
	for i := range 2 {
		wasm, err := plugins.Embed([]byte(wasmHeader), manifest, module.DefaultLimits())
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
