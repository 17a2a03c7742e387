package siege_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/client"
	"github.com/carrelhost/carrel/host/sandbox/hostile"
	"github.com/carrelhost/carrel/host/sandbox/module"
	"github.com/carrelhost/carrel/internal/testenv"
	"github.com/carrelhost/carrel/plugins"
)

// table is what was measured, a line for each case.
type table struct{ lines []string }

func (f *table) add(format string, args ...any) {
	f.lines = append(f.lines, fmt.Sprintf(format, args...))
}

func (f *table) log(t *testing.T) { t.Log("\n" + strings.Join(f.lines, "\n")) }

// within reports a time that is above its bound in strict mode.
func within(t *testing.T, what string, took, most time.Duration) {
	t.Helper()
	if strict && took > most {
		t.Errorf("%s: %v, at most %v", what, took, most)
	}
}

const (
	uploadTakes = 10 * time.Second       // an upload, whatever it is
	lateness    = 100 * time.Millisecond // of a call, after its deadline
	heartGap    = 250 * time.Millisecond
)

func TestHostileModulesAreAnsweredAndHarmNobody(t *testing.T) {
	var fast, slow []hostile.Module
	for _, m := range hostile.Modules() {
		if m.Slow {
			slow = append(slow, m)
		} else {
			fast = append(fast, m)
		}
	}
	s := besiege(t)
	before := s.resident()
	var figures table
	for _, m := range append(sample(t, fast, 80), sample(t, slow, 2)...) {
		t.Run(m.Name, func(t *testing.T) {
			b := m.Bytes()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			s.heart.longest()
			start := time.Now()
			up, err := s.mallory.Upload(ctx, b, client.UploadOptions{})
			took, gap := time.Since(start), s.heart.longest()
			code, limit := answer(err)
			figures.add("%8d bytes %8.0f ms, heart %4d ms  %-16s %s", len(b), ms(took), gap.Milliseconds(), code, m.Name)
			if s.lost(t, err) {
				return
			}
			bomb := m.Slow && m.Code == abi.OK && code == abi.LimitExceeded
			if !bomb && (code != m.Code || limit != m.Limit) {
				t.Errorf("got %v, want %v and the limit %q", err, m.Code, m.Limit)
			}
			within(t, "the upload", took, uploadTakes)
			within(t, "the longest time without a heartbeat", gap, heartGap)
			if err == nil {
				if err := testenv.CallHostile(ctx, s.mallory, up.Plugin, hostile.Fine); err != nil {
					t.Errorf("a call of what was admitted: %v", err)
				}
				if _, err := s.mallory.DeletePlugin(ctx, up.Plugin); err != nil {
					t.Error(err)
				}
			}
			s.sound(t)
		})
		if s.over() {
			s = besiege(t)
		}
	}
	figures.log(t)
	s.settles(t, before)
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// over reports whether the process has ended.
func (s *siege) over() bool {
	select {
	case <-s.p.Ended:
		return true
	default:
		return false
	}
}

// goAttacks builds a guest in Go and returns its attacks.
func goAttacks(t *testing.T) []hostile.Attack {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"main.go": hostile.GoSource, "go.mod": "module guest\n\ngo 1.24\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "go", "build", "-buildmode=c-shared", "-ldflags=-s -w", "-o", "guest.wasm", ".")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "GOFLAGS=-mod=mod", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v: %s", err, out)
	}
	wasm, err := plugins.Embed([]byte(testenv.Read(t, filepath.Join(dir, "guest.wasm"))), hostile.GoManifest(), module.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	return hostile.GoAttacks(wasm)
}

// measured is what one attack did, or what honest guests do in its place.
type measured struct {
	late time.Duration   // the last end of a call, after the deadline
	gap  time.Duration   // of the heartbeat
	took []time.Duration // of the other tenant's calls
	errs []error         // of the calls
}

// enough calls of the other tenant have a p99 that is not that of the slowest.
const enough = 400

// add adds what the same did once more.
func (m *measured) add(more measured) {
	m.late, m.gap = max(m.late, more.late), max(m.gap, more.gap)
	m.took, m.errs = append(m.took, more.took...), append(m.errs, more.errs...)
}

// crowd is how many calls come at once, and whether they end before their time:
// then they come again at once, and what the other tenant feels most is that
// they come.
type crowd struct {
	calls int
	short bool
}

// honest is the method of honest guests that come like that.
func (c crowd) honest() string {
	if c.short {
		return hostile.Fine
	}
	return hostile.Busy
}

func (c crowd) String() string {
	if c.short {
		return fmt.Sprintf("%4d short calls", c.calls)
	}
	return fmt.Sprintf("%4d calls", c.calls)
}

// storm makes calls at once while the other tenant works.
func (s *siege) storm(t *testing.T, plugin, method string, calls int) (m measured) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	m.errs = make([]error, calls)
	s.heart.longest()
	m.took = s.during(t, func() {
		start := time.Now()
		var all sync.WaitGroup
		for n := range calls {
			all.Go(func() { m.errs[n] = testenv.CallHostile(ctx, s.mallory, plugin, method) })
		}
		all.Wait()
		m.late = max(0, time.Since(start)-hostile.Patience)
	})
	m.gap = s.heart.longest()
	return m
}

