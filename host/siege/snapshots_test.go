package siege_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/carrelhost/carrel/host/model/modeltest"
	"github.com/carrelhost/carrel/internal/testenv"
)

// TestARestartedHostRunsNoWarmupAgain uploads a plugin with a warm-up to the
// real program, and restarts that with all of its cache, with the cache of an
// older version, and with parts of it lost. Callers never see a difference.
func TestARestartedHostRunsNoWarmupAgain(t *testing.T) {
	data, m := t.TempDir(), modeltest.NewServer(t)
	warmup := testenv.Project{Dir: filepath.Join("..", "..", "examples", "warmup")}
	wasm := warmup.Module(t)
	dir := filepath.Join(data, "cache", "snapshots")
	// sorts calls the plugin, which tells whether it begins warm.
	sorts := func(a *testenv.Actor) {
		t.Helper()
		got, _ := a.Chat("warmup/com.acme.Triage.sort", "text", "Where is my parcel?").Output.(map[string]any)
		if got["desk"] != "shipping" || got["compiled"] != 1.0 {
			t.Errorf("got %v", got)
		}
	}
	run := func(what string, anew bool, more func(a *testenv.Actor)) {
		t.Helper()
		p := program.Serve(t, data, m)
		a := p.Owner(t, data, m)
		if more != nil {
			more(a)
		}
		sorts(a)
		if code := p.End(t, syscall.SIGTERM); code != 0 {
			t.Fatalf("exit code %d", code)
		}
		if said := strings.Contains(p.Stderr.String(), "is made anew"); said != anew {
			t.Errorf("%s: the log says %s", what, p.Stderr.String())
		}
		if found, err := os.ReadDir(dir); err != nil || len(found) != 1 {
			t.Errorf("%s: the cache holds %v, %v", what, found, err)
		}
	}
	run("an upload", false, func(a *testenv.Actor) { a.Upload(wasm) })
	run("all of the cache", false, nil)
	run("all of the cache, again", false, nil)
	for name, damage := range map[string]func() error{
		"an older version's cache, which has code only": func() error { return os.RemoveAll(dir) },
		"no cache": func() error { return os.RemoveAll(filepath.Join(data, "cache")) },
		"a snapshot that is cut off": func() error {
			found, err := filepath.Glob(filepath.Join(dir, "*", "snapshot"))
			if err != nil || len(found) != 1 {
				return errors.Join(err, errors.New(strings.Join(found, " ")))
			}
			return os.Truncate(found[0], 100)
		},
	} {
		if err := damage(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		run(name, true, nil)
		run("after "+name, false, nil)
	}
}
