// Package siege_test attacks the program `carrel`, which runs in a process of
// its own: with hostile modules and guests, with more uploads and plugins than
// it has room for, and with compilers, caches and systems that fail it.
package siege_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/client"
	"github.com/carrelhost/carrel/host/model/modeltest"
	"github.com/carrelhost/carrel/host/sandbox/hostile"
	"github.com/carrelhost/carrel/internal/testenv"
)

// strict runs the whole corpus and holds the host to its numbers, which a
// machine that has something else to do does not reach:
//
//	CARREL_TEST_STRICT=1 go test ./host/siege -run Hostile -v
var strict = os.Getenv("CARREL_TEST_STRICT") != ""

// program is what is attacked.
var program testenv.Program

func TestMain(m *testing.M) { os.Exit(program.Main(m)) }

// scopes is an honest guest in Go, which takes a while to compile.
var scopes = testenv.Project{Dir: filepath.Join("..", "..", "examples", "scopes")}

// appChat is a method of scopes.
const appChat = "scopes/com.acme.AppChat.chat"

// siege is a host in a process of its own, a tenant that attacks it and one
// that works on it.
type siege struct {
	p             *testenv.Process
	mallory, acme *client.Client
	heart         *heart
	log           string // the file of the process's stderr
}

// besiege starts a host that has the plugin of the tenant that works.
func besiege(t *testing.T) *siege {
	t.Helper()
	key := strings.Repeat("admin-", 8)
	// Without a key of a model server, the offline model is all there is.
	// It logs a line for each of many thousand requests; those that matter are
	// shown.
	data := t.TempDir()
	s := &siege{log: filepath.Join(data, "stderr.log")}
	p := testenv.Listening(t, program.Command(t, `exec 2>"$HOME/stderr.log"; `, data, modeltest.NewServer(t), "OPENAI_API_KEY=", "CARREL_ADMIN_KEY="+key))
	s.p = p
	admin := &client.Client{Base: p.Base, Key: key}
	for name, c := range map[string]**client.Client{"mallory": &s.mallory, "acme": &s.acme} {
		if _, err := admin.CreateTenant(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		made, err := admin.CreateKey(t.Context(), name, client.NewKey{Role: "owner"})
		if err != nil {
			t.Fatal(err)
		}
		*c = &client.Client{Base: p.Base, Key: made.Secret, HTTP: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1000}}}
	}
	for _, c := range []*client.Client{s.mallory, s.acme} {
		if _, err := c.Upload(t.Context(), hostile.Worker("worker"), client.UploadOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	s.heart = listen(t, p.Base)
	return s
}

// sound checks that the process lives and serves the tenant that works.
func (s *siege) sound(t *testing.T) {
	t.Helper()
	select {
	case <-s.p.Ended:
		t.Fatalf("the process has ended: %v", s.p.WaitErr)
	default:
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := testenv.CallHostile(ctx, s.acme, "worker", hostile.Fine); err != nil {
		t.Errorf("another tenant's call: %v", err)
	}
}

// patience is how long anything may take before the host counts as lost.
const patience = 30 * time.Second

// lost reports whether the host does not answer any more, which err may come
// from. Such a process is ended: another takes its place.
func (s *siege) lost(t *testing.T, err error) bool {
	t.Helper()
	_, answered := errors.AsType[*client.Problem](err)
	if err == nil || answered {
		return false
	}
	t.Errorf("THE HOST IS LOST: %v", err)
	s.p.End(t, syscall.SIGKILL)
	for line := range strings.Lines(testenv.Read(t, s.log)) {
		if !strings.Contains(line, "level=INFO") {
			t.Log(strings.TrimSpace(line))
		}
	}
	return true
}

// answer returns the code and the limit of an outcome.
func answer(err error) (abi.Code, string) {
	if p, ok := errors.AsType[*client.Problem](err); ok {
		c, _ := abi.ParseCode(p.Code)
		return c, p.Limit
	}
	if err != nil {
		return abi.Internal, err.Error()
	}
	return abi.OK, ""
}

// heart asks a host again and again whether it lives.
type heart struct {
	mu   sync.Mutex
	last time.Time
	gap  time.Duration
}

func listen(t *testing.T, base string) *heart {
	h := &heart{last: time.Now()}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	t.Cleanup(func() { cancel(); <-done })
	go func() {
		defer close(done)
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for n := 0; ctx.Err() == nil; n++ {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, base+[]string{"/livez", "/version"}[n%2], nil)
			if err != nil {
				return
			}
			if resp, err := http.DefaultClient.Do(r); err == nil {
				_ = resp.Body.Close()
				h.beat(resp.StatusCode == http.StatusOK)
			}
		}
	}()
	return h
}

func (h *heart) beat(well bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if now := time.Now(); well {
		h.gap, h.last = max(h.gap, now.Sub(h.last)), now
	}
}

// longest returns the longest time without an answer since the last call.
func (h *heart) longest() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	gap := max(h.gap, time.Since(h.last))
	h.gap = 0
	return gap
}

// during calls a method of the tenant that works from two clients until f
// returns, and returns how long each call took.
func (s *siege) during(t *testing.T, f func()) []time.Duration {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	took := make([][]time.Duration, 2)
	for n := range took {
		all.Go(func() {
			for ctx.Err() == nil {
				start := time.Now()
				if err := testenv.CallHostile(ctx, s.acme, "worker", hostile.Fine); err != nil {
					if ctx.Err() == nil {
						t.Errorf("another tenant's call during the attack: %v", err)
					}
					return
				}
				took[n] = append(took[n], time.Since(start))
			}
		})
	}
	f()
	cancel()
	all.Wait()
	return slices.Concat(took...)
}

// p99 returns what one in a hundred took longer than.
func p99(took []time.Duration) time.Duration {
	if len(took) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(took))
	return sorted[len(sorted)*99/100]
}

// resident returns the bytes of memory that the process has; 0 where nobody
// can tell.
func (s *siege) resident() int64 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.p.Cmd.Process.Pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(status)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "VmRSS:" {
			kib, _ := strconv.ParseInt(f[1], 10, 64)
			return kib << 10
		}
	}
	return 0
}

// settles waits for the memory to be back at what it was and a little more.
func (s *siege) settles(t *testing.T, before int64) {
	t.Helper()
	most, wait := before+100<<20, time.Minute
	if !strict {
		most, wait = before+400<<20, 20*time.Second
	}
	deadline := time.Now().Add(wait)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for s.resident() > most && time.Now().Before(deadline) {
		<-tick.C
	}
	after := s.resident()
	t.Logf("memory: %d MiB before, %d MiB after", before>>20, after>>20)
	if after > most {
		t.Errorf("the process has %d MiB, %d MiB before", after>>20, before>>20)
	}
}

// sample returns n of the elements, in their order, or all in strict mode.
func sample[T any](t *testing.T, all []T, n int) []T {
	t.Helper()
	if strict || len(all) <= n {
		return all
	}
	seed, err := strconv.ParseUint(os.Getenv("CARREL_TEST_SEED"), 10, 64)
	if err != nil {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("CARREL_TEST_SEED=%d: %d of %d", seed, n, len(all))
	chosen := map[int]bool{}
	for _, i := range rand.New(rand.NewPCG(seed, 0)).Perm(len(all))[:n] {
		chosen[i] = true
	}
	var out []T
	for _, i := range slices.Sorted(maps.Keys(chosen)) {
		out = append(out, all[i])
	}
	return out
}
