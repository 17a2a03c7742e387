package invoke_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/host/idempotency"
	"github.com/carrelhost/carrel/host/invoke"
	"github.com/carrelhost/carrel/host/model"
	"github.com/carrelhost/carrel/host/sandbox"
	"github.com/carrelhost/carrel/host/scope"
	"github.com/carrelhost/carrel/plugins"
	"github.com/carrelhost/carrel/plugins/manifest"
	"github.com/carrelhost/carrel/plugins/pack"
	"github.com/carrelhost/carrel/store"
	"github.com/carrelhost/carrel/store/memstore"
	"github.com/carrelhost/carrel/store/sqlite"
)

// faultMessages is how many messages a history keeps where faults are tried.
const faultMessages = 6

// trial is a host of which one thing fails at a time.
type trial struct {
	*env
	below  store.Store // what faulty is over
	faulty *faulty
	talker *talker

	round   int
	notes   []string            // what failed in this round
	held    map[string]string   // user message → memory id, of turns that must be stored
	doubted map[string]string   // likewise, of turns that an attempt of unknown outcome was to end
	gone    map[string]struct{} // user messages that must not be stored
	session string              // the memory id that the script calls "session"
}

// newTrial returns a host over a store, with the plugins p, g and w.
func newTrial(t *testing.T, st store.Store) *trial {
	t.Helper()
	r := &trial{env: &env{t: t}, below: st, faulty: &faulty{Store: st}, talker: &talker{}}
	log := slog.New(slog.DiscardHandler)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	var err error
	r.scopes, err = scope.New(scope.Config{
		Store: r.faulty, Node: "one", Log: log, HistoryIdleTTL: 3 * time.Hour, SweepEvery: time.Second, RetryEvery: time.Second,
		Sessions: scope.SessionLimits{Sessions: 10, DefaultIdle: 10 * time.Minute, DefaultMax: time.Hour, MostIdle: time.Hour, MostMax: time.Hour},
	})
	must(err)
	box, err := sandbox.New(t.Context(), sandbox.Config{OutputBytes: 4 << 20})
	must(err)
	t.Cleanup(func() { must(box.Close()) })
	r.catalog, err = plugins.NewCatalog(plugins.Config{
		Store: r.faulty, Sandbox: box, Admit: plugins.NewAdmit(manifest.Known{}, box),
		Scopes: r.scopes, Limits: store.PluginLimits{Plugins: 20, Versions: 10},
	})
	must(err)
	t.Cleanup(r.catalog.Close)
	r.log, err = plugins.NewLog(100)
	must(err)
	must(st.CreateTenant(t.Context(), store.Tenant{ID: acme}))
	for name, text := range map[string]string{"p.md": source, "w.md": windows} {
		wasm, _, err := pack.Prompt(name, []byte(text))
		must(err)
		r.upload(acme, wasm)
	}
	r.upload(acme, guestModule(guestManifest("g", "")))
	repeats, err := idempotency.New(idempotency.Config{Store: r.faulty, Node: "one", Most: store.ClaimLimits{Claims: 10_000, Bytes: 1 << 30}, Timeout: 10 * time.Second, Log: log})
	must(err)
	r.Invoker, err = invoke.New(invoke.Config{
		Repeats: repeats, Catalog: r.catalog, Scopes: r.scopes, Histories: r.scopes.Histories(), Grants: r.faulty, Log: log, PluginLog: r.log,
		Models: model.Set{"default": {Provider: r.talker, Model: "talker"}},
		Limits: invoke.Limits{
			Timeout: time.Minute, Invocations: 100, PerTenant: 100, TurnWaiters: 100, CommitTimeout: 10 * time.Second,
			MessagesPerHistory: faultMessages, WindowBytes: 8 << 20,
		},
	})
	must(err)
	for _, p := range []carrel.PluginName{"p", "g", "w"} {
		_, err := r.catalog.Deactivate(t.Context(), acme, p)
		must(err)
	}
	return r
}

// failf reports what is wrong, and what failed before.
func (r *trial) failf(format string, args ...any) {
	r.t.Helper()
	r.t.Fatalf("round %d, after %s: %s", r.round, strings.Join(r.notes, ", "), fmt.Sprintf(format, args...))
}

// heal lets time pass with the registry at work.
func (r *trial) heal() {
	ctx, stop := context.WithCancel(r.t.Context())
	var ended sync.WaitGroup
	ended.Go(func() { r.scopes.Run(ctx) })
	<-time.After(5*time.Second + time.Millisecond)
	stop()
	ended.Wait()
	if n := r.scopes.Pending(); n != 0 {
		r.failf("%d scopes are pending", n)
	}
}

