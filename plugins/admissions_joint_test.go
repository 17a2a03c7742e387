package plugins_test

import (
	"context"
	"testing"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/plugins"
	"github.com/carrelhost/carrel/store"
)

// stopped is a store that keeps a version when the test lets it.
type stopped struct {
	store.Plugins
	began chan putting
}

// putting is a version that arrived at a stopped store.
type putting struct {
	by  string       // in whose context, see as
	let chan<- error // nil keeps it, an error is what comes of it
}

type byKey struct{}

// as returns a context by which a stopped store knows who uses it.
func as(ctx context.Context, who string) context.Context { return context.WithValue(ctx, byKey{}, who) }

func (s *stopped) PutVersion(ctx context.Context, v store.Version, wasm []byte, most store.PluginLimits) (store.Version, bool, error) {
	by, _ := ctx.Value(byKey{}).(string)
	let := make(chan error, 1)
	s.began <- putting{by, let}
	select {
	case err := <-let:
		if err != nil {
			return store.Version{}, false, err
		}
		return s.Plugins.PutVersion(ctx, v, wasm, most)
	case <-ctx.Done():
		return store.Version{}, false, ctx.Err()
	}
}

// newStopped returns a library whose admissions and whose store the test lets
// go on.
func newStopped(t *testing.T) (*library, *gates, *stopped) {
	t.Helper()
	g, s := &gates{}, &stopped{began: make(chan putting)}
	return newLibrary(t, stopping(g, newClock(), func(c *plugins.Config) {
		s.Plugins = c.Store
		c.Store = s
	})), g, s
}

func TestWhatTwoSubmissionsOfAModuleComeTo(t *testing.T) {
	full := carrel.FailLimit("test", abi.QuotaExceeded, "versions", "no room")
	for name, tc := range map[string]struct {
		dry     bool  // the first is a dry run
		first   error // what it comes to, if it is none
		second  error // what the upload that ends after it comes to
		leaves  bool  // or it leaves
		state   plugins.State
		request string // that was refused
	}{
		"a dry run that ends first does not end an upload":          {dry: true, state: plugins.StateStored},
		"an upload that is refused first does not end another":      {first: full, state: plugins.StateStored},
		"a dry run does not hide that an upload was refused":        {dry: true, second: full, state: plugins.StateRefused, request: "second"},
		"of two uploads that are refused the first is told":         {first: full, second: full, state: plugins.StateRefused, request: "first"},
		"an upload that leaves does not hide what a dry run found":  {dry: true, leaves: true, state: plugins.StateChecked},
		"an upload that leaves does not hide that another's failed": {first: full, leaves: true, state: plugins.StateRefused, request: "first"},
	} {
		t.Run(name, func(t *testing.T) {
			l, g, s := newStopped(t)
			wasm := chatModule("p", "1")
			first := l.submit(as(t.Context(), "first"), plugins.Upload{Tenant: acme, Module: wasm, DryRun: tc.dry, Request: "first"})
			c := <-g.began
			ctx, leave := context.WithCancel(as(t.Context(), "second"))
			defer leave()
			second := l.submit(ctx, plugins.Upload{Tenant: acme, Module: wasm, Request: "second"})
			c.let <- nil
			lets := map[string]chan<- error{}
			for _, dry := range []bool{tc.dry, false} {
				if !dry {
					p := <-s.began
					lets[p.by] = p.let
				}
			}
			if !tc.dry {
				lets["first"] <- tc.first
			}
			if end := <-first; carrel.CodeOf(end.err) != carrel.CodeOf(tc.first) {
				t.Fatal(end.err)
			}
			if p := l.progress(acme, wasm); p.State.Ended() || p.Refused != nil || p.Request != "" {
				t.Errorf("while the second goes on it is %+v", p)
			}
			if tc.leaves {
				leave()
			} else {
				lets["second"] <- tc.second
			}
			<-second
			p := l.progress(acme, wasm)
			if p.State != tc.state || (p.Refused != nil) != (tc.request != "") || p.Request != tc.request || (p.N == 1) != (tc.state == plugins.StateStored) {
				t.Errorf("at its end it is %+v", p)
			}
		})
	}
}

// Who finds a version by its digest finds it whatever happened to other
// submissions of it, but for an upload that waits to hear that it was refused.
func TestAVersionIsFoundAfterOtherSubmissionsOfIt(t *testing.T) {
	for name, tc := range map[string]struct {
		again plugins.Upload
		let   error // of the admission
		leave bool
		state plugins.State
	}{
		"a dry run":                      {again: plugins.Upload{DryRun: true}, state: plugins.StateActive},
		"a dry run that is refused":      {again: plugins.Upload{DryRun: true}, let: carrel.Fail("test", abi.InvalidModule, "no"), state: plugins.StateActive},
		"an upload whose client leaves":  {leave: true, state: plugins.StateActive},
		"an upload that is refused":      {let: carrel.Fail("test", abi.InvalidManifest, "no"), state: plugins.StateRefused},
		"an upload without a difference": {state: plugins.StateActive},
	} {
		t.Run(name, func(t *testing.T) {
			var g gates
			now := newClock()
			l := newLibrary(t, stopping(&g, now, nil))
			wasm := chatModule("p", "1")
			done := l.submit(t.Context(), plugins.Upload{Tenant: acme, Module: wasm, Activate: true})
			(<-g.began).let <- nil
			if end := <-done; end.err != nil {
				t.Fatal(end.err)
			}
			tc.again.Tenant, tc.again.Module = acme, wasm
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			done = l.submit(ctx, tc.again)
			c := <-g.began
			if p := l.progress(acme, wasm); p.State != "linting" {
				t.Errorf("while it goes on it is %+v", p)
			}
			if tc.leave {
				leave()
			} else {
				c.let <- tc.let
			}
			<-done
			if p := l.progress(acme, wasm); p.State != tc.state || (p.Refused != nil) != (tc.state == plugins.StateRefused) || (p.N == 1) != (tc.state == plugins.StateActive) {
				t.Errorf("then it is %+v", p)
			}
			now.forward(time.Hour)
			if p := l.progress(acme, wasm); p.State != plugins.StateActive || p.Plugin != "p" || p.N != 1 || p.Refused != nil {
				t.Errorf("an hour later it is %+v", p)
			}
		})
	}
}
