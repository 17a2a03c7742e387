package sandbox_test

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox"
	"github.com/carrelhost/carrel/host/sandbox/snapshot"
	"github.com/carrelhost/carrel/host/sandbox/wasmtest"
)

const madeAnew = "was not in the cache, and is made anew"

// remembering is a configuration with both directories, and its log.
func remembering(t *testing.T) (sandbox.Config, *bytes.Buffer) {
	t.Helper()
	var log bytes.Buffer
	dir := t.TempDir()
	return sandbox.Config{
		CacheDir: filepath.Join(dir, "code"), SnapshotDir: filepath.Join(dir, "snapshots"),
		Log: slog.New(slog.NewTextHandler(&log, nil)),
	}, &log
}

// started runs f with a sandbox that is closed before it returns.
func started(t *testing.T, cfg sandbox.Config, f func(s *sandbox.Sandbox)) {
	t.Helper()
	s, err := sandbox.New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	f(s)
}

// begins returns the state in which a plugin's calls begin, of a sandbox of
// its own.
func begins(t *testing.T, cfg sandbox.Config, wasm []byte, setup sandbox.Setup) (state sandbox.State, passed int64) {
	t.Helper()
	started(t, cfg, func(s *sandbox.Sandbox) {
		p := openWith(t, s, wasm, setup)
		state, passed = sandbox.Next(t, p), sandbox.Passed(p)
	})
	return state, passed
}

// snapshotFile returns the file of the only entry.
func snapshotFile(t *testing.T, cfg sandbox.Config) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(cfg.SnapshotDir, "*", "snapshot"))
	if err != nil || len(found) != 1 {
		t.Fatalf("found %q, %v", found, err)
	}
	return found[0]
}

// TestASnapshotFromDiskIsTheOneThatWasMade compares every byte, over a restart
// of the sandbox and without one.
func TestASnapshotFromDiskIsTheOneThatWasMade(t *testing.T) {
	for name, guest := range map[string]struct {
		wasm  func(t testing.TB) []byte
		setup sandbox.Setup
	}{
		"a small guest":                {func(testing.TB) []byte { return scribbler(initialised) }, sandbox.Setup{}},
		"a small guest that is warm":   {func(testing.TB) []byte { return scribbler(initialised) }, warmed("grow", "\x5a")},
		"a guest without a memory":     {func(testing.TB) []byte { return withoutMemory() }, warmed("learn", "")},
		"a guest of Go":                {goModule, sandbox.Setup{}},
		"a guest of Go that is warm":   {goModule, warmed("json", benchInput)},
		"a warm-up that is discarded":  {func(testing.TB) []byte { return scribbler(initialised) }, warmed("trap", "\x5a")},
		"a Go guest that sleeps in it": {goModule, warmed("echo", `{"a":1}`)},
	} {
		t.Run(name, func(t *testing.T) {
			wasm := guest.wasm(t)
			want, passed := begins(t, sandbox.Config{}, wasm, guest.setup) // no disk
			cfg, log := remembering(t)
			started(t, cfg, func(s *sandbox.Sandbox) { admit(t, s, wasm, guest.setup) })
			file := snapshotFile(t, cfg)
			before, err := os.Stat(file)
			if err != nil {
				t.Fatal(err)
			}
			got, went := begins(t, cfg, wasm, guest.setup)
			sameState(t, got, want)
			if went != passed {
				t.Errorf("its clock showed %d, want %d", went, passed)
			}
			if log.Len() > 0 {
				t.Errorf("the log says %s", log)
			}
			// The same bytes and setup have the same file, whoever makes it.
			written, err := os.ReadFile(file)
			if err == nil {
				err = os.RemoveAll(cfg.SnapshotDir)
			}
			if err != nil {
				t.Fatal(err)
			}
			got, _ = begins(t, cfg, wasm, guest.setup)
			sameState(t, got, want)
			again, err := os.ReadFile(file)
			if err != nil || !bytes.Equal(again, written) || int64(len(again)) != before.Size() {
				t.Errorf("made anew it has %d bytes, not the same %d: %v", len(again), len(written), err)
			}
			if !strings.Contains(log.String(), madeAnew) {
				t.Errorf("the log does not say that it was made anew: %s", log)
			}
		})
	}
}

// withoutMemory is a guest whose warm-up counts in a global.
func withoutMemory() []byte {
	m := wasmtest.New()
	g := m.Global(5)
	m.Method("learn").Const(6).GlobalSet(g).Const(0)
	m.Method("run").Const(0)
	return m.Bytes()
}

