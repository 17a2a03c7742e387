package plugins_test

import (
	"context"
	"testing"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/plugins"
	"github.com/carrelhost/carrel/store"
)

func (l *library) activate(ref carrel.VersionRef) store.Plugin {
	l.t.Helper()
	p, err := l.Activate(l.t.Context(), acme, "p", ref)
	if err != nil {
		l.t.Fatal(err)
	}
	return p
}

func TestActivatePicksAnyVersion(t *testing.T) {
	l := newLibrary(t, nil)
	l.upload(true, "one", "two", "three")
	for _, to := range []struct {
		ref     carrel.VersionRef
		version string
	}{{n(1), "one"}, {digest("two"), "two"}, {n(3), "three"}, {active, "three"}, {digest("three"), "three"}} {
		if p := l.activate(to.ref); p.Active != digest(to.version).Digest {
			t.Errorf("got %+v", p)
		}
		l.wantRunning(active, to.version)
	}
	for _, none := range []carrel.VersionRef{n(4), digest("four")} {
		_, err := l.Activate(t.Context(), acme, "p", none)
		wantCode(t, err, abi.NotFound)
	}
	l.wantRunning(active, "three")
	for _, of := range []struct {
		t carrel.TenantID
		p carrel.PluginName
	}{{other, "p"}, {acme, "q"}} {
		_, err := l.Activate(t.Context(), of.t, of.p, n(1))
		wantCode(t, err, abi.NotFound)
	}
	if _, err := l.Deactivate(t.Context(), acme, "p"); err != nil {
		t.Fatal(err)
	}
	_, err := l.Activate(t.Context(), acme, "p", active) // there is no active one to pick
	wantCode(t, err, abi.NotFound)
}

func TestRollback(t *testing.T) {
	l := newLibrary(t, nil)
	back := func(version string) {
		t.Helper()
		p, err := l.Rollback(t.Context(), acme, "p")
		if version == "" {
			wantCode(t, err, abi.BadRequest)
			return
		}
		if err != nil || p.Active != digest(version).Digest {
			t.Fatalf("got %+v, %v", p, err)
		}
		l.wantRunning(active, version)
	}
	_, err := l.Rollback(t.Context(), acme, "p")
	wantCode(t, err, abi.NotFound)
	l.upload(true, "one")
	back("") // nothing was active before
	l.upload(true, "two")
	back("one")
	back("two") // two rollbacks end where they began
	back("one")
	l.activate(n(1)) // what is active already changes nothing
	back("two")
	if err := l.DeleteVersion(t.Context(), acme, "p", n(1)); err != nil {
		t.Fatal(err)
	}
	back("") // it was deleted
	l.wantRunning(active, "two")
	if _, err := l.Deactivate(t.Context(), acme, "p"); err != nil {
		t.Fatal(err)
	}
	back("two") // what was active before the plugin was deactivated
	_, err = l.Rollback(t.Context(), other, "p")
	wantCode(t, err, abi.NotFound)
}

func TestDeleteVersion(t *testing.T) {
	l := newLibrary(t, nil)
	l.upload(true, "one", "two", "three")
	for _, ref := range []carrel.VersionRef{active, n(3), digest("three")} {
		wantCode(t, l.DeleteVersion(t.Context(), acme, "p", ref), abi.BadRequest)
		l.wantRunning(active, "three")
	}
	for _, ref := range []carrel.VersionRef{n(4), digest("four")} {
		wantCode(t, l.DeleteVersion(t.Context(), acme, "p", ref), abi.NotFound)
	}
	wantCode(t, l.DeleteVersion(t.Context(), other, "p", n(1)), abi.NotFound)
	l.wantRunning(n(1), "one")
	if err := l.DeleteVersion(t.Context(), acme, "p", n(1)); err != nil {
		t.Fatal(err)
	}
	l.wantRunning(n(1), "")
	l.wantRunning(digest("one"), "")
	wantCode(t, l.DeleteVersion(t.Context(), acme, "p", n(1)), abi.NotFound)
	_, err := l.Module(t.Context(), acme, "p", digest("one").Digest)
	wantCode(t, err, abi.NotFound)
	list, err := l.ListVersions(t.Context(), acme, "p", 0, 10)
	if err != nil || len(list) != 2 || list[0].N != 3 || list[1].N != 2 {
		t.Errorf("left are %+v, %v", list, err)
	}
	if _, err := l.Deactivate(t.Context(), acme, "p"); err != nil {
		t.Fatal(err)
	}
	if err := l.DeleteVersion(t.Context(), acme, "p", n(3)); err != nil { // active no longer
		t.Error(err)
	}
	if up := l.upload(false, "one"); !up.Created || up.Version.N != 4 {
		t.Errorf("the deleted version came back as %+v", up.Version)
	}
}

