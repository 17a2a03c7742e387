//go:build unix

package marker_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/carrelhost/carrel/host/sandbox/marker"
)

// The environment makes the test binary a process that crashes.
const (
	crashEnv = "MARKER_TEST_CRASH"
	filesEnv = "MARKER_TEST_FILES"
)

func TestMain(m *testing.M) {
	if how := os.Getenv(crashEnv); how != "" {
		fmt.Fprintln(os.Stderr, crash(how, os.Getenv(filesEnv)))
		os.Exit(3)
	}
	os.Exit(m.Run())
}

func digest(name string) *[sha256.Size]byte {
	d := sha256.Sum256([]byte(name))
	return &d
}

// crash marks three guests, one of them away, and ends the process in one of
// the ways of a crash.
func crash(how, dir string) error {
	report, err := os.Create(filepath.Join(dir, "report"))
	if err != nil {
		return err
	}
	if err := debug.SetCrashOutput(report, debug.CrashOptions{}); err != nil {
		return err
	}
	f, _, err := marker.Open(filepath.Join(dir, "running"), 10)
	if err != nil {
		return err
	}
	f.Take(digest("innocent"), "acme")
	sleeping := f.Take(digest("asleep"), "acme")
	sleeping.Away()
	mine := f.Take(digest("mine"), "mallory")
	debug.SetMaxStack(1 << 20)
	return marker.Under(context.Background(), mine.Number(), func(ctx context.Context) error {
		switch how {
		case "a panic":
			panic("goroutine 1 [running]:\ngithub.com/carrelhost/carrel/host/sandbox/marker.Under(0xca44e10000000000)")
		case "a panic in a host call":
			mine.Away()
			panic("in a host call")
		case "a panic in a guest that another guest called":
			mine.Away()
			return marker.Under(ctx, f.Take(digest("callee"), "mallory").Number(), func(context.Context) error { panic("inner") })
		case "a stack that is too deep":
			return fmt.Errorf("%d", deep(1))
		case "a fatal error":
			m := map[int]int{}
			for range 4 {
				go func() {
					for {
						m[1]++
					}
				}()
			}
			select {}
		case "a panic in another goroutine":
			go panic("elsewhere")
			select {}
		case "SIGABRT":
			return errors.Join(syscall.Kill(os.Getpid(), syscall.SIGABRT), wait())
		case "SIGSEGV":
			return errors.Join(syscall.Kill(os.Getpid(), syscall.SIGSEGV), wait())
		case "SIGQUIT":
			return errors.Join(syscall.Kill(os.Getpid(), syscall.SIGQUIT), wait())
		case "SIGKILL":
			return errors.Join(syscall.Kill(os.Getpid(), syscall.SIGKILL), wait())
		}
		return errors.New("no such way")
	})
}

func wait() error { select {} }

func deep(n int) int { return deep(n+1) + n } //nolint:staticcheck // it is to end the process

func TestSuspectsAreTheGuestOfTheGoroutineThatCrashedElseAllThatRan(t *testing.T) {
	for how, want := range map[string][]string{
		"a panic":                {"mine"},
		"a panic in a host call": {"mine"},
		"a panic in a guest that another guest called": {"callee"},
		"a stack that is too deep":                     {"mine"},
		"a fatal error":                                {"innocent", "mine"},
		"a panic in another goroutine":                 {"innocent", "mine"},
		"SIGABRT":                                      nil, // whoever is told to end is not to blame
		"SIGSEGV":                                      nil,
	} {
		t.Run(how, func(t *testing.T) {
			report, guests := crashed(t, how)
			var got []string
			for _, g := range marker.Suspects(report, guests) {
				for _, name := range []string{"innocent", "asleep", "mine", "callee"} {
					if g.Digest == *digest(name) {
						got = append(got, name)
					}
				}
			}
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Errorf("suspects are %v, want %v, of %+v and\n%.3000s", got, want, guests, report)
			}
		})
	}
}

// crashed runs a process that ends in that way, and returns what it left.
func crashed(t *testing.T, how string) (report []byte, guests []marker.Guest) {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), crashEnv+"="+how, filesEnv+"="+dir)
	if out, err := cmd.CombinedOutput(); cmd.ProcessState.ExitCode() == 3 || err == nil {
		t.Fatalf("it ended with %v: %s", err, out)
	}
	report, err := os.ReadFile(filepath.Join(dir, "report"))
	if err != nil {
		t.Fatal(err)
	}
	if guests, err = marker.Read(filepath.Join(dir, "running")); err != nil {
		t.Fatal(err)
	}
	return report, guests
}

