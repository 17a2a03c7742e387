package plugins_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox"
	"github.com/carrelhost/carrel/host/sandbox/module"
	"github.com/carrelhost/carrel/host/sandbox/wasmtest"
	"github.com/carrelhost/carrel/plugins"
	"github.com/carrelhost/carrel/store"
)

// codeModule is a plugin of one handler, which writes the version.
func codeModule(name, version string) []byte {
	m := wasmtest.New()
	write := m.Carrel("output_write")
	m.Memory(1)
	m.Data(0, []byte(version))
	m.Method("say").Const(0).Const(int32(len(version))).Call(write)
	return module.AppendCustom(m.Bytes(), abi.ManifestSection, []byte(fmt.Sprintf(
		`{"abi":"carrel/v1","name":%q,"version":%q,"services":[{"name":"S","methods":[{"name":"say","kind":"handler","export":"say"}]}]}`, name, version)))
}

// shelf is a store that counts how often a module's code is taken from it,
// which happens once for each time that it is opened.
type shelf struct {
	store.Plugins
	opened  atomic.Int64
	opening atomic.Pointer[func()]
}

func (s *shelf) Module(ctx context.Context, t carrel.TenantID, p carrel.PluginName, d carrel.Digest) ([]byte, error) {
	s.opened.Add(1)
	if hold := s.opening.Load(); hold != nil {
		(*hold)()
	}
	return s.Plugins.Module(ctx, t, p, d)
}

func newCodeLibrary(t *testing.T, change func(*plugins.Config)) (*library, *shelf) {
	t.Helper()
	s := &shelf{}
	l := newLibrary(t, func(c *plugins.Config) {
		s.Plugins = c.Store
		c.Store = s
		if change != nil {
			change(c)
		}
	})
	for _, version := range []string{"one", "two"} {
		l.uploadCode("p", version)
	}
	return l, s
}

func (l *library) uploadCode(name, version string) {
	l.t.Helper()
	if _, err := l.Upload(l.t.Context(), plugins.Upload{Tenant: acme, Module: codeModule(name, version), Activate: true}); err != nil {
		l.t.Fatal(err)
	}
}

func (l *library) running(name carrel.PluginName, ref carrel.VersionRef) plugins.Running {
	l.t.Helper()
	r, err := l.Running(l.t.Context(), acme, name, ref)
	if err != nil {
		l.t.Fatal(err)
	}
	return r
}

// says calls the handler of a version.
func says(t *testing.T, r plugins.Running) (string, error) {
	t.Helper()
	out, err := r.Code.Call(t.Context(), sandbox.Call{Export: "say"})
	return string(out.Output), err
}

func wantSays(t *testing.T, r plugins.Running, want string) {
	t.Helper()
	if got, err := says(t, r); err != nil || got != want {
		t.Errorf("it says %q, %v, want %q", got, err, want)
	}
}

// wantClosed wants the code of a version to be closed, or not to be.
func wantClosed(t *testing.T, r plugins.Running, closed bool) {
	t.Helper()
	_, err := says(t, r)
	if want := map[bool]abi.Code{true: abi.Draining, false: abi.OK}[closed]; carrel.CodeOf(err) != want {
		t.Errorf("a call of it came to %v, want %v", err, want)
	}
}

func TestCodeRuns(t *testing.T) {
	l, _ := newCodeLibrary(t, nil)
	for ref, want := range map[carrel.VersionRef]string{
		active: "two", n(1): "one", n(2): "two", {Digest: carrel.DigestOf(codeModule("p", "one"))}: "one",
	} {
		r := l.running("p", ref)
		wantSays(t, r, want)
		if m, ok := r.Method("S", "say"); !ok || m.Spec.Export != "say" || m.Output != nil {
			t.Errorf("the method is %+v", m)
		}
		r.Release()
	}
}