// play runs the script once, with whatever is armed. Where something failed
// the step is done again, which must succeed. It returns how many operations
// of the store and calls of the model there were.
func (r *trial) play() (ops, calls int) {
	r.t.Helper()
	r.round++
	r.notes = nil
	r.held, r.doubted, r.gone = map[string]string{}, map[string]string{}, map[string]struct{}{}
	for i, s := range r.script() {
		err := r.step(s, 1)
		op, _ := r.faulty.failed()
		_, silent := r.talker.counted()
		if op == "" && !silent {
			if err != nil {
				r.failf("step %d (%s) failed: %v", i+1, s.name, err)
			}
			r.verify()
			continue
		}
		r.notes = append(r.notes, fmt.Sprintf("step %d (%s): %s → %v", i+1, s.name, op, err))
		r.faulty.arm(0, "") // from here on it is well
		r.talker.arm(0, "")
		r.heal()
		r.verify()
		if err == nil {
			continue
		}
		if err := r.step(s, 2); err != nil && !slices.Contains(s.again, carrel.CodeOf(err)) {
			r.failf("step %d (%s), repeated, failed: %v", i+1, s.name, err)
		}
		r.verify()
	}
	ops = r.faulty.counted()
	calls, _ = r.talker.counted()
	r.heal()
	r.clean()
	return ops, calls
}

// step makes one attempt at a step.
func (r *trial) step(s faultStep, attempt int) error {
	r.t.Helper()
	ctx, leave := context.WithCancel(r.t.Context())
	defer leave()
	r.faulty.client(leave)
	r.talker.client(leave)
	turns, err := s.do(ctx, say(r.round, s, attempt))
	op, _ := r.faulty.failed()
	for text, id := range r.held {
		if slices.Contains(s.cuts, id) && (err == nil || op == "Commit") || slices.Contains(s.ends, id) {
			r.doubted[text] = id
			delete(r.held, text)
		}
	}
	for text, id := range r.doubted {
		if err == nil && slices.Contains(s.ends, id) {
			r.gone[text] = struct{}{}
			delete(r.doubted, text)
		}
	}
	for _, t := range turns {
		r.judge(t)
	}
	if n := r.HeldTurns(); n != 0 {
		r.failf("%s left %d turns held", s.name, n)
	}
	return err
}

// faults counts what can fail in the script.
func (r *trial) faults() (ops, calls int) {
	r.t.Helper()
	r.play() // so that everything is loaded
	r.faulty.arm(0, "")
	r.talker.arm(0, "")
	return r.play()
}

// failing plays the script with one fault, and then without.
func (r *trial) failing(n int, how way, model bool) {
	r.t.Helper()
	r.faulty.arm(0, "")
	r.talker.arm(0, "")
	if model {
		r.talker.arm(n, how)
	} else {
		r.faulty.arm(n, how)
	}
	r.play()
	if len(r.notes) == 0 {
		r.failf("nothing failed: %d %s", n, how)
	}
	r.faulty.arm(0, "")
	r.play()
}

func TestEveryFaultOfAStoreInMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTrial(t, memstore.New(memstore.Config{}))
		ops, _ := r.faults()
		for n := range ops {
			for i, how := range []way{refused, lost, cancelled, late} {
				if !testing.Short() || (n+i)%8 == 0 {
					r.failing(n+1, how, false)
				}
			}
		}
	})
}

// faultStride: a file is slower, so that each run tries every faultStride-th of
// its faults, and about as many others, which the logged seed picks.
const faultStride = 16

func TestFaultsOfAStoreInAFile(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	path := filepath.Join(t.TempDir(), "carrel.db")
	synctest.Test(t, func(t *testing.T) {
		st, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := st.Close(); err != nil {
				t.Error(err)
			}
		})
		r := newTrial(t, st)
		ops, _ := r.faults()
		for n := 1; n <= ops; n++ {
			for _, how := range []way{refused, lost} {
				if n%faultStride == 0 || random.IntN(faultStride) == 0 {
					r.failing(n, how, false)
				}
			}
		}
	})
}

func TestEveryFaultOfAModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTrial(t, memstore.New(memstore.Config{}))
		_, calls := r.faults()
		for n := range calls {
			for _, how := range []way{modelRefuses, modelBreaks, modelLate} {
				r.failing(n+1, how, true)
			}
		}
	})
}