func TestHostileGuestsEndAndHarmNobody(t *testing.T) {
	attacks := append(sample(t, hostile.Attacks(), 24), goAttacks(t)...)
	s := besiege(t)
	before := s.resident()
	var figures table
	// The other tenant's calls.
	honest, attacked := map[crowd][]time.Duration{}, map[crowd][]time.Duration{}
	honestly := func(t *testing.T, c crowd) time.Duration {
		if honest[c] == nil {
			m := s.storm(t, "worker", c.honest(), c.calls)
			for n := 1; n < 20 && (n < 10/c.calls || c.calls > 1 && len(m.took) < enough); n++ {
				m.add(s.storm(t, "worker", c.honest(), c.calls))
			}
			honest[c] = m.took
			figures.add("%s of honest guests: %5.0f ms late, heart %4d ms, the other tenant's p99 %5.1f ms", c, ms(m.late), m.gap.Milliseconds(), ms(p99(m.took)))
		}
		return p99(honest[c])
	}
	for _, a := range attacks {
		t.Run(a.Name, func(t *testing.T) {
			s.uploaded(t, a)
			m := s.storm(t, hostile.Plugin, a.Method, a.Calls)
			for n := 1; a.Calls > 1 && len(m.took) < enough && n < 20; n++ {
				m.add(s.storm(t, hostile.Plugin, a.Method, a.Calls))
			}
			codes := map[abi.Code]int{}
			for _, err := range m.errs {
				if s.lost(t, err) {
					return
				}
				code, limit := answer(err)
				if codes[code]++; !slices.Contains(a.Ends, code) || len(a.Ends) == 1 && limit != a.Limit {
					t.Errorf("a call ended with %v, want %v and the limit %q", err, a.Ends, a.Limit)
					break
				}
			}
			c := crowd{a.Calls, m.late == 0 && a.Calls > 1}
			figures.add("%5.0f ms late, heart %4d ms, the other tenant's p99 %5.1f ms (honest %5.1f)  %-24s %s", ms(m.late), m.gap.Milliseconds(), ms(p99(m.took)), ms(honestly(t, c)), fmt.Sprint(codes), a.Name)
			if a.Calls == 1 {
				within(t, "the end after the deadline", m.late, lateness)
			}
			within(t, "the longest time without a heartbeat", m.gap, heartGap)
			attacked[c] = append(attacked[c], m.took...)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			if err := testenv.CallHostile(ctx, s.mallory, hostile.Plugin, hostile.Fine); err != nil {
				t.Errorf("the next call: %v", err)
			}
			s.removed(t) // there are more attacks than one plugin may have versions
			s.sound(t)
		})
		if s.over() {
			s = besiege(t)
		}
	}
	for c, took := range attacked {
		figures.add("the other tenant's p99 in all attacks of %s: %5.1f ms, %5.1f ms beside honest ones", c, ms(p99(took)), ms(honestly(t, c)))
		within(t, fmt.Sprintf("the other tenant's p99 in all attacks of %s", c), p99(took), 2*honestly(t, c))
	}
	figures.log(t)
	s.settles(t, before)
}

// uploaded uploads an attack, with what it calls and may call.
func (s *siege) uploaded(t *testing.T, a hostile.Attack) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, plugin := range append(slices.Clone(a.Others), a.Plugin) {
		up, err := s.mallory.Upload(ctx, plugin(), client.UploadOptions{})
		if err != nil {
			s.lost(t, err)
			t.Fatalf("the upload: %v", err)
		}
		other := map[string]string{hostile.Plugin: hostile.Accomplice, hostile.Accomplice: hostile.Plugin}[up.Plugin]
		if _, err := s.mallory.SetGrant(ctx, up.Plugin, client.Grant{Call: []string{other + "/*"}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := testenv.CallHostile(ctx, s.mallory, hostile.Plugin, hostile.Fine); err != nil {
		t.Fatalf("the call before: %v", err)
	}
}

// removed deletes what attacked.
func (s *siege) removed(t *testing.T) {
	t.Helper()
	for _, name := range []string{hostile.Plugin, hostile.Accomplice} {
		if _, err := s.mallory.DeletePlugin(t.Context(), name); err != nil {
			if code, _ := answer(err); code != abi.NotFound {
				t.Error(err)
			}
		}
	}
}

func TestUploadsAgainAndAgainLeaveNothing(t *testing.T) {
	times := 40
	if strict {
		times = 1000
	}
	s := besiege(t)
	upload := func(b []byte) client.Uploaded {
		t.Helper()
		up, err := s.mallory.Upload(t.Context(), b, client.UploadOptions{})
		if err == nil {
			err = testenv.CallHostile(t.Context(), s.mallory, up.Plugin, hostile.Fine)
		}
		if err != nil {
			t.Fatal(err)
		}
		return up
	}
	same := hostile.Worker("again")
	upload(same)
	before := s.resident()
	start := time.Now()
	for range times {
		upload(same)
	}
	t.Logf("%d uploads of one module: %v each", times, time.Since(start)/time.Duration(times))
	s.settles(t, before)
	start = time.Now()
	last := upload(same)
	for n := range times {
		up := upload(module.AppendCustom(slices.Clone(same), "n", fmt.Appendf(nil, "%d", n)))
		if err := s.mallory.DeleteVersion(t.Context(), last.Plugin, last.Version.Digest); err != nil {
			t.Fatal(err)
		}
		last = up
	}
	t.Logf("%d uploads of changing modules: %v each", times, time.Since(start)/time.Duration(times))
	s.settles(t, before)
	s.sound(t)
}
