package scaffold_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox"
	"github.com/carrelhost/carrel/host/sandbox/module"
	"github.com/carrelhost/carrel/internal/scaffold"
	"github.com/carrelhost/carrel/plugins/manifest"
)

var update = flag.Bool("update", false, "build sdk/c/testdata/hello.wasm anew")

// needClang skips where there is no toolchain for C.
func needClang(t *testing.T) {
	t.Helper()
	for _, tool := range []string{"clang", "wasm-ld"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed; install clang and lld to run this test (Debian: apt-get install clang lld)", tool)
		}
	}
}

var (
	sdkC      = filepath.Join("..", "..", "sdk", "c")
	committed = filepath.Join(sdkC, "testdata", "hello.wasm")
)

// exampleC copies the example of the C SDK to a folder of its own.
func exampleC(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for from, to := range map[string]string{"carrel.h": "carrel.h", "examples/hello/hello.c": "hello.c", "examples/hello/manifest.json": "manifest.json"} {
		b, err := os.ReadFile(filepath.Join(sdkC, filepath.FromSlash(from)))
		if err != nil {
			t.Fatal(err)
		}
		write(t, dir, map[string]string{to: string(b)})
	}
	return dir
}

var clangVersion = regexp.MustCompile(`[0-9]+\.[0-9]+\.[0-9]+`)

