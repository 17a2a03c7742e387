package sandbox_test

import (
	"bytes"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/carrelhost/carrel/host/sandbox"
	"github.com/carrelhost/carrel/host/sandbox/cache"
	"github.com/carrelhost/carrel/host/sandbox/wasmtest"
)

// names lists a directory of a cache: what is in place, and what is not.
func names(t *testing.T, dir string) (whole, rest []string) {
	t.Helper()
	found, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	for _, f := range found {
		if strings.HasPrefix(f.Name(), "tmp-") {
			rest = append(rest, f.Name())
		} else {
			whole = append(whole, f.Name())
		}
	}
	return whole, rest
}

func entries(t *testing.T, dir string) []string {
	t.Helper()
	whole, _ := names(t, dir)
	return whole
}

func leftovers(t *testing.T, dir string) []string {
	t.Helper()
	_, rest := names(t, dir)
	return rest
}

// logged is a cache without children, and its log.
func logged(t *testing.T) (sandbox.Config, *bytes.Buffer) {
	t.Helper()
	var log bytes.Buffer
	return sandbox.Config{
		CacheDir: filepath.Join(t.TempDir(), "a", "code"),
		Log:      slog.New(slog.NewTextHandler(&log, nil)),
	}, &log
}

// use runs a module once in a sandbox of its own.
func use(t *testing.T, cfg sandbox.Config, wasm ...[]byte) {
	t.Helper()
	s, err := sandbox.New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range wasm {
		p, err := s.Open(t.Context(), w, sandbox.Setup{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Call(t.Context(), sandbox.Call{Export: "run"}); err != nil {
			t.Error(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// machineCode returns the file of the only entry.
func machineCode(t *testing.T, dir string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "*", "wazero-*", "*"))
	if err != nil || len(found) != 1 {
		t.Fatalf("found %q, %v", found, err)
	}
	return found[0]
}

// reopened is the cache in a directory, for whoever looks at it.
func reopened(t *testing.T, dir string) *cache.Cache {
	t.Helper()
	c, err := cache.Open(cache.Config{Dir: dir, What: "the test", Most: 1 << 40, Now: time.Now, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestCodeIsForItsOwnerAlone(t *testing.T) {
	cfg, _ := logged(t)
	use(t, cfg, counter().Bytes())
	err := filepath.WalkDir(filepath.Dir(cfg.CacheDir), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestCodeIsNotCompiledTwice(t *testing.T) {
	cfg, log := logged(t)
	use(t, cfg, counter().Bytes())
	file := machineCode(t, cfg.CacheDir)
	before, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	use(t, cfg, counter().Bytes())
	after, err := os.Stat(machineCode(t, cfg.CacheDir))
	if err != nil || !os.SameFile(before, after) || !before.ModTime().Equal(after.ModTime()) {
		t.Errorf("it was compiled again: %v, %v", after, err)
	}
	if log.Len() > 0 {
		t.Errorf("the log says %s", log)
	}
}

func TestWhatIsWrongInTheCacheIsMadeAnew(t *testing.T) {
	flip := func(path string, at func(size int) int) error {
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		b[at(len(b))] ^= 1
		return os.WriteFile(path, b, 0o600)
	}
	for name, damage := range map[string]func(code string) error{
		"a bit of the machine code is flipped": func(code string) error { return flip(code, func(n int) int { return n / 2 }) },
		"its first bit is flipped":             func(code string) error { return flip(code, func(int) int { return 0 }) },
		"its last bit is flipped":              func(code string) error { return flip(code, func(n int) int { return n - 1 }) },
		"the machine code is cut off":          func(code string) error { return os.Truncate(code, 100) },
		"the machine code is empty":            func(code string) error { return os.Truncate(code, 0) },
		"the machine code is gone":             os.Remove,
		"others may write it":                  func(code string) error { return os.Chmod(code, 0o666) },
		"others may write its directory":       func(code string) error { return os.Chmod(filepath.Dir(code), 0o777) },
		"another file is beside it":            func(code string) error { return os.WriteFile(code+"x", []byte("x"), 0o600) },
		"it is a link": func(code string) error {
			return errors.Join(os.Rename(code, code+"x"), os.Symlink(code+"x", code))
		},
		"the sums are gone":    func(code string) error { return os.Remove(filepath.Join(code, "..", "..", "sums")) },
		"the sums are cut off": func(code string) error { return os.Truncate(filepath.Join(code, "..", "..", "sums"), 20) },
		"a sum is flipped": func(code string) error {
			return flip(filepath.Join(code, "..", "..", "sums"), func(int) int { return 5 })
		},
		"the entry is gone": func(code string) error { return os.RemoveAll(filepath.Dir(filepath.Dir(code))) },
		"the entry is a file": func(code string) error {
			e := filepath.Dir(filepath.Dir(code))
			return errors.Join(os.RemoveAll(e), os.WriteFile(e, nil, 0o600))
		},
		"the directory is gone": func(code string) error { return os.RemoveAll(filepath.Join(code, "..", "..", "..")) },
	} {
		for when, running := range map[string]bool{"while no host runs": false, "while a host runs": true} {
			t.Run(name+" "+when, func(t *testing.T) {
				cfg, _ := logged(t)
				use(t, cfg, counter().Bytes())
				wreck := func() {
					if err := damage(machineCode(t, cfg.CacheDir)); err != nil {
						t.Fatal(err)
					}
				}
				if running {
					s := newSandbox(t, cfg)
					wreck()
					if _, err := open(t, s, counter().Bytes()).Call(t.Context(), sandbox.Call{Export: "run"}); err != nil {
						t.Error(err)
					}
				} else {
					wreck()
					use(t, cfg, counter().Bytes())
				}
				if left := leftovers(t, cfg.CacheDir); len(left) > 0 {
					t.Errorf("left in the cache: %q", left)
				}
				folder := filepath.Dir(machineCode(t, cfg.CacheDir))
				if _, err := reopened(t, cfg.CacheDir).Take(filepath.Base(filepath.Dir(folder)), filepath.Base(folder)); err != nil {
					t.Errorf("the cache is not mended: %v", err)
				}
			})
		}
	}
}

func TestWhatAKilledProcessLeftIsRemoved(t *testing.T) {
	cfg, _ := logged(t)
	use(t, cfg, counter().Bytes())
	for _, name := range []string{"tmp-1/wazero/x", "0123/wazero/x", "file"} {
		path := filepath.Join(cfg.CacheDir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte("x"), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	newSandbox(t, cfg)
	if whole, rest := names(t, cfg.CacheDir); len(whole) != 1 || len(rest) > 0 {
		t.Errorf("the cache holds %q and %q", whole, rest)
	}
}

func TestACacheThatOthersCanWriteIsRefused(t *testing.T) {
	for _, mode := range []os.FileMode{0o777, 0o770, 0o702} {
		cfg, _ := logged(t)
		if err := errors.Join(os.MkdirAll(cfg.CacheDir, 0o700), os.Chmod(cfg.CacheDir, mode)); err != nil {
			t.Fatal(err)
		}
		_, err := sandbox.New(t.Context(), cfg)
		if err == nil || !strings.Contains(err.Error(), cfg.CacheDir) || !strings.Contains(err.Error(), "chmod go-w") {
			t.Errorf("with mode %v it says %v", mode, err)
		}
	}
}

// numbered are modules whose code differs.
func numbered(n int) []byte {
	m := wasmtest.New()
	m.Method("run").Const(int32(n)).Drop().Const(0)
	return m.Bytes()
}

func TestTheCacheKeepsWhatWasUsedLast(t *testing.T) {
	cfg, _ := logged(t)
	now := time.Now()
	cfg.Now = func() time.Time { now = now.Add(time.Minute); return now }
	use(t, cfg, numbered(0))
	info, err := os.Stat(machineCode(t, cfg.CacheDir))
	if err != nil {
		t.Fatal(err)
	}
	cfg.CacheBytes = 3*info.Size() + info.Size()/2
	use(t, cfg, numbered(1), numbered(2), numbered(0)) // 0 is used again, so 1 is the oldest
	first := entries(t, cfg.CacheDir)
	use(t, cfg, numbered(3))
	if got := entries(t, cfg.CacheDir); len(first) != 3 || len(got) != 3 {
		t.Fatalf("the cache held %d and holds %d entries", len(first), len(got))
	}
	kept := func(n int) bool {
		before := entries(t, cfg.CacheDir)
		use(t, cfg, numbered(n))
		return strings.Join(before, " ") == strings.Join(entries(t, cfg.CacheDir), " ")
	}
	for _, n := range []int{0, 2, 3} {
		if !kept(n) {
			t.Errorf("code %d was removed", n)
		}
	}
	if kept(1) {
		t.Error("the code that was not used for longest was kept")
	}
	cfg.CacheBytes = 1 // trimmed at the start, whatever is used then
	newSandbox(t, cfg)
	if got := entries(t, cfg.CacheDir); len(got) > 0 {
		t.Errorf("the cache holds %q", got)
	}
	use(t, cfg, numbered(1)) // what has no room at all runs anyway
	if got := entries(t, cfg.CacheDir); len(got) > 0 {
		t.Errorf("the cache holds %q", got)
	}
}

func TestADiskThatCannotBeWrittenIsSaidOnce(t *testing.T) {
	for name, children := range map[string]bool{"compiling in children": true, "compiling in this process": false} {
		t.Run(name, func(t *testing.T) {
			cfg, log := logged(t)
			if children {
				cfg.CompileCommand = inChildren(t).CompileCommand
			}
			// A file is where the directory should be: not even root can
			// write below it.
			if err := errors.Join(os.MkdirAll(filepath.Dir(cfg.CacheDir), 0o700), os.WriteFile(filepath.Dir(cfg.CacheDir)+"/code", nil, 0o600)); err != nil {
				t.Fatal(err)
			}
			cfg.CacheDir = filepath.Join(cfg.CacheDir, "below")
			use(t, cfg, numbered(1), numbered(2))
			if n := strings.Count(log.String(), "cannot be written"); n != 1 {
				t.Errorf("it was said %s times:\n%s", strconv.Itoa(n), log)
			}
		})
	}
}
