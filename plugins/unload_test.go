package plugins_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox"
	"github.com/carrelhost/carrel/host/sandbox/module"
	"github.com/carrelhost/carrel/host/sandbox/wasmtest"
	"github.com/carrelhost/carrel/plugins"
	"github.com/carrelhost/carrel/store"
)

// ownCode is a plugin like codeModule, whose code no other one has.
func ownCode(n int) (name carrel.PluginName, wasm []byte) {
	name = carrel.PluginName(fmt.Sprintf("own%d", n))
	m := wasmtest.New()
	write := m.Carrel("output_write")
	m.Memory(1)
	m.Data(0, []byte(name))
	m.Method("say").Const(int32(n)).Drop().Const(0).Const(int32(len(name))).Call(write)
	return name, module.AppendCustom(m.Bytes(), abi.ManifestSection, []byte(fmt.Sprintf(
		`{"abi":"carrel/v1","name":%q,"version":"1","services":[{"name":"S","methods":[{"name":"say","kind":"handler","export":"say"}]}]}`, name)))
}

// full is a catalog of plugins, each of which has code of its own.
type full struct {
	*library
	*shelf
	box   *sandbox.Sandbox
	names []carrel.PluginName
}

func newFull(t *testing.T, n int, change func(*plugins.Config)) *full {
	t.Helper()
	f := &full{}
	f.library, f.shelf = newCodeLibrary(t, func(c *plugins.Config) {
		f.box = c.Sandbox
		c.Limits.Plugins = n + 1
		change(c)
	})
	for i := range n {
		name, wasm := ownCode(i)
		if _, err := f.Upload(t.Context(), plugins.Upload{Tenant: acme, Module: wasm, Activate: true}); err != nil {
			t.Fatal(err)
		}
		f.names = append(f.names, name)
	}
	return f
}

// call calls a plugin, and says whether it had to be opened for that.
func (f *full) call(name carrel.PluginName) (opened bool) {
	f.t.Helper()
	before := f.opened.Load()
	r := f.running(name, active)
	defer r.Release()
	if got, err := says(f.t, r); err != nil || got != string(name) {
		f.t.Errorf("%s says %q, %v", name, got, err)
	}
	return f.opened.Load() > before
}

func TestWhatIsLoadedIsBoundedInBytes(t *testing.T) {
	// What was admitted last is there before anybody calls it.
	unit := newFull(t, 1, func(*plugins.Config) {}).box.LoadedBytes()
	const n, room = 12, 5
	f := newFull(t, n, func(c *plugins.Config) { c.LoadedBytes = room * unit })
	running := f.running(f.names[0], active)
	for round := range 3 {
		for _, name := range f.names[1:] {
			if opened := f.call(name); !opened {
				t.Errorf("%s was kept in round %d, others have no room then", name, round)
			}
			if got := f.box.LoadedBytes(); got > room*unit {
				t.Errorf("%d bytes are loaded, at most %d are allowed", got, room*unit)
			}
		}
	}
	if f.call(f.names[0]) || f.call(f.names[n-1]) {
		t.Error("what is in use, or was used last, was unloaded")
	}
	if got, err := says(t, running); err != nil || got != string(f.names[0]) {
		t.Errorf("the one that was in use all the time says %q, %v", got, err)
	}
	running.Release()
}

// Versions of the same code need room for it once.
func TestSharedCodeIsCountedOnce(t *testing.T) {
	f := newFull(t, 1, func(c *plugins.Config) { c.Limits.Plugins = 100 })
	f.call(f.names[0])
	bound := 6 * f.box.LoadedBytes()
	f = newFull(t, 0, func(c *plugins.Config) { c.Limits.Plugins, c.LoadedBytes = 100, bound })
	const n = 30
	for range 2 {
		for i := range n {
			f.uploadCode(fmt.Sprintf("same%d", i), "one")
			f.running(carrel.PluginName(fmt.Sprintf("same%d", i)), active).Release()
		}
	}
	if got := f.opened.Load(); got != n {
		t.Errorf("%d plugins of the same code were opened %d times", n, got)
	}
}

