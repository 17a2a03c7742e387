package sandbox_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/carrelhost/carrel/host/sandbox"
	"github.com/carrelhost/carrel/host/sandbox/module"
)

// bounds says of each number that bounds something which guard holds it. Where
// it bounds no guest, it says so behind "no guest: ". A test in the place of a
// guard holds what no case of the corpus shows in a moment: what compiles.
func bounds() map[string]string {
	return map[string]string{
		"Config.Module":         "module reader.vector: l.name != \"\" && int64(n) > int64(l.most)",
		"Config.CompileCommand": "no guest: a command",
		"Config.CompileMemory":  "TestWhatExceedsTheLimitsOfAChildIsRefused",
		"Config.CompileCPU":     "TestWhatExceedsTheLimitsOfAChildIsRefused",
		"Config.CompileWall":    "TestWhatExceedsTheLimitsOfAChildIsRefused",
		"Config.CacheDir":       "no guest: a directory",
		"Config.CacheBytes":     "TestTheCacheKeepsWhatWasUsedLast",
		"Config.SnapshotDir":    "no guest: a directory",
		"Config.SnapshotBytes":  "TestTheSnapshotsThatWereUsedLastAreKept",
		"Config.Log":            "no guest: the operator's",
		"Config.Marks":          "no guest: a file",
		"Config.Slots":          "slots are few",
		"Config.AdmitTimeout":   "what runs has a deadline",
		"Config.CloseTimeout":   "TestCloseLeavesACompilationThatRuns",
		"Config.Fuel":           "sandbox run.refuel: r.fuel >= r.cfg.Fuel",
		"Config.Idle":           "TestInstancesWaitForAWhile",
		"Config.IdleBytes":      "TestInstancesOfAllPluginsShareOneBound",
		"Config.OutputBytes":    "sandbox outputWrite: len(src) > r.outputBytes-len(r.output)",
		"Config.LogBytes":       "sandbox logbook.add: l.left < lineBytes",
		"Config.HostCalls":      "sandbox call: r.hostCalls >= r.cfg.HostCalls",
		"Config.ResultBytes":    "sandbox call: len(result) > r.results.left",
		"Config.Now":            "no guest: a clock",
		"Config.Random":         "sandbox random: err != nil",

		"Options.StackBytes": "the depth of calls is counted",
		"Options.TableMax":   "tables have a maximum",
		"Options.MaxPages":   "memories have a maximum",
		"Options.GrowthMax":  "module rewriter.checkSize: n > w.bytesMost",
		"Options.NameBytes":  "names are few",

		"freeBytes":         "only small bulk operations are free",
		"chunkBytes":        "bulk operations are done in chunks",
		"pageUnits":         "memory.grow is charged",
		"runUnits":          "fuel in straight lines",
		"closeChecks":       "no guest: how many checks are close",
		"farUnits":          "fuel in straight lines",
		"farPrepaid":        "no guest: it keeps what is charged low",
		"prepaidUnits":      "no guest: it keeps what is charged low",
		"unwoundBytes":      "a frame counts what it does when it returns",
		"memoryUnits":       "memory has its price",
		"shallow":           "a frame counts its values",
		"leafUnits":         "only small leaves are free",
		"callUnits":         "no guest: it is the price of a leaf",
		"leafFrameBytes":    "no guest: one such frame is less than a hundredth of the stack",
		"localsChecks":      "module planner.plan: n > localsChecks",
		"inlineBulk":        "few bulk operations have a branch of their own",
		"frameBytes":        "the depth of calls is counted",
		"registers":         "a frame counts its values",
		"mostStack":         "no guest: the host's options",
		"mostNameBytes":     "names are cut",
		"DefaultGrowth":     "module rewriter.checkSize: n > w.bytesMost",
		"DefaultNameBytes":  "names are few",
		"ownImports":        "no guest: a number of functions",
		"mostPages":         "no guest: the specification's",
		"slice":             "fuel comes in slices",
		"turn":              "a slot is passed on",
		"deepBytes":         "TestDeepStacksAreNotKept",
		"functionBytes":     "no guest: a size that is counted",
		"lineBytes":         "an empty line is not free",
		"stackBytes":        "a stack is cut",
		"longestLine":       "TestALineIsCutWhateverTheRoom",
		"errorValues":       "TestAnErrorOfManyValuesIsNotTakenApart",
		"importUnits":       "what the host does is charged",
		"vectorUnits":       "what the host does is charged",
		"subscriptionUnits": "what the host does is charged",
		"lineUnits":         "what the host does is charged",
		"copyShift":         "what the host does is charged",
		"randomUnits":       "what the host does is charged",
		"textUnits":         "what the host does is charged",
		"jsonUnits":         "what the host does is charged",
		"copyPiece":         "TestTheHostLooksAtTheTimeWhileItWorks",
		"randomPiece":       "TestTheHostLooksAtTheTimeWhileItWorks",
		"writePiece":        "TestTheHostLooksAtTheTimeWhileItWorks",
		"mostWritten":       "TestAWriteTakesAMebibyteAtOnce",
		"mostSubscriptions": "sandbox wasiPoll: n == 0 || n > mostSubscriptions",
		"subscriptionBytes": "no guest: a layout",
		"eventBytes":        "no guest: a layout",
		"eventClock":        "no guest: a kind",
		"eventRead":         "no guest: a kind",
		"eventWrite":        "no guest: a kind",
		"clockAbsolute":     "no guest: a flag",
		"mostVectors":       "sandbox wasiFdWrite: n > mostVectors",
		"wasiRandomBytes":   "sandbox wasiRandom: len(dst) > wasiRandomBytes",
		"wasiOK":            "no guest: an errno",
		"wasiBadF":          "no guest: an errno",
		"wasiFault":         "no guest: an errno",
		"wasiInval":         "no guest: an errno",
		"wasiIO":            "no guest: an errno",
		"wasiSPipe":         "no guest: an errno",
		"guestStackBytes":   "the depth of calls is counted",
		"tableElements":     "tables have a maximum",
		"maxPages":          "memories have a maximum",
	}
}

