package plugins_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/plugins"
	"github.com/carrelhost/carrel/store"
)

// slow is a store whose reads of a version a test holds up.
type slow struct {
	store.Plugins
	reading atomic.Pointer[func()]
	reads   atomic.Int64
}

func (s *slow) Version(ctx context.Context, t carrel.TenantID, p carrel.PluginName, ref carrel.VersionRef) (store.Version, error) {
	s.reads.Add(1)
	v, err := s.Plugins.Version(ctx, t, p, ref)
	if hold := s.reading.Load(); hold != nil {
		(*hold)()
	}
	return v, err
}

func newSlowLibrary(t *testing.T, change func(*plugins.Config)) (*library, *slow) {
	t.Helper()
	s := &slow{}
	l := newLibrary(t, func(c *plugins.Config) {
		s.Plugins = c.Store
		c.Store = s
		if change != nil {
			change(c)
		}
	})
	return l, s
}

func TestWhatIsActiveIsReadOnce(t *testing.T) {
	l, s := newSlowLibrary(t, nil)
	l.upload(true, "one", "two")
	l.wantRunning(active, "two")
	before := s.reads.Load()
	for range 10 {
		l.wantRunning(active, "two")
		l.wantRunning(n(2), "two")
		l.wantRunning(digest("two"), "two")
	}
	if s.reads.Load() != before {
		t.Errorf("%d reads for what is ready", s.reads.Load()-before)
	}
}

// A reader that began before a change may return what was; it must not leave
// that behind for those who come after the change.
func TestAReaderThatAChangeOvertakes(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(l *library) error
		after  string
	}{
		"an activation":    {func(l *library) error { _, err := l.Activate(t.Context(), acme, "p", n(2)); return err }, "two"},
		"an upload":        {func(l *library) error { l.upload(true, "three"); return nil }, "three"},
		"a deactivation":   {func(l *library) error { _, err := l.Deactivate(t.Context(), acme, "p"); return err }, ""},
		"a deletion":       {func(l *library) error { _, err := l.Delete(t.Context(), acme, "p"); return err }, ""},
		"a rollback":       {func(l *library) error { _, err := l.Rollback(t.Context(), acme, "p"); return err }, "two"},
		"no change at all": {func(*library) error { return nil }, "one"},
	} {
		t.Run(name, func(t *testing.T) {
			l, s := newSlowLibrary(t, nil)
			l.upload(true, "one", "two")
			l.activate(n(1))
			reading, goOn := make(chan struct{}), make(chan struct{})
			hold := func() {
				close(reading)
				<-goOn
			}
			s.reading.Store(&hold)
			type got struct {
				plugins.Running
				err error
			}
			done := make(chan got)
			go func() {
				r, err := l.Running(t.Context(), acme, "p", active)
				done <- got{r, err}
			}()
			<-reading
			s.reading.Store(nil)
			if err := tc.change(l); err != nil {
				t.Fatal(err)
			}
			close(goOn)
			g := <-done
			if g.err != nil || g.Manifest.Version != "one" {
				t.Fatalf("the reader got %+v", g)
			}
			g.Release()
			l.wantRunning(active, tc.after)
			l.wantRunning(active, tc.after)
		})
	}
}

// However changes and readers overlap, a reader gets one of the states that
// held at some time between its start and its end.
func TestParallelReadersNeverGetWhatIsGone(t *testing.T) {
	const changes, readers = 600, 4
	l, _ := newSlowLibrary(t, nil)
	l.upload(true, "v1", "v2", "v3")
	states := []int{3} // after each change: the active version's number, 0 for none
	random := rand.New(rand.NewPCG(1, 2))
	for len(states) <= changes {
		states = append(states, random.IntN(4))
	}
	var done atomic.Int64 // changes that have returned
	var all sync.WaitGroup
	for range readers {
		all.Go(func() {
			for done.Load() < changes {
				from := done.Load()
				r, err := l.Running(t.Context(), acme, "p", active)
				to := min(done.Load()+1, changes) // the change after may have happened already
				got := 0
				if err == nil {
					got = r.Version.N
					if r.Manifest.Version != fmt.Sprintf("v%d", got) || r.Application.ID == "" {
						t.Errorf("version %d runs as %s in scope %q", got, r.Manifest.Version, r.Application.ID)
					}
					r.Release()
				} else if carrel.CodeOf(err) != abi.NotFound {
					t.Error(err)
				}
				valid := false
				for _, s := range states[from : to+1] {
					valid = valid || s == got
				}
				if !valid {
					t.Errorf("version %d runs between changes %d and %d: %v", got, from, to, states[from:to+1])
					return
				}
			}
		})
	}
	for i := 1; i <= changes; i++ {
		var err error
		if states[i] == 0 {
			_, err = l.Deactivate(t.Context(), acme, "p")
		} else {
			_, err = l.Activate(t.Context(), acme, "p", n(states[i]))
		}
		if err != nil {
			t.Fatal(err)
		}
		done.Store(int64(i))
	}
	all.Wait()
}

func TestMorePluginsThanAreKeptReady(t *testing.T) {
	l, s := newSlowLibrary(t, func(c *plugins.Config) { c.Loaded = 2 })
	names := []string{"a", "b", "c"}
	for _, name := range names {
		if _, err := l.Upload(t.Context(), plugins.Upload{Tenant: acme, Module: chatModule(name, "of "+name), Activate: true}); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		for _, name := range names {
			r, err := l.Running(t.Context(), acme, carrel.PluginName(name), active)
			if err != nil || r.Manifest.Version != "of "+name {
				t.Fatalf("got %+v, %v", r, err)
			}
			r.Release()
		}
	}
	if got := s.reads.Load(); got != 9 {
		t.Errorf("%d reads, want one for each call: the least recently used one makes room", got)
	}
}
