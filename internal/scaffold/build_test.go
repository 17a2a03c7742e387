package scaffold_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox"
	"github.com/carrelhost/carrel/host/sandbox/module"
	"github.com/carrelhost/carrel/internal/scaffold"
	"github.com/carrelhost/carrel/plugins/manifest"
)

// write puts files into dir.
func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// offline makes sure that a build cannot fetch anything.
func offline(t *testing.T) {
	t.Helper()
	t.Setenv("GOPROXY", "off")
	t.Setenv("GOFLAGS", "-mod=mod")
	t.Setenv("GOTOOLCHAIN", "local")
}

// built builds dir and returns the module with its manifest, as a host reads it.
func built(t *testing.T, dir, name string) ([]byte, abi.Manifest) {
	t.Helper()
	path, err := scaffold.Build(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if want := filepath.Join(dir, name+".wasm"); path != want {
		t.Errorf("the module is %s, want %s", path, want)
	}
	wasm, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	m, err := module.Read(wasm, module.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	raw, ok := m.Custom(abi.ManifestSection)
	if !ok {
		t.Fatal("the module has no manifest")
	}
	declared, err := manifest.Parse(raw, manifest.Known{})
	if err != nil {
		t.Fatal(err)
	}
	return wasm, declared
}

// answers is a host that answers operations by their name.
type answers map[abi.Op]func(request []byte) ([]byte, *sandbox.Refusal)

func (a answers) Do(_ context.Context, op abi.Op, request []byte) ([]byte, *sandbox.Refusal) {
	if do, ok := a[op]; ok {
		return do(request)
	}
	return nil, &sandbox.Refusal{Errno: abi.ENOSYS, Code: "bad_request", Message: "no such operation", Remedy: "ask first"}
}

func (a answers) Knows(feature string) bool { return a[abi.Op(feature)] != nil }

func answer(text string) func([]byte) ([]byte, *sandbox.Refusal) {
	return func([]byte) ([]byte, *sandbox.Refusal) { return []byte(text), nil }
}

// guest admits a module and opens it.
func guest(t *testing.T, wasm []byte, m abi.Manifest) func(export, input string, h sandbox.Host) (string, sandbox.Result, error) {
	t.Helper()
	s, err := sandbox.New(t.Context(), sandbox.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closing(t, s.Close) })
	report, err := s.Admit(t.Context(), sandbox.Candidate{Module: wasm})
	if err != nil {
		t.Fatalf("%v\n%v", err, report.Log)
	}
	for _, service := range m.Services {
		for _, method := range service.Methods {
			if method.Export != "" && !report.Has(method.Export) {
				t.Errorf("the module has no export %q", method.Export)
			}
		}
	}
	p, err := s.Open(t.Context(), wasm, sandbox.Setup{})
	if err != nil {
		t.Fatal(err)
	}
	return func(export, input string, h sandbox.Host) (string, sandbox.Result, error) {
		r, err := p.Call(t.Context(), sandbox.Call{Export: export, Input: []byte(input), Host: h})
		return string(r.Output), r, err
	}
}

func closing(t *testing.T, f func() error) {
	t.Helper()
	if err := f(); err != nil {
		t.Error(err)
	}
}

func TestBuildOfANewPrompt(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "[new] *")
	if err := scaffold.New(dir, "my-plugin", scaffold.Prompt); err != nil {
		t.Fatal(err)
	}
	_, m := built(t, dir, "my-plugin")
	if len(m.Services) != 1 || m.Services[0].Name != "com.example.MyPlugin" || m.Services[0].SystemMessage != "You are a nice assistant." {
		t.Errorf("got %+v", m)
	}
}

func TestBuildOfAYAMLPrompt(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{
		"README.md": "# No front matter\n",
		"hello.yml": "services: [{name: com.example.Hello, systemMessage: Be nice.}]\n",
	})
	if _, m := built(t, dir, "hello"); m.Services[0].SystemMessage != "Be nice." {
		t.Errorf("got %+v", m)
	}
}