func TestWhatRanIsReadAfterAKill(t *testing.T) {
	report, guests := crashed(t, "SIGKILL")
	if len(report) > 0 {
		t.Errorf("a kill reports %s", report)
	}
	want := []string{"acme true", "acme false", "mallory true"}
	var got []string
	for _, g := range guests {
		got = append(got, fmt.Sprint(g.Share, " ", g.Running))
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%v is marked, want %v", got, want)
	}
}

func open(t testing.TB, path string, marks int) (*marker.File, []marker.Guest) {
	t.Helper()
	f, before, err := marker.Open(path, marks)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f, before
}

func TestAMarkIsThereFromTakeToRelease(t *testing.T) {
	path := filepath.Join(t.TempDir(), "running")
	f, before := open(t, path, 2)
	if len(before) != 0 {
		t.Errorf("a new file holds %+v", before)
	}
	at := func(step string, want ...string) {
		t.Helper()
		guests, err := marker.Read(path)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, g := range guests {
			if g.Digest != *digest(g.Share) {
				t.Errorf("%s: the digest of %s is %x", step, g.Share, g.Digest)
			}
			got = append(got, fmt.Sprint(g.Share, " ", g.Running))
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("%s: %v is marked, want %v", step, got, want)
		}
	}
	one := f.Take(digest("one"), "one")
	at("taken", "one true")
	long := strings.Repeat("x", marker.MaxShareBytes)
	two := f.Take(digest(long), long+"y")
	at("a name that is too long is cut", "one true", long+" true")
	three := f.Take(digest("three"), "three")
	at("there is no third mark", "one true", long+" true")
	three.Away()
	three.Release()
	one.Away()
	at("away", "one false", long+" true")
	one.Back()
	two.Release()
	at("back, and released", "one true")
	two = f.Take(digest("b"), "b")
	at("a shorter name takes its place", "b true", "one true")
	two.Release()
	if _, before := open(t, path, 1); len(before) != 1 || before[0].Share != "one" {
		t.Errorf("opened again, it held %+v", before)
	}
	at("opened again")
}

func TestNothingIsMarkedAfterCloseAndMarksThatAreHeldCanBeReleased(t *testing.T) {
	path := filepath.Join(t.TempDir(), "running")
	f, _ := open(t, path, 2)
	held := f.Take(digest("held"), "held")
	for range 2 {
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	late := f.Take(digest("late"), "late")
	late.Away()
	late.Release()
	held.Back()
	if guests, err := marker.Read(path); err != nil || len(guests) != 1 || guests[0].Share != "held" {
		t.Errorf("%+v is marked, %v", guests, err)
	}
	held.Release()
	later := f.Take(digest("later"), "later")
	if guests, err := marker.Read(path); err != nil || len(guests) != 0 || later.Number() != 0 {
		t.Errorf("%+v is marked, number %x was taken, %v", guests, later.Number(), err)
	}
	later.Release()
	var none *marker.File
	none.Take(digest("nobody"), "").Release()
	if err := none.Close(); err != nil {
		t.Error(err)
	}
}

func TestADamagedEntryIsLeftOutWhicheverByteItIs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "running")
	f, _ := open(t, path, 3)
	for _, name := range []string{"one", "two", "three"} {
		defer f.Take(digest(name), name).Release()
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const entry, padding = 128, 112
	other := filepath.Join(t.TempDir(), "running")
	for at := range whole {
		damaged := slices.Clone(whole)
		damaged[at] ^= 0x41
		if err := os.WriteFile(other, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		guests, err := marker.Read(other)
		want := 2
		if at%entry >= padding {
			want = 3
		}
		if err != nil || len(guests) != want {
			t.Fatalf("with byte %d damaged, %d are marked, %v", at, len(guests), err)
		}
	}
}

func TestAFileOfAnythingOpens(t *testing.T) {
	random := make([]byte, 100_003)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range random {
		random[i] = byte(rng.Uint32())
	}
	for name, content := range map[string][]byte{"nothing": nil, "half an entry": random[:70], "random bytes": random, "ones": slices.Repeat([]byte{0xff}, 1<<12)} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "running")
			if err := os.WriteFile(path, content, 0o644); err != nil {
				t.Fatal(err)
			}
			f, before := open(t, path, 5)
			if len(before) > 0 {
				t.Errorf("it held %+v", before)
			}
			defer f.Take(digest("a"), "a").Release()
			info, err := os.Stat(path)
			if err != nil || info.Size() != 5*128 || info.Mode().Perm() != 0o600 {
				t.Errorf("the file is %+v, %v", info, err)
			}
		})
	}
}