func TestParallelCallsOpenTheCodeOnce(t *testing.T) {
	l, s := newCodeLibrary(t, nil)
	opening, goOn := make(chan struct{}), make(chan struct{})
	hold := sync.OnceFunc(func() {
		close(opening)
		<-goOn
	})
	s.opening.Store(&hold)
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			r, err := l.Running(t.Context(), acme, "p", active)
			if err != nil {
				t.Error(err)
				return
			}
			defer r.Release()
			wantSays(t, r, "two")
		})
	}
	<-opening // one of them opens it, and the others come meanwhile or later
	close(goOn)
	all.Wait()
	if n := s.opened.Load(); n != 1 {
		t.Errorf("the code was opened %d times", n)
	}
}

// A caller that goes away while the code is opened does not wait for it; those
// that stay get it, and nothing of it is kept for the one that left.
func TestACallerThatLeavesWhileTheCodeIsOpened(t *testing.T) {
	for name, others := range map[string]int{"nobody else waits": 0, "others wait": 3} {
		t.Run(name, func(t *testing.T) {
			l, s := newCodeLibrary(t, nil)
			opening, goOn := make(chan struct{}), make(chan struct{})
			hold := sync.OnceFunc(func() {
				close(opening)
				<-goOn
			})
			s.opening.Store(&hold)
			ctx, leave := context.WithCancel(t.Context())
			left := make(chan error)
			go func() {
				_, err := l.Running(ctx, acme, "p", active)
				left <- err
			}()
			<-opening
			var all sync.WaitGroup
			for range others {
				all.Go(func() {
					r, err := l.Running(t.Context(), acme, "p", active)
					if err != nil {
						t.Error(err)
						return
					}
					defer r.Release()
					wantSays(t, r, "two")
				})
			}
			leave()
			wantCode(t, <-left, abi.Canceled)
			close(goOn)
			all.Wait()
			r := l.running("p", active)
			wantSays(t, r, "two")
			if n := s.opened.Load(); n != 1 {
				t.Errorf("the code was opened %d times", n)
			}
			l.Close() // and whoever left lets go of it
			wantClosed(t, r, false)
			r.Release()
			wantClosed(t, r, true)
		})
	}
}

// A fault of the store's own code is the caller's error, not the host's end.
func TestAPanicWhileCodeIsOpened(t *testing.T) {
	l, s := newCodeLibrary(t, nil)
	fault := func() { panic("a fault") }
	s.opening.Store(&fault)
	_, err := l.Running(t.Context(), acme, "p", active)
	wantCode(t, err, abi.Internal)
	s.opening.Store(nil)
	r := l.running("p", active)
	defer r.Release()
	wantSays(t, r, "two")
}

func TestCodeClosesWithItsLastUser(t *testing.T) {
	for name, tc := range map[string]struct {
		end  func(l *library) error
		ref  carrel.VersionRef
		says string
	}{
		"after the plugin was deleted":  {func(l *library) error { _, err := l.Delete(t.Context(), acme, "p"); return err }, active, "two"},
		"after the version was deleted": {func(l *library) error { return l.DeleteVersion(t.Context(), acme, "p", n(1)) }, n(1), "one"},
		"after others took its place": {func(l *library) error {
			for _, name := range []string{"a", "b"} {
				l.uploadCode(name, "v")
				l.running(carrel.PluginName(name), active).Release()
			}
			return nil
		}, active, "two"},
		"after the catalog closed": {func(l *library) error { l.Close(); return nil }, active, "two"},
	} {
		t.Run(name, func(t *testing.T) {
			l, _ := newCodeLibrary(t, func(c *plugins.Config) { c.Loaded = 2 })
			first, second := l.running("p", tc.ref), l.running("p", tc.ref)
			if first.Loaded != second.Loaded {
				t.Fatal("two users have two codes")
			}
			if err := tc.end(l); err != nil {
				t.Fatal(err)
			}
			wantSays(t, first, tc.says)
			first.Release()
			wantClosed(t, second, false)
			second.Release()
			wantClosed(t, second, true)
		})
	}
}