func TestAVersionThatIsLargerThanTheBoundIsCalled(t *testing.T) {
	f := newFull(t, 2, func(c *plugins.Config) { c.LoadedBytes = 1 })
	if !f.call(f.names[0]) || f.call(f.names[0]) {
		t.Error("alone it is not opened once")
	}
	if !f.call(f.names[1]) || !f.call(f.names[0]) {
		t.Error("two have room")
	}
}

func TestWhatNobodyUsesIsUnloaded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFull(t, 3, func(c *plugins.Config) { c.LoadedIdle = 10 * time.Minute })
		empty := f.box.LoadedBytes() // of the latest admission
		running := f.running(f.names[0], active)
		f.call(f.names[1])
		for range 4 {
			f.call(f.names[2])
			time.Sleep(9 * time.Minute)
		}
		if f.call(f.names[2]) {
			t.Error("one that is called every 9 minutes was unloaded")
		}
		if f.call(f.names[0]) {
			t.Error("one that is in use was unloaded")
		}
		if !f.call(f.names[1]) {
			t.Error("one that nobody called for half an hour was kept")
		}
		running.Release()
		time.Sleep(13 * time.Minute)
		if got := f.box.LoadedBytes(); got != empty {
			t.Errorf("%d bytes are loaded when nobody called for 13 minutes, not %d", got, empty)
		}
		for _, name := range f.names {
			if !f.call(name) {
				t.Errorf("%s was kept", name)
			}
		}
	})
}

// countEnv makes the test binary a process that counts one catalog's memory.
const countEnv = "PLUGINS_TEST_COUNT"

// alone runs the test at hand once more, in a process that runs nothing else:
// what earlier tests left and others take would be counted, too. It reports
// whether this is that process.
func alone(t *testing.T) bool {
	t.Helper()
	if os.Getenv(countEnv) != "" {
		return true
	}
	var path []string
	for part := range strings.SplitSeq(t.Name(), "/") {
		path = append(path, "^"+regexp.QuoteMeta(part)+"$")
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.v", "-test.run="+strings.Join(path, "/"))
	cmd.Env = append(os.Environ(), countEnv+"=1")
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil || !bytes.Contains(out, []byte("--- PASS: "+t.Name())) {
		t.Errorf("alone it ended with %v", err)
	}
	return false
}

// TestPromptPluginsAreCountedAsTheProcessHasThem holds what is counted of
// prompt plugins against what a process uses.
func TestPromptPluginsAreCountedAsTheProcessHasThem(t *testing.T) {
	const n = 200
	for name, text := range map[string]string{"a short one": "{{msg}}", "16 KiB of text": strings.Repeat("words of {{msg}} ", 1000)} {
		t.Run(name, func(t *testing.T) {
			if !alone(t) {
				return
			}
			l := newLibrary(t, func(c *plugins.Config) { c.Limits = store.PluginLimits{Plugins: n, Versions: 1} })
			for i := range n {
				_, err := l.Upload(t.Context(), plugins.Upload{Tenant: acme, Module: template(i, text), Activate: true})
				if err != nil {
					t.Fatal(err)
				}
			}
			before, said := heap(), int64(0)
			for i := range n {
				r := l.running(carrel.PluginName(fmt.Sprintf("p%d", i)), active)
				said += plugins.TextBytes(r.Loaded)
				r.Release()
			}
			is := heap() - before
			t.Logf("each is said to take %d bytes, the process has %d more", said/n, is/n)
			if said < is/2 || said > 2*is {
				t.Errorf("%d are said to take %d bytes, the process has %d more", n, said, is)
			}
			runtime.KeepAlive(l)
		})
	}
}

// template is a prompt plugin with this user message.
func template(n int, text string) []byte {
	return module.Prompt(fmt.Appendf(nil,
		`{"abi":"carrel/v1","name":"p%d","version":"1","services":[{"name":"S","methods":[{"name":"chat","kind":"chat"%s,"userMessage":%q}]}]}`,
		n, msgParams, text))
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