func TestADamagedSnapshotIsMadeAnew(t *testing.T) {
	wasm, setup := scribbler(initialised), warmed("grow", "\x5a")
	want, passed := begins(t, sandbox.Config{}, wasm, setup)
	cfg, _ := remembering(t)
	started(t, cfg, func(s *sandbox.Sandbox) { admit(t, s, wasm, setup) })
	file := snapshotFile(t, cfg)
	sums := filepath.Join(filepath.Dir(file), "sums")
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	damages := map[string]func() error{
		"the file is gone":                 func() error { return os.Remove(file) },
		"the sums are gone":                func() error { return os.Remove(sums) },
		"the sums are cut off":             func() error { return os.Truncate(sums, 20) },
		"the entry is gone":                func() error { return os.RemoveAll(filepath.Dir(file)) },
		"the directory is gone":            func() error { return os.RemoveAll(cfg.SnapshotDir) },
		"others may write it":              func() error { return os.Chmod(file, 0o602) },
		"another file is beside it":        func() error { return os.WriteFile(file+"x", nil, 0o600) },
		"it is a link":                     func() error { return errors.Join(os.Rename(file, file+"x"), os.Symlink(file+"x", file)) },
		"it is a directory":                func() error { return errors.Join(os.Remove(file), os.Mkdir(file, 0o700)) },
		"it is longer":                     func() error { return os.WriteFile(file, append(bytes.Clone(whole), 0), 0o600) },
		"it is what no sandbox ever wrote": func() error { return rewrite(t, file, strings.NewReader("carrel-s is what it begins with, at least")) },
		"it is another module's": func() error {
			return rewrite(t, file, zeros(3, 1))
		},
		"it has more memory than the plugin": func() error {
			return rewrite(t, file, zeros(16*(abi.DefaultMemoryMiB+1), 2))
		},
	}
	for _, n := range []int{0, 1, 8, 31, 32, 40, len(whole) / 2, len(whole) - 1} {
		damages["it is cut off after "+strconv.Itoa(n)+" bytes"] = func() error { return os.Truncate(file, int64(n)) }
		damages["bit 3 of byte "+strconv.Itoa(n)+" is flipped"] = func() error {
			b := bytes.Clone(whole)
			b[n] ^= 8
			return os.WriteFile(file, b, 0o600)
		}
	}
	for name, damage := range damages {
		for when, running := range map[string]bool{"while no host runs": false, "while a host runs": true} {
			t.Run(name+" "+when, func(t *testing.T) {
				if !running {
					if err := damage(); err != nil {
						t.Fatal(err)
					}
				}
				started(t, cfg, func(s *sandbox.Sandbox) {
					if running {
						if err := damage(); err != nil {
							t.Fatal(err)
						}
					}
					p := openWith(t, s, wasm, setup)
					sameState(t, sandbox.Next(t, p), want)
					if sandbox.Passed(p) != passed {
						t.Errorf("its clock showed %d, want %d", sandbox.Passed(p), passed)
					}
				})
				mended, err := os.ReadFile(file)
				if err != nil || !bytes.Equal(mended, whole) {
					t.Errorf("it is not mended: %d bytes, %v", len(mended), err)
				}
				if left := leftovers(t, cfg.SnapshotDir); len(left) > 0 {
					t.Errorf("left in the cache: %q", left)
				}
			})
		}
	}
}

// zeros is the file of a warm state of so many pages and globals, all of them 0.
func zeros(pages, globals int) io.WriterTo {
	return snapshot.State{
		Header: snapshot.Header{Values: make([]uint64, globals), Warmed: true},
		Memory: snapshot.Of(make([]byte, pages*sandbox.PageBytes)),
	}
}

// rewrite makes a file another one, with sums that fit.
func rewrite(t *testing.T, file string, b io.WriterTo) error {
	entry := filepath.Dir(file)
	reopened(t, filepath.Dir(entry)).Write(filepath.Base(entry), filepath.Base(file), b)
	return nil
}

// TestWhatNoGuestMadeIsNotStored opens a module that is its data only.
func TestWhatNoGuestMadeIsNotStored(t *testing.T) {
	cfg, log := remembering(t)
	started(t, cfg, func(s *sandbox.Sandbox) {
		admit(t, s, scribbler(nil), sandbox.Setup{})
		admit(t, s, scribbler(movable), sandbox.Setup{})
		openWith(t, s, scribbler(nil), sandbox.Setup{})
	})
	if got := entries(t, cfg.SnapshotDir); len(got) > 0 || log.Len() > 0 {
		t.Errorf("there are %q, and the log says %s", got, log)
	}
}