func TestBuildRefusesWhatIsNoProject(t *testing.T) {
	const prompt = "---\nservices: [{name: com.example.Hello}]\n---\nBe nice.\n"
	for name, tc := range map[string]struct {
		files map[string]string
		code  abi.Code
		want  string
	}{
		"an empty folder":                   {nil, abi.BadRequest, "is no plugin's project"},
		"a README alone":                    {map[string]string{"README.md": "# Hello\n"}, abi.BadRequest, "is no plugin's project"},
		"two prompts":                       {map[string]string{"a.md": prompt, "b.md": prompt}, abi.BadRequest, "a.md"},
		"a prompt with a fault":             {map[string]string{"a.md": "---\nservice: []\n---\n"}, abi.InvalidManifest, "did you mean `services`"},
		"a prompt whose ids leak":           {map[string]string{"a.md": "---\nservices: [{name: S, scope: application}]\n---\n"}, abi.DefaultIDLeak, "a.md"},
		"C without a manifest":              {map[string]string{"a.c": "int x;"}, abi.BadRequest, "no manifest.json"},
		"C with a manifest that is no JSON": {map[string]string{"a.c": "int x;", "manifest.json": "{"}, abi.InvalidManifest, "manifest.json"},
		"C with a name that is a path": {map[string]string{"a.c": "int x;",
			"manifest.json": `{"abi":"carrel/v1","name":"../up","version":"1"}`}, abi.InvalidManifest, "plugin's name"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, tc.files)
			path, err := scaffold.Build(t.Context(), dir)
			if carrel.CodeOf(err) != tc.code || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %q, %v", path, err)
			}
			if got := files(t, dir); len(got) != len(tc.files) {
				t.Errorf("it left %v", got)
			}
		})
	}
	if _, err := scaffold.Build(t.Context(), filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a folder that is not there was built")
	}
}

func TestBuildSaysWhichToolIsMissing(t *testing.T) {
	for name, tc := range map[string]struct {
		lang scaffold.Language
		want scaffold.MissingTool
	}{
		"Go":    {scaffold.Go, scaffold.MissingTool{Tool: "go", Remedy: "https://go.dev/dl/"}},
		"clang": {scaffold.C, scaffold.MissingTool{Tool: "clang", Remedy: "apt-get install clang lld"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "new")
			if err := scaffold.New(dir, "hello", tc.lang); err != nil {
				t.Fatal(err)
			}
			t.Setenv("PATH", t.TempDir())
			_, err := scaffold.Build(t.Context(), dir)
			missing, ok := errors.AsType[*scaffold.MissingTool](err)
			if !ok || missing.Tool != tc.want.Tool || !strings.Contains(err.Error(), tc.want.Remedy) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestFaultsOfAManifestFileHaveItsNameAndLines(t *testing.T) {
	for name, tc := range map[string]struct {
		manifest string
		says     string
		fault    string // the message of the only one ends so
	}{
		"what is no JSON":    {"{\n  \"abi\": \"carrel/v1\",\n  \"name\" \"hello\"\n}", "manifest.json: the manifest is not acceptable as JSON: ", "(line 3)"},
		"what ends too soon": {"{\n  \"abi\": \"carrel/v1\",\n", "manifest.json: the manifest is not acceptable as JSON: ", "(line 3)"},
		"a member twice":     {"{\n  \"abi\": 1,\n\n  \"abi\": 2}", "manifest.json: the manifest is not acceptable as JSON: ", "(line 4)"},
		"a wrong value": {"{\n  \"abi\": \"carrel/v1\", \"version\": \"1\",\n  \"name\":\n \"Hello\"}",
			"manifest.json: the manifest has a fault at /name: ", "(line 3)"},
		"a member of a service": {"{\n  \"abi\": \"carrel/v1\", \"version\": \"1\", \"name\": \"hello\",\n  \"services\": [{\"name\": \"S\"},\n {}]}",
			"manifest.json: the manifest has a fault at /services/1/name: ", "(line 4)"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, map[string]string{"a.c": "int x;", "manifest.json": tc.manifest})
			_, err := scaffold.Build(t.Context(), dir)
			e, ok := errors.AsType[*carrel.Error](err)
			if !ok || !strings.HasPrefix(e.Msg, tc.says) || !strings.HasSuffix(e.Msg, tc.fault) ||
				len(e.Faults) != 1 || !strings.HasSuffix(e.Faults[0].Message, tc.fault) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// object decodes JSON for comparisons of single members.
func object(t *testing.T, text string) map[string]any {
	t.Helper()
	var out map[string]any
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatalf("%v in %q", err, text)
	}
	return out
}
