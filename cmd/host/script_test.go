package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestMain lets scripts, and whatever looks in PATH, run this program as
// carrel, inspect modules within other limits than its own, and crash.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"carrel": main, boundedName: inspectWithin, crasherName: crasher})
}

// raceOptions keeps each command from pausing for a second at its end when the
// tests run with the race detector.
const raceOptions = "atexit_sleep_ms=0"

// TestScripts runs testdata/script. Each script is a story with processes of
// its own: nothing listens at a fixed port, and every data directory is new.
//
// Besides testscript's commands there are:
//
//	start NAME PATTERN CMD ARGS…  run CMD in the background, and go on when a line of its output matches
//	end NAME SIGNAL CODE          send it INT or TERM and wait; it must exit with CODE; stdout and stderr are all its output
//	said NAME                     stdout and stderr are its output so far
//	exits CODE CMD ARGS…          run CMD, which must exit with CODE
//	json [POINTER VALUE]          stdout must be JSON, and have VALUE at POINTER
//	let NAME POINTER              set the variable NAME to what is at POINTER in stdout's JSON
//	guest PATH FILE [calls|tools|warmup|large|traps]
//	                              write a module of that name and path, that may call its host, or other plugins, is warmed up, takes long to compile, or traps
//	compiler NAME hold [N]        stop the next compiler that the host NAME starts, on Linux, until NAME was asked N times how far it is
//	compiler NAME go              let it go on
//	model                         start a model server and set MODEL_URL
//	model hold|fail               let the next call wait for ever, or fail
//	model arrived|gone N          wait until call N is there, or its client went away
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "script"),
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			s := &stage{processes: map[string]*process{}, held: map[string]*held{}}
			env.Values[stageKey{}] = s
			env.Defer(s.close)
			env.Setenv("CARREL_DATA", filepath.Join(env.WorkDir, "data"))
			env.Setenv("CARREL_LISTEN", "127.0.0.1:0")
			env.Setenv("GORACE", raceOptions)
			examples, err := filepath.Abs(filepath.Join("..", "..", "examples"))
			env.Setenv("EXAMPLES", examples)
			return err
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"start": cmdStart, "end": cmdEnd, "said": cmdSaid, "exits": cmdExits,
			"json": cmdJSON, "let": cmdLet, "model": cmdModel, "compiler": cmdCompiler, "guest": cmdGuest,
		},
	})
}

func TestEveryScriptBeginsWithASentence(t *testing.T) {
	scripts, err := filepath.Glob(filepath.Join("testdata", "script", "*.txtar"))
	if err != nil || len(scripts) == 0 {
		t.Fatalf("found %d scripts, %v", len(scripts), err)
	}
	for _, script := range scripts {
		b, err := os.ReadFile(script)
		if err != nil {
			t.Fatal(err)
		}
		first, _, _ := strings.Cut(string(b), "\n")
		if !strings.HasPrefix(first, "# ") || !strings.HasSuffix(first, ".") {
			t.Errorf("%s begins with %q, not with a comment that is a sentence", script, first)
		}
	}
}