// TestAKillWhileASnapshotIsWritten leaves what a process would that is killed
// after each step of it.
func TestAKillWhileASnapshotIsWritten(t *testing.T) {
	wasm, setup := scribbler(initialised), warmed("grow", "\x5a")
	want, _ := begins(t, sandbox.Config{}, wasm, setup)
	for name, tc := range map[string]struct {
		step func(dir, entry string) error
		anew bool
	}{
		"the directory was made": {func(dir, entry string) error { return errors.Join(os.RemoveAll(entry), os.Mkdir(dir, 0o700)) }, true},
		"half of the file was written": {func(dir, entry string) error {
			return errors.Join(os.Rename(entry, dir), os.Remove(dir+"/sums"), os.Truncate(dir+"/snapshot", 99))
		}, true},
		"the file was written":          {func(dir, entry string) error { return errors.Join(os.Rename(entry, dir), os.Remove(dir+"/sums")) }, true},
		"half of the sums were written": {func(dir, entry string) error { return errors.Join(os.Rename(entry, dir), os.Truncate(dir+"/sums", 9)) }, true},
		"it was sealed":                 {func(dir, entry string) error { return os.Rename(entry, dir) }, true},
		"it came into place":            {func(string, string) error { return nil }, false},
		"an old one began to be removed": {func(_, entry string) error {
			return os.Rename(entry, filepath.Join(filepath.Dir(entry), "tmp-"+filepath.Base(entry)))
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			cfg, log := remembering(t)
			started(t, cfg, func(s *sandbox.Sandbox) { admit(t, s, wasm, setup) })
			if err := tc.step(filepath.Join(cfg.SnapshotDir, "tmp-1"), filepath.Dir(snapshotFile(t, cfg))); err != nil {
				t.Fatal(err)
			}
			for range 2 { // the second time all is well
				got, _ := begins(t, cfg, wasm, setup)
				sameState(t, got, want)
				if n := strings.Count(log.String(), madeAnew); (n == 1) != tc.anew {
					t.Errorf("it was made anew %d times:\n%s", n, log)
				}
				if whole, rest := names(t, cfg.SnapshotDir); len(whole) != 1 || len(rest) > 0 {
					t.Errorf("the cache holds %q and %q", whole, rest)
				}
			}
		})
	}
}

func TestSnapshotsAreForTheirOwnerAlone(t *testing.T) {
	cfg, _ := remembering(t)
	started(t, cfg, func(s *sandbox.Sandbox) { admit(t, s, scribbler(initialised), sandbox.Setup{}) })
	err := filepath.WalkDir(cfg.SnapshotDir, func(path string, d fs.DirEntry, err error) error {
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
	if err := os.Chmod(cfg.SnapshotDir, 0o770); err != nil {
		t.Fatal(err)
	}
	if _, err := sandbox.New(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), cfg.SnapshotDir) || !strings.Contains(err.Error(), "chmod go-w") {
		t.Errorf("a directory that others can write: %v", err)
	}
	cfg.CacheDir = ""
	if _, err := sandbox.New(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "CacheDir") {
		t.Errorf("without a cache of code: %v", err)
	}
}

func TestSnapshotsThatCannotBeWrittenAreSaidOnce(t *testing.T) {
	cfg, log := remembering(t)
	// A file is where the directory should be: not even root can write below.
	if err := os.WriteFile(cfg.SnapshotDir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cfg.SnapshotDir = filepath.Join(cfg.SnapshotDir, "below")
	wasm, setup := scribbler(initialised), warmed("grow", "\x5a")
	started(t, cfg, func(s *sandbox.Sandbox) {
		admit(t, s, wasm, setup)
		sameState(t, sandbox.Next(t, openWith(t, s, wasm, setup)), sandbox.Warmed(t, s, wasm, setup))
		admit(t, s, wasm, sandbox.Setup{})
	})
	if n := strings.Count(log.String(), "cannot be written"); n != 1 {
		t.Errorf("it was said %d times:\n%s", n, log)
	}
}

func TestTheSnapshotsThatWereUsedLastAreKept(t *testing.T) {
	cfg, _ := remembering(t)
	now := time.Now()
	cfg.Now = func() time.Time { now = now.Add(time.Minute); return now }
	wasm := scribbler(initialised)
	input := func(n int) sandbox.Setup { return warmed("scribble", string(rune('a'+n))) }
	started(t, cfg, func(s *sandbox.Sandbox) { admit(t, s, wasm, input(0)) })
	info, err := os.Stat(snapshotFile(t, cfg))
	if err != nil {
		t.Fatal(err)
	}
	cfg.SnapshotBytes = 3*info.Size() + info.Size()/2
	started(t, cfg, func(s *sandbox.Sandbox) {
		for _, n := range []int{1, 2} {
			admit(t, s, wasm, input(n))
		}
		openWith(t, s, wasm, input(0)) // so 1 is the oldest
	})
	before := entries(t, cfg.SnapshotDir)
	started(t, cfg, func(s *sandbox.Sandbox) { admit(t, s, wasm, input(3)) })
	after := entries(t, cfg.SnapshotDir)
	if len(before) != 3 || len(after) != 3 || slices.Equal(before, after) {
		t.Fatalf("there were %q and are %q", before, after)
	}
	log := &bytes.Buffer{}
	cfg.Log = slog.New(slog.NewTextHandler(log, nil))
	for _, n := range []int{0, 2, 3, 1} {
		if started(t, cfg, func(s *sandbox.Sandbox) { openWith(t, s, wasm, input(n)) }); strings.Contains(log.String(), madeAnew) != (n == 1) {
			t.Errorf("of number %d the log says %s", n, log)
		}
	}
}
