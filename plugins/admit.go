package plugins

import (
	"context"
	"slices"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox/module"
)

// Admission is what a module turned out to be.
type Admission struct {
	Manifest abi.Manifest
	Report   Report
}

// Report tells a plugin's author what admission found. It is stored with the
// version.
type Report struct {
	Path          string   `json:"path"` // how it runs: "prompt", nothing of it executes
	ModuleBytes   int      `json:"moduleBytes"`
	ManifestBytes int      `json:"manifestBytes"`
	Models        []string `json:"models"` // aliases that its methods call
}

// Admit decides on an uploaded module, without keeping the bytes. What is
// wrong with the module is invalid_module, unknown_import, invalid_manifest,
// default_id_leak or limit_exceeded.
type Admit func(ctx context.Context, wasm []byte) (Admission, error)

// AdmitPrompts returns the admission of prompt plugins: modules of custom
// sections only. Unknown imports are named before any other module with code
// is refused, so that its author learns of both.
func AdmitPrompts(known Known, limits module.Limits) Admit {
	return func(_ context.Context, wasm []byte) (Admission, error) {
		const op = "plugins.Admit"
		m, err := module.Read(wasm, limits)
		if err != nil {
			return Admission{}, err
		}
		if m.HasCode() {
			return Admission{}, carrel.Fail(op, abi.InvalidModule,
				"guest code is not supported yet: this host runs prompt plugins, modules with a manifest and nothing to execute (`carrel pack` makes them)")
		}
		raw, ok := m.Custom(abi.ManifestSection)
		if !ok {
			return Admission{}, carrel.Fail(op, abi.InvalidModule,
				"the module has no custom section `"+abi.ManifestSection+"`; `carrel pack` adds it, or send the manifest along as the part `manifest`")
		}
		manifest, err := ParseManifest(raw, known)
		if err != nil {
			return Admission{}, err
		}
		return Admission{Manifest: manifest, Report: Report{
			Path: "prompt", ModuleBytes: len(wasm), ManifestBytes: len(raw), Models: models(manifest),
		}}, nil
	}
}

// models returns the aliases that a manifest's methods call, each once, in
// order of first use.
func models(m abi.Manifest) []string {
	seen := map[string]bool{}
	out := []string{}
	for _, s := range m.Services {
		for _, method := range s.Methods {
			if !seen[method.Model] {
				seen[method.Model] = true
				out = append(out, method.Model)
			}
		}
	}
	return out
}

// Embed returns the module with the manifest as its custom section, as it is
// stored when the two arrive apart. A module that has one is invalid_manifest;
// one that cannot be read has module.Read's errors.
func Embed(wasm, manifest []byte, limits module.Limits) ([]byte, error) {
	m, err := module.Read(wasm, limits)
	if err != nil {
		return nil, err
	}
	if _, has := m.Custom(abi.ManifestSection); has {
		return nil, carrel.Fail("plugins.Embed", abi.InvalidManifest, "the module has a manifest already; send it without another one")
	}
	return module.AppendCustom(slices.Clone(wasm), abi.ManifestSection, manifest), nil
}