// boundFiles are where the bounds are that are constants.
var boundFiles = []string{
	"module/bulk.go", "module/plan.go", "module/frame.go", "module/instrument.go", "module/names.go", "module/rewrite.go", "module/survey.go",
	"code.go", "fuel.go", "hostcall.go", "io.go", "logbook.go", "poll.go", "run.go", "slots/slots.go", "stacks.go", "trap.go", "wasi.go", "work.go",
}

// TestEveryBoundHasAGuard fails for a field or a constant of which nobody says
// what it holds.
func TestEveryBoundHasAGuard(t *testing.T) {
	rows := map[string]bool{}
	for _, list := range [][]row{moduleRows(), ruleRows(), runRows()} {
		for _, r := range list {
			rows[r.guard] = true
		}
	}
	for _, name := range testNames(t) {
		rows[name] = true
	}
	left := bounds()
	for _, name := range boundNames(t) {
		guard, ok := left[name]
		switch {
		case !ok:
			t.Errorf("nobody says which guard %s is of", name)
		case !rows[guard] && !strings.HasPrefix(guard, "no guest: "):
			t.Errorf("%s: there is no row for %q", name, guard)
		}
		delete(left, name)
	}
	for name := range left {
		t.Errorf("there is no %s", name)
	}
}

func boundNames(t *testing.T) []string {
	var names []string
	for f := range reflect.TypeFor[sandbox.Config]().Fields() {
		names = append(names, "Config."+f.Name)
	}
	for f := range reflect.TypeFor[module.Options]().Fields() {
		names = append(names, "Options."+f.Name)
	}
	for _, path := range boundFiles {
		for _, d := range parsed(t, path).Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.CONST {
				continue
			}
			for _, s := range g.Specs {
				spec := s.(*ast.ValueSpec)
				for i, name := range spec.Names {
					if i < len(spec.Values) && numeric(spec.Values[i]) {
						names = append(names, name.Name)
					}
				}
			}
		}
	}
	return names
}

// numeric reports whether a value is made of decimal numbers.
func numeric(value ast.Expr) (yes bool) {
	ast.Inspect(value, func(n ast.Node) bool {
		lit, ok := n.(*ast.BasicLit)
		yes = yes || ok && lit.Kind == token.INT && !strings.HasPrefix(lit.Value, "0x")
		return true
	})
	return yes
}

// testNames are those of this package's tests.
func testNames(t *testing.T) []string {
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, path := range files {
		for _, d := range parsed(t, path).Decls {
			if f, ok := d.(*ast.FuncDecl); ok && strings.HasPrefix(f.Name.Name, "Test") {
				names = append(names, f.Name.Name)
			}
		}
	}
	return names
}

func parsed(t *testing.T, path string) *ast.File {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	return f
}
