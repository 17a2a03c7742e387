package abi_test

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/carrelhost/carrel/abi"
)

var update = flag.Bool("update", false, "rewrite testdata/v1.golden; additions only, numbers never change")

func TestEveryCodeHasAWireNameOfItsOwn(t *testing.T) {
	wire := regexp.MustCompile(`^[a-z_]+$`)
	seen := map[string]abi.Code{}
	for _, c := range append(abi.Codes(), abi.OK) {
		name := c.String()
		if !wire.MatchString(name) {
			t.Errorf("code %d has the name %q", c, name)
		}
		if other, ok := seen[name]; ok {
			t.Errorf("codes %d and %d are both called %q", other, c, name)
		}
		seen[name] = c
		if got, ok := abi.ParseCode(name); !ok || got != c {
			t.Errorf("ParseCode(%q) = %v, %v", name, got, ok)
		}
	}
	for _, name := range []string{"", "OK", "code(999)", "nothing_known"} {
		if got, ok := abi.ParseCode(name); ok || got != abi.Internal {
			t.Errorf("ParseCode(%q) = %v, %v", name, got, ok)
		}
	}
}

// TestCodesOfTheHTTPTable holds the names of the documented table of codes and
// statuses: a code that is missing on one side is a failure here.
func TestCodesOfTheHTTPTable(t *testing.T) {
	documented := strings.Fields(`malformed_json bad_request unauthenticated budget_exceeded forbidden not_found
		quota_exceeded rate_limited internal draining overloaded storage_full method_not_allowed
		memory_busy session_busy scope_closed no_session history_conflict idempotency_interrupted session_closed too_large
		invalid_params invalid_memory_id invalid_manifest invalid_module unknown_import limit_exceeded default_id_leak
		context_too_large guard_refused idempotency_mismatch guest_failed guest_trap model_failed timeout fuel_exhausted
		wrong_host unsupported_media_type`)
	rest := map[string]bool{}
	for _, c := range abi.Codes() {
		rest[c.String()] = true
	}
	for _, name := range documented {
		if !rest[name] {
			t.Errorf("the documented code %q does not exist", name)
		}
		delete(rest, name)
	}
	// Nobody is there any more to whom a status could be sent.
	delete(rest, abi.Canceled.String())
	for name := range rest {
		t.Errorf("the code %q is not documented", name)
	}
}

func TestNoImportIsThereTwice(t *testing.T) {
	for mod, funcs := range map[string][]abi.Func{abi.Module: abi.Imports(), abi.WASIModule: abi.WASIImports()} {
		seen := map[string]bool{}
		for _, f := range funcs {
			if seen[f.Name] {
				t.Errorf("%s has %s twice", mod, f.Name)
			}
			seen[f.Name] = true
		}
	}
}

// TestGolden pins everything that guests are compiled against and hosts store.
func TestGolden(t *testing.T) {
	const file = "testdata/v1.golden"
	got := contract()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got == string(want) {
		return
	}
	have := map[string]bool{}
	for line := range strings.Lines(got) {
		have[line] = true
	}
	for line := range strings.Lines(string(want)) {
		if !have[line] {
			t.Errorf("gone or changed, which no guest survives: %s", line)
		}
	}
	t.Errorf("the contract differs from %s; run with -update if it only grew", file)
}

func contract() string {
	var b strings.Builder
	fmt.Fprintf(&b, "manifest version %s\nmanifest section %s\nsource section %s\nreserved export prefix %s\n",
		abi.Version, abi.ManifestSection, abi.SourceSection, abi.ReservedExportPrefix)
	fmt.Fprintf(&b, "export %s memory\nexport %s () -> ()\nexport %s () -> (i32)\nexport %s () -> (i32)\n",
		abi.MemoryExport, abi.InitializeExport, abi.WakeExport, abi.DescribeExport)
	for _, m := range []struct {
		name  string
		funcs []abi.Func
	}{{abi.Module, abi.Imports()}, {abi.WASIModule, abi.WASIImports()}} {
		for _, f := range m.funcs {
			fmt.Fprintf(&b, "import %s %s (%s) -> (%s)\n", m.name, f.Name, types(f.Params), types(f.Results))
		}
	}
	for e := abi.EINVAL; e.String() != "EUNKNOWN"; e++ {
		fmt.Fprintf(&b, "errno %d %s\n", e, e)
	}
	fmt.Fprintf(&b, "wasi errno %d ENOSYS\n", abi.WASIENOSYS)
	for _, c := range append([]abi.Code{abi.OK}, abi.Codes()...) {
		fmt.Fprintf(&b, "code %d %s\n", c, c)
	}
	for _, op := range abi.Ops() {
		fmt.Fprintf(&b, "op %s\n", op)
	}
	return b.String()
}

func types(list []abi.ValType) string {
	names := map[abi.ValType]string{abi.I32: "i32", abi.I64: "i64"}
	out := make([]string, 0, len(list))
	for _, v := range list {
		out = append(out, names[v])
	}
	return strings.Join(out, ", ")
}
