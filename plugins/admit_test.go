package plugins_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox/module"
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

func TestAdmitPrompts(t *testing.T) {
	good := withMethod(msgParams)
	for name, tc := range map[string]struct {
		wasm    []byte
		code    abi.Code
		message string
	}{
		"a module of a manifest":                        {withManifest(wasmHeader, good), abi.OK, ""},
		"no module":                                     {[]byte("\x7fELF"), abi.InvalidModule, ""},
		"a module without a manifest":                   {[]byte(wasmHeader), abi.InvalidModule, "carrel pack"},
		"a module with code":                            {withManifest(wasmHeader+typeSection+functionSection+codeSection, good), abi.InvalidModule, "not supported yet"},
		"unknown imports are named before code is":      {withManifest(wasmHeader+typeSection+importSection+functionSection+codeSection, good), abi.UnknownImport, "env"},
		"a manifest that is not JSON":                   {withManifest(wasmHeader, "{"), abi.InvalidManifest, ""},
		"a manifest of a model that the host lacks":     {withManifest(wasmHeader, withMethod(msgParams+`,"model":"big"`)), abi.InvalidManifest, "big"},
		"an application-scoped service that would leak": {withManifest(wasmHeader, withService(`"scope":"application","methods":[{"name":"chat","kind":"chat"`+msgParams+`}]`)), abi.DefaultIDLeak, "memoryId"},
	} {
		t.Run(name, func(t *testing.T) {
			admit := plugins.AdmitPrompts(plugins.Known{Models: []string{"default", "small"}}, module.DefaultLimits())
			before := bytes.Clone(tc.wasm)
			a, err := admit(t.Context(), tc.wasm)
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
			want := plugins.Report{Path: "prompt", ModuleBytes: len(tc.wasm), ManifestBytes: len(good), Models: []string{"default"}}
			if got, _ := json.Marshal(a.Report); a.Manifest.Name != "a" || string(got) != mustJSON(t, want) {
				t.Errorf("got %+v", a)
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
	admit := plugins.AdmitPrompts(plugins.Known{}, module.DefaultLimits())
	method := func(name, model string) string {
		return `{"name":"` + name + `","kind":"chat","model":"` + model + `"` + msgParams + `}`
	}
	a, err := admit(t.Context(), withManifest(wasmHeader, withPlugin(`"services":[`+
		`{"name":"A","methods":[`+method("x", "small")+","+method("y", "default")+`]},`+
		`{"name":"B","methods":[`+method("x", "small")+","+method("y", "big")+`]}]`)))
	if err != nil || !slices.Equal(a.Report.Models, []string{"small", "default", "big"}) {
		t.Errorf("got %v, %v", a.Report.Models, err)
	}
	a, err = admit(t.Context(), withManifest(wasmHeader, smallest))
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
	if a, err := plugins.AdmitPrompts(plugins.Known{}, limits)(t.Context(), out); err != nil || a.Manifest.Name != "a" {
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
	_, err = plugins.AdmitPrompts(plugins.Known{}, limits)(t.Context(), coded)
	wantCode(t, err, abi.InvalidModule)
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
