package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/client"
)

func TestARefusalOfExportsNamesTheBuildThatWritesThem(t *testing.T) {
	export := []carrel.Fault{{Pointer: "/services/0/methods/0/export", Message: "there is no such function"}}
	const says = "\nthe exports of a Go plugin are in carrel_exports.go"
	for name, tc := range map[string]struct {
		err  error
		file bool // carrel_exports.go lies beside the module
		want bool
	}{
		"one of a host":                {&client.Problem{Code: "invalid_manifest", Errors: export}, true, true},
		"one of this machine":          {withFaults("a.wasm", &carrel.Error{Code: abi.InvalidManifest, Faults: export}), true, true},
		"one in a project of C":        {&client.Problem{Code: "invalid_manifest", Errors: export}, false, false},
		"a refusal of something else":  {&client.Problem{Code: "invalid_manifest", Errors: []carrel.Fault{{Pointer: "/name"}}}, true, false},
		"a failure that is no refusal": {errors.New("no host"), true, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if tc.file {
				if err := os.WriteFile(filepath.Join(dir, "carrel_exports.go"), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			got := withBuildHint(filepath.Join(dir, "a.wasm"), tc.err)
			if !errors.Is(got, tc.err) || exitCode(got) != exitCode(tc.err) {
				t.Errorf("got %v", got)
			}
			if has := strings.Contains(got.Error(), says) && strings.HasSuffix(got.Error(), "carrel build "+dir); has != tc.want {
				t.Errorf("got %q", got)
			}
		})
	}
}