func TestTheApplicationScopeLivesFromActivationToDeactivation(t *testing.T) {
	l := newLibrary(t, nil)
	first := l.upload(true, "one").Plugin.Scope
	if first == "" {
		t.Fatal("the activation opened no scope")
	}
	if second := l.upload(true, "two").Plugin.Scope; second != first {
		t.Errorf("another version has the scope %s, not %s", second, first)
	}
	if p, err := l.Rollback(t.Context(), acme, "p"); err != nil || p.Scope != first {
		t.Errorf("the rollback has the scope %s, %v", p.Scope, err)
	}
	if r := l.wantRunning(active, "one"); r.Application.ID != first {
		t.Errorf("what runs has the scope %s", r.Application.ID)
	}
	if _, err := l.Deactivate(t.Context(), acme, "p"); err != nil || l.scopes.last() != first {
		t.Errorf("the deactivation closed %v, %v", l.scopes.closed, err)
	}
	if _, err := l.Deactivate(t.Context(), acme, "p"); err != nil || l.scopes.last() != "" { // it stays so
		t.Errorf("the second deactivation closed %v, %v", l.scopes.closed, err)
	}
	if p, err := l.Plugin(t.Context(), acme, "p"); err != nil || p.Scope != "" || p.Active != (carrel.Digest{}) {
		t.Errorf("got %+v, %v", p, err)
	}
	now := l.activate(n(1)).Scope
	if now == "" || now == first {
		t.Errorf("the next activation has the scope %q", now)
	}
	if r := l.wantRunning(active, "one"); r.Application.ID != now {
		t.Errorf("what runs has the scope %s", r.Application.ID)
	}
	if _, err := l.Delete(t.Context(), acme, "p"); err != nil || l.scopes.last() != now {
		t.Errorf("the deletion closed %v, %v", l.scopes.closed, err)
	}
	up := l.upload(true, "one")
	if !up.Created || up.Version.N != 1 || up.Plugin.Scope == now || up.Plugin.Scope == first {
		t.Errorf("the new plugin is %+v", up)
	}
}

// A client that goes away must not leave a plugin that is off with a scope
// that nobody closes.
func TestAChangeIsDoneToItsEndWhenItsClientHasGone(t *testing.T) {
	gone, leave := context.WithCancel(t.Context())
	leave()
	for name, end := range map[string]func(l *library) error{
		"deactivation": func(l *library) error { _, err := l.Deactivate(gone, acme, "p"); return err },
		"deletion":     func(l *library) error { _, err := l.Delete(gone, acme, "p"); return err },
	} {
		t.Run(name, func(t *testing.T) {
			l := newLibrary(t, nil)
			open := l.upload(true, "one").Plugin.Scope
			if err := end(l); err != nil || l.scopes.last() != open {
				t.Errorf("it closed %v, %v; want %s", l.scopes.closed, err, open)
			}
			if _, err := l.Running(t.Context(), acme, "p", active); carrel.CodeOf(err) != abi.NotFound {
				t.Errorf("it still runs: %v", err)
			}
		})
	}
}

func TestTenantsDoNotSeeEachOthersPlugins(t *testing.T) {
	l := newLibrary(t, nil)
	l.upload(true, "one", "two")
	theirs, err := l.Upload(t.Context(), plugins.Upload{Tenant: other, Module: chatModule("p", "theirs"), Activate: true})
	if err != nil || theirs.Version.N != 1 {
		t.Fatalf("got %+v, %v", theirs, err)
	}
	_, err = l.Module(t.Context(), other, "p", digest("one").Digest)
	wantCode(t, err, abi.NotFound)
	_, err = l.Version(t.Context(), other, "p", digest("one"))
	wantCode(t, err, abi.NotFound)
	_, err = l.ListVersions(t.Context(), other, "q", 0, 10)
	wantCode(t, err, abi.NotFound)
	if _, err := l.Delete(t.Context(), other, "p"); err != nil {
		t.Fatal(err)
	}
	l.wantRunning(active, "two")
	for name, end := range map[string]func() error{
		"delete":     func() error { _, err := l.Delete(t.Context(), other, "p"); return err },
		"deactivate": func() error { _, err := l.Deactivate(t.Context(), other, "p"); return err },
		"plugin":     func() error { _, err := l.Plugin(t.Context(), other, "p"); return err },
	} {
		if err := end(); carrel.CodeOf(err) != abi.NotFound {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if list, err := l.List(t.Context(), acme, "", 10); err != nil || len(list) != 1 || list[0].Name != "p" || list[0].Versions != 2 {
		t.Errorf("got %+v, %v", list, err)
	}
}
