package siege_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/carrelhost/carrel/client"
	"github.com/carrelhost/carrel/host/model/modeltest"
	"github.com/carrelhost/carrel/host/sandbox/hostile"
	"github.com/carrelhost/carrel/internal/testenv"
)

// laden is a host with many plugins, in a process of its own.
type laden struct {
	*testenv.Process
	t     *testing.T
	owner *testenv.Actor
	acme  *client.Client
}

// newLaden starts a host on a data directory, with limits. Its garbage is
// collected early, so that what it has is mostly what it holds.
func newLaden(t *testing.T, data string, m *modeltest.Server, limits ...string) *laden {
	t.Helper()
	limits = append(limits, "CARREL_LIMITS_PLUGINS=2000", "CARREL_LIMITS_LOADED_VERSIONS=2000", "GOGC=25")
	l := &laden{t: t, Process: program.Serve(t, data, m, limits...)}
	l.owner = l.Owner(t, data, m)
	l.acme = l.owner.Client()
	return l
}

const largeOnes = 10

// fill uploads n small plugins, some large ones and one of Go, of which no two
// have the same code.
func (l *laden) fill(n int) {
	l.t.Helper()
	var all [][]byte
	for i := range n {
		all = append(all, small(i))
	}
	for i := range largeOnes {
		all = append(all, large(i, 1000))
	}
	for _, wasm := range append(all, scopes.Module(l.t)) {
		if _, err := l.acme.Upload(l.t.Context(), wasm, client.UploadOptions{}); err != nil {
			l.t.Fatal(err)
		}
	}
}

// round calls each plugin and returns how long a small one took on average,
// and that of Go.
func (l *laden) round(n int) (small, guest time.Duration) {
	l.t.Helper()
	fine := func(name string) {
		if err := testenv.CallHostile(l.t.Context(), l.acme, name, hostile.Fine); err != nil {
			l.t.Fatalf("%s: %v", name, err)
		}
	}
	start := time.Now()
	for i := range n {
		fine(smallName(i))
	}
	small = time.Since(start) / time.Duration(n)
	for i := range largeOnes {
		fine(largeName(i))
	}
	start = time.Now()
	l.owner.Chat(appChat, "id", "1", "msg", "hello")
	return small, time.Since(start)
}

// memory returns how many bytes of resident memory are the process's own.
func (l *laden) memory() int64 {
	l.t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", l.Cmd.Process.Pid))
	if err != nil {
		l.t.Skip("this system does not tell: ", err)
	}
	_, after, _ := strings.Cut(string(status), "RssAnon:")
	kib, _, _ := strings.Cut(strings.TrimSpace(after), " ")
	n, err := strconv.ParseInt(kib, 10, 64)
	if err != nil {
		l.t.Fatal(err)
	}
	return n << 10
}

// settled is memory after the host collected its garbage, which bodies that
// are refused make it do.
func (l *laden) settled() int64 {
	l.t.Helper()
	junk := []byte(strings.Repeat("x", 2<<20))
	for range 30 {
		if _, err := l.acme.Upload(l.t.Context(), junk, client.UploadOptions{}); err == nil {
			l.t.Fatal("junk was taken in")
		}
	}
	return l.memory()
}

// falls waits until the memory is at most that.
func (l *laden) falls(most int64) int64 {
	l.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		now := l.settled()
		if now <= most || time.Now().After(deadline) {
			return now
		}
	}
}

// started returns a number that grows with each child process of the host that
// ended: their page faults, see proc(5).
func (l *laden) started() string {
	l.t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", l.Cmd.Process.Pid))
	if err != nil {
		l.t.Fatal(err)
	}
	return strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))[8]
}

func (l *laden) stop() {
	l.t.Helper()
	if code := l.End(l.t, syscall.SIGTERM); code != 0 {
		l.t.Fatalf("exit code %d", code)
	}
}

// many is how many small plugins the tests below have.
func many() int {
	if strict {
		return 1000
	}
	return 60
}

// TestPluginsAreUnloadedAndComeBack loads many plugins with bounds of every
// kind, and looks at what the process holds.
func TestPluginsAreUnloadedAndComeBack(t *testing.T) {
	data, m, n := t.TempDir(), modeltest.NewServer(t), many()
	l := newLaden(t, data, m)
	l.fill(n)
	l.round(n)
	small, guest := l.round(n)
	full := l.settled()
	t.Logf("%d small plugins, %d large ones and one of Go are loaded: %d MiB; calls take %v (small) and %v (Go)", n, largeOnes, full>>20, small, guest)
	l.stop()

	l = newLaden(t, data, m, "CARREL_LIMITS_LOADED_IDLE=2s")
	empty := l.settled()
	l.round(n)
	loaded := l.memory()
	low := l.falls(empty + (full-empty)/4)
	t.Logf("after a start: %d MiB, when all were called: %d MiB, when none is called: %d MiB", empty>>20, loaded>>20, low>>20)
	if low > empty+(full-empty)/4 {
		t.Errorf("the process has %d bytes when nobody calls, %d when it began and %d with all loaded", low, empty, full)
	}
	before := l.started()
	small, guest = l.round(n)
	t.Logf("they come back in %v (small) and %v (Go)", small, guest)
	if after := l.started(); after != before {
		t.Error("what came back was compiled again")
	}
	l.stop()

	// 4 MiB have room for a few of the small ones.
	l = newLaden(t, data, m, "CARREL_LIMITS_LOADED_BYTES="+strconv.Itoa(4<<20))
	before = l.started()
	l.round(n)
	first := l.settled()
	for range 3 {
		small, guest = l.round(n)
	}
	last := l.settled()
	t.Logf("with room for 4 MiB: %d MiB after the first round, %d MiB after the fourth; calls take %v and %v", first>>20, last>>20, small, guest)
	if last > first+16<<20 {
		t.Errorf("%d plugins that are loaded in turn let the process grow from %d to %d bytes", n, first, last)
	}
	if last > empty+(full-empty)*2/3 {
		t.Errorf("the process has %d bytes, %d with all loaded", last, full)
	}
	if after := l.started(); after != before {
		t.Error("what came back was compiled again")
	}
	if found, err := filepath.Glob(filepath.Join(data, "cache", "code", "*")); err != nil || len(found) < n {
		t.Errorf("the cache holds %d entries, %v", len(found), err)
	}
	l.stop()
}
