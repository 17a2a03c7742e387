package arch_test

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/carrelhost/carrel"

// floor ranks every package; imports may only go down.
var floor = map[string]int{
	"abi":               0,
	"internal/spelling": 0,
	"internal/testproc": 0,

	"":         1,
	"examples": 1,
	"sdk":      1,
	"sdk/go":   1,

	"client":                2,
	"host/memory":           2,
	"host/model":            2,
	"host/lifetime":         2,
	"host/prompt":           2,
	"host/sandbox/cache":    2,
	"host/sandbox/image":    2,
	"host/sandbox/marker":   2,
	"host/sandbox/module":   2,
	"host/sandbox/slots":    2,
	"host/sandbox/snapshot": 2,
	"host/sandbox/wasmtest": 2,
	"host/strictjson":       2,
	"internal/seccomp":      2,
	"store":                 2,
	"sdk/go/carreltest":     2,
	"store/datadir":         2,

	"host/idempotency":     3,
	"host/model/modeltest": 3,
	"host/model/offline":   3,
	"host/model/openai":    3,
	"host/quarantine":      3,
	"host/schema":          3,
	"host/sandbox":         3,
	"host/sandbox/hostile": 3,
	"host/scope":           3,
	"host/tenant":          3,
	"store/memstore":       3,
	"store/sqlite":         3,
	"store/storetest":      3,

	"host/imports":     4,
	"plugins/manifest": 4,

	"plugins":      5,
	"plugins/pack": 5,

	"host/invoke": 6,

	"host/httpapi": 7,

	"host":              8,
	"internal/scaffold": 8,

	"cmd/host": 9,

	"examples/counter":                 9,
	"examples/scopes":                  9,
	"examples/team/lead":               9,
	"examples/warmup":                  9,
	"examples/websocket-chat/page":     9,
	"examples/websocket-chat/terminal": 9,

	"bench/memory": 9,

	"internal/arch":    9,
	"internal/testenv": 9,
}

// only says who may import a module from outside; parents of these count as
// well.
var only = map[string][]string{
	"github.com/labstack/echo":          {"host/httpapi"},
	"github.com/coder/websocket":        {"client", "host/httpapi"},
	"github.com/tetratelabs/wazero":     {"host/sandbox"},
	"golang.org/x/sys":                  {"host/sandbox/image", "host/sandbox/marker", "internal/seccomp"},
	"modernc.org/sqlite":                {"store/sqlite", "bench/memory"}, // the benchmark's peers
	"github.com/pressly/goose":          {"store/sqlite"},
	"database/sql":                      {"store/sqlite", "bench/memory"},
	"github.com/sashabaranov/go-openai": {"host/model/openai"},
	"github.com/spf13/cobra":            {"cmd/host"},
	"testing":                           {"internal/testenv", "internal/testproc", "host/model/modeltest", "store/storetest"},
}

// standardOnly are the packages that guests build too: nothing from outside.
var standardOnly = []string{"abi", "", "sdk/go"}

type pkg struct {
	ImportPath string
	GoFiles    []string
	Imports    []string
}

// list returns every package of the module as the go command sees it. Folders
// of tests alone, such as an example's, are none: nobody can import them.
func list(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,GoFiles,Imports", "./...")
	cmd.Dir = filepath.Join("..", "..")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []pkg
	dec := json.NewDecoder(strings.NewReader(string(out)))
	for {
		var p pkg
		err := dec.Decode(&p)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("go list: %v", err)
		}
		if len(p.GoFiles) > 0 {
			all = append(all, p)
		}
	}
}

// inside returns a package's path inside the module.
func inside(path string) (string, bool) {
	if path == module {
		return "", true
	}
	return strings.CutPrefix(path, module+"/")
}

func TestImportsOnlyGoDown(t *testing.T) {
	for _, p := range list(t) {
		name, _ := inside(p.ImportPath)
		from, ok := floor[name]
		if !ok {
			t.Errorf("%q has no floor: give it one here and in ARCHITECTURE.md", name)
			continue
		}
		for _, imp := range p.Imports {
			if to, ours := inside(imp); ours && floor[to] >= from {
				t.Errorf("%q (floor %d) imports %q (floor %d)", name, from, to, floor[to])
			}
		}
	}
}

func TestOnlyTheirOwnersImportThem(t *testing.T) {
	for _, p := range list(t) {
		name, _ := inside(p.ImportPath)
		for _, imp := range p.Imports {
			for outside, owners := range only {
				if (imp == outside || strings.HasPrefix(imp, outside+"/")) && !slices.Contains(owners, name) {
					t.Errorf("%q imports %s, which only %v may", name, imp, owners)
				}
			}
		}
	}
}

func TestWhatGuestsBuildNeedsOnlyTheStandardLibrary(t *testing.T) {
	for _, p := range list(t) {
		name, _ := inside(p.ImportPath)
		if !slices.Contains(standardOnly, name) {
			continue
		}
		for _, imp := range p.Imports {
			if _, ours := inside(imp); !ours && strings.Contains(imp, ".") {
				t.Errorf("%q imports %s", name, imp)
			}
		}
	}
}

func TestArchitectureShowsTheSameFloors(t *testing.T) {
	doc, err := os.ReadFile(filepath.Join("..", "..", "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	// | 3 | `host/scope` `store/sqlite` |
	row := regexp.MustCompile(`(?m)^\| (\d) \| (.*) \|`)
	shown := map[string]string{}
	for _, m := range row.FindAllStringSubmatch(string(doc), -1) {
		for _, name := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(m[2], -1) {
			shown[strings.TrimPrefix(strings.TrimPrefix(name[1], "."), "/")] = m[1]
		}
	}
	for name, n := range floor {
		if got := shown[name]; got != string(rune('0'+n)) {
			t.Errorf("%q is on floor %d; ARCHITECTURE.md shows %q", name, n, got)
		}
	}
}

func TestNoPackageNamesExplainNothing(t *testing.T) {
	bad := []string{"util", "utils", "common", "types", "helpers", "core", "misc"}
	for _, p := range list(t) {
		if base := filepath.Base(p.ImportPath); slices.Contains(bad, base) {
			t.Errorf("%s: a name that says nothing", p.ImportPath)
		}
	}
}