// What no call uses closes at once.
func TestCodeThatNobodyUses(t *testing.T) {
	l, s := newCodeLibrary(t, nil)
	r := l.running("p", n(1))
	r.Release()
	wantClosed(t, r, false) // it is kept ready
	if err := l.DeleteVersion(t.Context(), acme, "p", n(1)); err != nil {
		t.Fatal(err)
	}
	wantClosed(t, r, true)
	two := l.running("p", active)
	two.Release()
	if _, err := l.Deactivate(t.Context(), acme, "p"); err != nil {
		t.Fatal(err)
	}
	wantClosed(t, two, false) // it may be activated again
	if _, err := l.Rollback(t.Context(), acme, "p"); err != nil {
		t.Fatal(err)
	}
	again := l.running("p", active)
	again.Release()
	if again.Loaded != two.Loaded || s.opened.Load() != 2 {
		t.Errorf("it was opened again: %d", s.opened.Load())
	}
}

// A version that is deleted while a call has it loaded is not there for the
// next one, by number or by digest.
func TestADeletedVersionThatIsLoaded(t *testing.T) {
	l, _ := newCodeLibrary(t, nil)
	digest := carrel.VersionRef{Digest: carrel.DigestOf(codeModule("p", "one"))}
	r := l.running("p", n(1))
	defer r.Release()
	if err := l.DeleteVersion(t.Context(), acme, "p", digest); err != nil {
		t.Fatal(err)
	}
	for _, ref := range []carrel.VersionRef{n(1), digest} {
		_, err := l.Running(t.Context(), acme, "p", ref)
		wantCode(t, err, abi.NotFound)
	}
	wantSays(t, r, "one") // the call ends on the version that it began with
}

// A version that is deleted while it is loaded runs for the call that loads
// it, and is kept for no other.
func TestAVersionThatIsDeletedWhileItIsLoaded(t *testing.T) {
	for name, end := range map[string]func(l *library) error{
		"the version": func(l *library) error { return l.DeleteVersion(t.Context(), acme, "p", n(1)) },
		"the plugin":  func(l *library) error { _, err := l.Delete(t.Context(), acme, "p"); return err },
	} {
		t.Run(name, func(t *testing.T) {
			l, s := newCodeLibrary(t, nil)
			read, goOn := make(chan struct{}), make(chan struct{})
			taken := &late{Plugins: s.Plugins, read: read, goOn: goOn}
			s.Plugins = taken
			type got struct {
				plugins.Running
				err error
			}
			done := make(chan got)
			go func() {
				r, err := l.Running(t.Context(), acme, "p", n(1))
				done <- got{r, err}
			}()
			<-read
			if err := end(l); err != nil {
				t.Fatal(err)
			}
			close(goOn)
			g := <-done
			if g.err != nil {
				t.Fatal(g.err)
			}
			wantSays(t, g.Running, "one")
			g.Release()
			wantClosed(t, g.Running, true)
			_, err := l.Running(t.Context(), acme, "p", n(1))
			wantCode(t, err, abi.NotFound)
		})
	}
}

// late is a store that holds a module back once it has read it.
type late struct {
	store.Plugins
	read, goOn chan struct{}
	once       sync.Once
}

func (s *late) Module(ctx context.Context, t carrel.TenantID, p carrel.PluginName, d carrel.Digest) ([]byte, error) {
	b, err := s.Plugins.Module(ctx, t, p, d)
	s.once.Do(func() {
		close(s.read)
		<-s.goOn
	})
	return b, err
}

// However calls, activations and deletions overlap, nobody's code closes
// under it.
func TestCodeNeverClosesUnderACall(t *testing.T) {
	l, _ := newCodeLibrary(t, func(c *plugins.Config) { c.Loaded = 1 })
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			// The last change leaves a version active, so each gets to call one.
			for round, called := 0, 0; round < 40 || called == 0; round++ {
				r, err := l.Running(t.Context(), acme, "p", []carrel.VersionRef{active, n(1), n(2)}[(i+round)%3])
				if carrel.CodeOf(err) == abi.NotFound {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				wantSays(t, r, r.Manifest.Version)
				called++
				r.Release()
			}
		})
	}
	all.Go(func() {
		for range 10 {
			for _, change := range []func() error{
				func() error { _, err := l.Activate(t.Context(), acme, "p", n(1)); return err },
				func() error { _, err := l.Deactivate(t.Context(), acme, "p"); return err },
				func() error { _, err := l.Activate(t.Context(), acme, "p", n(2)); return err },
			} {
				if err := change(); err != nil {
					t.Error(err)
				}
			}
		}
	})
	all.Wait()
}