// TestTheCommittedGuestOfCIsWhatItsSourceBuildsTo rebuilds it with -update.
func TestTheCommittedGuestOfCIsWhatItsSourceBuildsTo(t *testing.T) {
	needClang(t)
	got, _ := built(t, exampleC(t), "hello")
	if *update {
		if err := os.WriteFile(committed, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(committed)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(got, want) {
		return
	}
	version, err := exec.CommandContext(t.Context(), "clang", "--version").Output()
	if err != nil {
		t.Fatal(err)
	}
	if here := clangVersion.Find(version); !bytes.Contains(want, here) {
		t.Skipf("it was built by another clang than the %s here; install that one to compare", here)
	}
	t.Errorf("%s is not what its source builds to; run `go generate ./sdk`", committed)
}

func TestTheGuestOfCRuns(t *testing.T) {
	wasm, err := os.ReadFile(committed)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(filepath.Join(sdkC, "examples", "hello", "manifest.json"))
	if err != nil {
		t.Fatal(err)
	}
	m, err := manifest.Parse(raw, manifest.Known{})
	if err != nil {
		t.Fatal(err)
	}
	call := guest(t, wasm, m)
	t.Run("its input is its output", func(t *testing.T) {
		in := `{"text":"` + strings.Repeat("grüße ", 2000) + `"}`
		if out, _, err := call("echo", in, nil); err != nil || out != in {
			t.Errorf("got %d bytes, %v", len(out), err)
		}
	})
	t.Run("an input that does not fit is its own failure", func(t *testing.T) {
		_, _, err := call("echo", strings.Repeat(" ", 16*1024)+"{}", nil)
		e, ok := errors.AsType[*carrel.Error](err)
		if !ok || e.Code != abi.GuestFailed || !strings.Contains(e.Error(), "larger than 16 KiB") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("it asks the host", func(t *testing.T) {
		const context = `{"tenant":"acme","subject":"ada"}`
		if out, _, err := call("whoami", "{}", answers{abi.OpContext: answer(context)}); err != nil || out != context {
			t.Errorf("got %q, %v", out, err)
		}
	})
	t.Run("a refusal has a name", func(t *testing.T) {
		_, r, err := call("whoami", "{}", answers{})
		e, ok := errors.AsType[*carrel.Error](err)
		if !ok || e.Code != abi.GuestFailed || !strings.Contains(e.Error(), "ENOSYS") {
			t.Errorf("got %v", err)
		}
		if len(r.Log) != 1 || r.Log[0] != (sandbox.LogLine{Level: 3, Text: "the host refused to tell the context"}) {
			t.Errorf("logged %v", r.Log)
		}
	})
}

func TestBuildOfANewCProject(t *testing.T) {
	needClang(t)
	dir := filepath.Join(t.TempDir(), "new")
	if err := scaffold.New(dir, "my-plugin", scaffold.C); err != nil {
		t.Fatal(err)
	}
	wasm, m := built(t, dir, "my-plugin")
	call := guest(t, wasm, m)
	if out, _, err := call("echo", `{"a":1}`, nil); err != nil || out != `{"a":1}` {
		t.Errorf("got %q, %v", out, err)
	}
	again := filepath.Join(t.TempDir(), "elsewhere")
	if err := scaffold.New(again, "my-plugin", scaffold.C); err != nil {
		t.Fatal(err)
	}
	if second, _ := built(t, again, "my-plugin"); !bytes.Equal(wasm, second) {
		t.Error("two folders with one content give two modules")
	}
}

func TestTheHelpersOfTheHeader(t *testing.T) {
	needClang(t)
	const source = `#include "carrel.h"
static char out[64];
CARREL_EXPORT("errnos") int32_t errnos(void) {
  for (int32_t e = 1; e <= 11; e++) {
    carrel_output_text(carrel_errno_name(e % 2 ? e : -e));
    carrel_output_text(" ");
  }
  return 0;
}
CARREL_EXPORT("fail") int32_t fail(void) {
  static char message[1200];
  for (int i = 0; i < 1198; i++) message[i] = "a\"\n\\\x01"[i % 5];
  return carrel_fail("its_own", message);
}
CARREL_EXPORT("cut") int32_t cut(void) {
  static char message[1200];
  for (int i = 0; i < 1198; i++) message[i] = i == 0 ? 'x' : (i % 2 ? '\xc3' : '\xa4');
  return carrel_fail("its_own", message);
}
CARREL_EXPORT("small") int32_t small(void) {
  int32_t n = carrel_do("context", "{}", 2, out, 8);
  return n == -CARREL_E2BIG ? carrel_output_text("E2BIG") : 1;
}
CARREL_EXPORT("many") int32_t many(void) {
  for (int i = 0; i < 2000; i++) {
    if (carrel_do("context", "{}", 2, out, i % 2 ? 8 : sizeof out) == 0) return 1;
  }
  return carrel_now_ns() > 0 && carrel_deadline_ms() != 0 && carrel_feature("context", 7) == 1 && carrel_random(out, 8) == 0 ? 0 : 1;
}
`
	dir := exampleC(t)
	write(t, dir, map[string]string{"hello.c": source, "manifest.json": `{"abi":"carrel/v1","name":"hello","version":"1","services":[{"name":"S","methods":[` +
		`{"name":"errnos","kind":"handler","export":"errnos"}]}]}`})
	wasm, m := built(t, dir, "hello")
	call := guest(t, wasm, m)
	host := answers{abi.OpContext: answer(`{"tenant":"acme"}`)}
	want := ""
	for e := abi.EINVAL; e <= abi.ENOSYS+1; e++ {
		want += e.String() + " "
	}
	if out, _, err := call("errnos", "", nil); err != nil || out != want {
		t.Errorf("got %q, %v, want %q", out, err, want)
	}
	for export, text := range map[string]string{"fail": strings.Repeat("a\"\n\\\x01", 200), "cut": "x" + strings.Repeat("ä", 499)} {
		_, _, err := call(export, "", nil)
		if e, ok := errors.AsType[*carrel.Error](err); !ok || !strings.Contains(e.Msg, text) {
			t.Errorf("%s: got %v", export, err)
		}
	}
	if out, _, err := call("small", "", host); err != nil || out != "E2BIG" {
		t.Errorf("got %q, %v", out, err)
	}
	if _, r, err := call("many", "", host); err != nil {
		t.Errorf("results that were not freed? %v %v", err, r.Log)
	}
}

func TestCBuildsThatFailSayWhatClangSays(t *testing.T) {
	needClang(t)
	dir := exampleC(t)
	write(t, dir, map[string]string{"hello.c": "int f(void) { return oops; }\n"})
	if _, err := scaffold.Build(t.Context(), dir); err == nil || !strings.Contains(err.Error(), "use of undeclared identifier 'oops'") {
		t.Errorf("got %v", err)
	}
	write(t, dir, map[string]string{"hello.c": "int g(void);\n__attribute__((export_name(\"f\"))) int f(void) { return g(); }\n"})
	if _, err := scaffold.Build(t.Context(), dir); err == nil || !strings.Contains(err.Error(), "undefined symbol: g") {
		t.Errorf("got %v", err)
	}
}

func TestCBuildsWhoseManifestNamesAFunctionThatIsNotThereFail(t *testing.T) {
	needClang(t)
	dir := exampleC(t)
	write(t, dir, map[string]string{"manifest.json": `{"abi":"carrel/v1","name":"hello","version":"1","services":[{"name":"S","methods":[` +
		`{"name":"m","kind":"handler","export":"nowhere"}]}]}`})
	_, err := scaffold.Build(t.Context(), dir)
	e, ok := errors.AsType[*carrel.Error](err)
	if !ok || len(e.Faults) != 1 || e.Faults[0].Pointer != "/services/0/methods/0/export" || !strings.Contains(e.Faults[0].Message, "nowhere") {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "hello.wasm")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a module was written: %v", err)
	}
}

func TestABuildDoesNotJudgeByALimitThatIsTheHosts(t *testing.T) {
	needClang(t)
	dir := exampleC(t)
	src, err := os.ReadFile(filepath.Join(dir, "hello.c"))
	if err != nil {
		t.Fatal(err)
	}
	large := module.DefaultLimits().Bytes
	section := fmt.Sprintf(`__asm__(".section .custom_section.more,\"\",@\n.zero %d\n.text\n");`, large)
	write(t, dir, map[string]string{"hello.c": string(src) + "\n" + section + "\n"})
	path, err := scaffold.Build(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if about, err := os.Stat(path); err != nil || about.Size() <= int64(large) {
		t.Errorf("got %v, %v", about, err)
	}
}