func TestWhatIsNoFileIsAnError(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink(filepath.Join(dir, "elsewhere"), filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, filepath.Join(dir, "link"), filepath.Join(dir, "none", "running")} {
		if f, _, err := marker.Open(path, 1); err == nil || f != nil {
			t.Errorf("%s opens: %v", path, err)
		}
	}
}

func TestASignalThatAProcessSentIsToldFromAFault(t *testing.T) {
	for name, c := range map[string]struct {
		report string
		want   bool
	}{
		"a kill":                             {"SIGABRT: abort\nPC=0x4939c1 m=0 sigcode=0\n", true},
		"a kill by the number of a fault":    {"SIGSEGV: segmentation violation\nPC=0x1 m=3 sigcode=0 addr=0x7b\n", true},
		"a kill of a thread":                 {"\nSIGABRT: abort\nPC=0x1 m=0 sigcode=18446744073709551610\n", true},
		"the same on a system of 32 bits":    {"SIGABRT: abort\nPC=0x1 m=0 sigcode=4294967290\n", true},
		"the same with a sign":               {"SIGABRT: abort\nPC=0x1 m=0 sigcode=-6\n", true},
		"a kill on FreeBSD":                  {"SIGABRT: abort\nPC=0x1 m=0 sigcode=65537\n", true},
		"a fault":                            {"SIGSEGV: segmentation violation\nPC=0x1 m=0 sigcode=1 addr=0x0\n", false},
		"a fault that the kernel knows best": {"SIGSEGV: segmentation violation\nPC=0x1 m=0 sigcode=128 addr=0x0\n", false},
		"no code":                            {"SIGABRT: abort\n", false},
		"a code that is no number of any":    {"SIGABRT: abort\nPC=0x1 m=0 sigcode=99999999999999999999\n", false},
		"a panic that speaks of one":         {"panic: x\n\tSIGABRT: abort\nPC=0x1 m=0 sigcode=0\n", false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := marker.Sent([]byte(c.report)); got != c.want {
				t.Errorf("got %v", got)
			}
		})
	}
}

func FuzzSuspects(f *testing.F) {
	f.Add([]byte("panic: x\n\ngoroutine 1 [running]:\ngithub.com/carrelhost/carrel/host/sandbox/marker.Under({0x1?, 0x2?}, 0xca44e10000000001, 0x3?)\n"))
	f.Add([]byte("SIGABRT: abort\n"))
	guests := []marker.Guest{{Number: 0xca44e10000000001}, {Number: 0xca44e10000000002, Running: true}}
	f.Fuzz(func(t *testing.T, report []byte) {
		got := marker.Suspects(report, guests)
		if marker.Sent(report) != (len(got) == 0) || len(got) > 1 {
			t.Fatalf("%d suspects", len(got))
		}
		if len(got) == 1 && got[0].Number == guests[0].Number && !strings.Contains(string(report), "marker.Under(") {
			t.Fatal("a guest is named that the report does not name")
		}
	})
}

// BenchmarkMark is what a mark costs a call, and what it costs each host call
// in addition.
func BenchmarkMark(b *testing.B) {
	f, _ := open(b, filepath.Join(b.TempDir(), "running"), marker.MaxMarks)
	d := digest("guest")
	b.Run("call", func(b *testing.B) {
		for b.Loop() {
			f.Take(d, "a-tenant-of-the-host").Release()
		}
	})
	b.Run("host call", func(b *testing.B) {
		m := f.Take(d, "a-tenant-of-the-host")
		defer m.Release()
		for b.Loop() {
			m.Away()
			m.Back()
		}
	})
}
