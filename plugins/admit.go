package plugins

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/memory"
	"github.com/carrelhost/carrel/host/sandbox"
	"github.com/carrelhost/carrel/host/sandbox/module"
	"github.com/carrelhost/carrel/plugins/manifest"
)

// Admission is what a module turned out to be.
type Admission struct {
	Manifest abi.Manifest
	Report   Report
	Log      []sandbox.LogLine // what its code wrote meanwhile; nobody may change it
}

// Candidate is a module that somebody uploaded.
type Candidate struct {
	Tenant carrel.TenantID // whose admissions take turns with those of others
	Module []byte          // must not change until it is admitted
	// Stage is told each stage when it begins, and must not block. nil: nobody
	// is told.
	Stage func(sandbox.Stage)
}

// Admit decides on an uploaded module, without keeping the bytes. What is
// wrong with the module is invalid_module, unknown_import, invalid_manifest,
// default_id_leak or limit_exceeded: also where its code fails, whatever that
// would be in a call. If ctx ends it returns ctx's error.
type Admit func(ctx context.Context, c Candidate) (Admission, error)

// NewAdmit returns the admission of a host: modules of custom sections only
// are prompt plugins; of those that have code the sandbox may also be where
// the manifest comes from.
func NewAdmit(known manifest.Known, box *sandbox.Sandbox) Admit {
	return func(ctx context.Context, c Candidate) (Admission, error) {
		a := admitter{known: known, bytes: len(c.Module)}
		report, err := box.Admit(ctx, sandbox.Candidate{
			Module: c.Module, Share: string(c.Tenant), Stage: c.Stage,
			Plan: func(r sandbox.Report) (sandbox.Setup, error) { return a.plan(ctx, r) },
		})
		if err != nil {
			return Admission{}, failedAdmission(err, report.Log)
		}
		if report.Path != sandbox.PathPrompt {
			a.found.Report.code(report, a.found.Manifest.Warmup)
			a.found.Log = report.Log
		}
		return a.found, nil
	}
}

// admitter judges one module.
type admitter struct {
	known manifest.Known
	bytes int       // of the module
	found Admission // what plan found out
}

// plan judges the manifest, once the sandbox knows it, and says what the
// plugin's calls begin with.
func (a *admitter) plan(ctx context.Context, code sandbox.Report) (sandbox.Setup, error) {
	if code.Manifest == nil {
		return sandbox.Setup{}, carrel.Fail("plugins.Admit", abi.InvalidModule,
			"the module has no custom section `"+abi.ManifestSection+"`; `carrel build` and `carrel pack` add it, or send the manifest along as the part `manifest`")
	}
	m, _, err := manifest.Compile(ctx, code.Manifest, a.known)
	if err != nil {
		return sandbox.Setup{}, err
	}
	if err := checkExports(m, code); err != nil {
		return sandbox.Setup{}, err
	}
	a.found = Admission{Manifest: m, Report: Report{
		Class: ClassOf(m, code), Path: code.Path, Why: code.Why,
		ModuleBytes: a.bytes, ManifestBytes: len(code.Manifest), CustomBytes: code.CustomBytes,
		Models: models(m), Notes: loweredWindows(m, a.known.WindowBytes),
	}}
	return setup(m), nil
}

// setup is what the calls of a plugin begin with.
func setup(m abi.Manifest) sandbox.Setup {
	return sandbox.Setup{MemoryMiB: memoryMiB(m), Warmup: warmupOf(m)}
}

// warmupOf is what the sandbox runs: the handler's export with the input that
// a call with these params has.
func warmupOf(m abi.Manifest) *sandbox.Warmup {
	if m.Warmup == nil {
		return nil
	}
	method, ok := manifest.FindMethod(m.Services, m.Warmup.Method)
	if !ok { // the manifest was checked
		return nil
	}
	return &sandbox.Warmup{Export: method.Export, Input: bytes.Clone(m.Warmup.Params)}
}

// checkExports refuses a manifest that names functions which the module does
// not have.
func checkExports(m abi.Manifest, code sandbox.Report) error {
	var faults []carrel.Fault
	need := func(export, pointer string) {
		if export != "" && !code.Has(export) {
			faults = append(faults, carrel.Fault{Pointer: pointer, Message: fmt.Sprintf(
				"the module exports no function %.64q without params and with an i32 result", export)})
		}
	}
	if m.DefaultMemoryID != nil {
		need(m.DefaultMemoryID.Export, "/defaultMemoryId/export")
	}
	for i, s := range m.Services {
		for j, method := range s.Methods {
			need(method.Export, fmt.Sprintf("/services/%d/methods/%d/export", i, j))
		}
	}
	if len(faults) == 0 {
		return nil
	}
	return &carrel.Error{
		Op: "plugins.Admit", Code: abi.InvalidManifest, Faults: faults,
		Msg: "the manifest names functions that the module does not have",
	}
}

// memoryMiB is what each call of a plugin may have.
func memoryMiB(m abi.Manifest) int {
	if m.Limits != nil && m.Limits.MemoryMiB != 0 {
		return m.Limits.MemoryMiB
	}
	return abi.DefaultMemoryMiB
}

// models returns the aliases that a manifest's chat methods call, each once,
// in order of first use.
func models(m abi.Manifest) []string {
	out := []string{}
	for _, s := range m.Services {
		for _, method := range s.Methods {
			if method.Kind == abi.KindChat && !slices.Contains(out, method.Model) {
				out = append(out, method.Model)
			}
		}
	}
	return out
}

// loweredWindows says which windows of tokens hold more than the host sends
// of a history; 0 most means that it is not known.
func loweredWindows(m abi.Manifest, most int64) []string {
	if most <= 0 {
		return nil
	}
	var out []string
	for _, s := range m.Services {
		for _, method := range s.Methods {
			if method.Kind != abi.KindChat || method.Window.Type != abi.WindowTokens {
				continue
			}
			if bytes := memory.TokenBytes(int64(method.Window.Max), memory.DefaultTokenRate); bytes > most {
				out = append(out, fmt.Sprintf("the window of %s.%s is lowered: %d tokens are about %d bytes, and this host sends at most %d of a history (limit windowBytes)",
					s.Name, method.Name, method.Window.Max, bytes, most))
			}
		}
	}
	return out
}

// Embed returns the module with a manifest, raw, as its custom section, as it
// is stored when the two arrive apart. A module that has one is
// invalid_manifest; one that cannot be read has module.Read's errors.
func Embed(wasm, raw []byte, limits module.Limits) ([]byte, error) {
	m, err := module.Read(wasm, limits)
	if err != nil {
		return nil, err
	}
	if _, has := m.Custom(abi.ManifestSection); has {
		return nil, carrel.Fail("plugins.Embed", abi.InvalidManifest, "the module has a manifest already; send it without another one")
	}
	return module.AppendCustom(slices.Clone(wasm), abi.ManifestSection, raw), nil
}
