package scope_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/scope"
	"github.com/carrelhost/carrel/store"
)

func closeApplications(c *scope.Config) { c.CloseApplications = true }

func wantRecovered(t *testing.T, r *scope.Registry, want scope.Recovered) {
	t.Helper()
	got, err := r.Recover(t.Context())
	noError(t, err)
	if got != want {
		t.Errorf("recovered %+v, want %+v", got, want)
	}
}

// applicationOf returns the application scope that a plugin has now.
func applicationOf(t *testing.T, d *disk, p carrel.PluginName) carrel.ScopeID {
	t.Helper()
	now, err := d.Plugin(t.Context(), acme, p)
	noError(t, err)
	return now.Scope
}

// Scenario 15: the requests of a process that was killed end at the next start.
func TestRecoverClosesTheRequestsOfAnotherRun(t *testing.T) {
	d := newDisk(t)
	dead := registry(t, d, "dead", nil)
	app := activate(t, d, dead, chat)
	q := dead.Begin(acme, "req_1")
	chatOnce(t, d, q, request("existed"), 1)
	noError(t, q.Touch(t.Context(), request("only touched")))
	chatOnce(t, d, q, application(app, "kept"), 1)
	chatOnce(t, d, dead.Begin(acme, "req_2"), request("b"), 1)

	alive := registry(t, d, "alive", nil)
	mine := alive.Begin(acme, "req_3")
	chatOnce(t, d, mine, request("mine"), 1)
	wantRecovered(t, alive, scope.Recovered{Scopes: 2, Histories: 3})
	if left := histories(t, d); !maps.Equal(left, map[carrel.MemoryID]int64{"kept": 2, "mine": 2}) {
		t.Errorf("left are %v", left)
	}
	if applicationOf(t, d, chat) != app.ID {
		t.Error("the application scope did not survive the restart")
	}
	wantRecovered(t, alive, scope.Recovered{})
	mine.Close(t.Context())
}

func TestRecoverClosesWhatDeactivatedPluginsLeft(t *testing.T) {
	for name, end := range map[string]func(d *disk) error{
		"deactivated": func(d *disk) error { _, err := d.Deactivate(t.Context(), acme, chat); return err },
		"deleted":     func(d *disk) error { _, err := d.DeletePlugin(t.Context(), acme, chat); return err },
	} {
		t.Run("a plugin that was "+name+" before a crash", func(t *testing.T) {
			d := newDisk(t)
			dead := registry(t, d, "dead", nil)
			app := activate(t, d, dead, chat)
			chatOnce(t, d, dead.Begin(acme, "req_1"), application(app, "a"), 1)
			noError(t, end(d)) // and killed before CloseApplication
			alive := registry(t, d, "alive", nil)
			wantRecovered(t, alive, scope.Recovered{Scopes: 1, Histories: 1})
			if open(t, d, carrel.ScopeApplication) != 0 || len(histories(t, d)) != 0 {
				t.Error("something is left")
			}
			if !slices.Contains(d.written(), fmt.Sprintf("close %s plugin_removed", app.ID)) {
				t.Errorf("the reason is not plugin_removed: %v", d.written())
			}
		})
	}
}

func TestRecoverOpensMissingApplicationScopes(t *testing.T) {
	d := newDisk(t)
	dead := registry(t, d, "dead", nil)
	missing, whole, off := activate(t, d, dead, "missing"), activate(t, d, dead, "whole"), activate(t, d, dead, "off")
	dead.CloseApplication(t.Context(), missing.ID, carrel.ReasonScopeClosed)
	before, err := d.Deactivate(t.Context(), acme, "off")
	noError(t, err)
	dead.CloseApplication(t.Context(), before.Scope, carrel.ReasonPluginRemoved)

	alive := registry(t, d, "alive", nil)
	wantRecovered(t, alive, scope.Recovered{})
	now := applicationOf(t, d, "missing")
	if now == "" || now == missing.ID || applicationOf(t, d, "whole") != whole.ID || applicationOf(t, d, "off") != "" {
		t.Errorf("got %q, %q and %q", now, applicationOf(t, d, "whole"), applicationOf(t, d, "off"))
	}
	// What the new scope is for works; the old one stays closed.
	missing.ID, off.ID = now, before.Scope
	q := alive.Begin(acme, "req_1")
	chatOnce(t, d, q, application(missing, "a"), 1)
	wantCode(t, q.Touch(t.Context(), application(off, "a")), abi.ScopeClosed)
	q.Close(t.Context())
}

func TestClosingApplicationsAtShutdown(t *testing.T) {
	for name, tc := range map[string]struct {
		before, after func(*scope.Config)
		shutdown      bool
		left          int // histories at the end of the first process
		next          int // histories after the next start
		found         scope.Recovered
	}{
		"by default a restart keeps them":                         {nil, nil, true, 1, 1, scope.Recovered{}},
		"by default a crash keeps them":                           {nil, nil, false, 1, 1, scope.Recovered{}},
		"the strict mode closes them at shutdown":                 {closeApplications, closeApplications, true, 0, 0, scope.Recovered{}},
		"the strict mode closes them after a crash":               {closeApplications, closeApplications, false, 1, 0, scope.Recovered{Scopes: 2, Histories: 1}},
		"a host that became strict closes what it kept":           {nil, closeApplications, true, 1, 0, scope.Recovered{Scopes: 2, Histories: 1}},
		"a host that is strict no longer keeps what a crash left": {closeApplications, nil, false, 1, 1, scope.Recovered{}},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDisk(t)
			first := registry(t, d, "first", tc.before)
			app := activate(t, d, first, chat)
			activate(t, d, first, "another")
			q := first.Begin(acme, "req_1")
			chatOnce(t, d, q, application(app, "a"), 1)
			q.Close(t.Context())
			if tc.shutdown {
				noError(t, first.Shutdown(t.Context()))
			}
			if got := len(histories(t, d)); got != tc.left {
				t.Errorf("at its end %d histories are left, want %d", got, tc.left)
			}
			next := registry(t, d, "next", tc.after)
			wantRecovered(t, next, tc.found)
			if got := len(histories(t, d)); got != tc.next {
				t.Errorf("after the start %d histories are left, want %d", got, tc.next)
			}
			kept := applicationOf(t, d, chat) == app.ID
			if kept != (tc.next > 0) || open(t, d, carrel.ScopeApplication) != 2 {
				t.Errorf("the old application scope is kept: %v; %d are open", kept, open(t, d, carrel.ScopeApplication))
			}
		})
	}
}

// The lists that Recover and Shutdown read come in pages.
func TestRecoverOfMoreThanAPage(t *testing.T) {
	const many = 1001
	d := newDisk(t)
	dead := registry(t, d, "dead", closeApplications)
	for i := range many {
		id := fmt.Sprintf("n%04d", i)
		noError(t, dead.Begin(acme, carrel.RequestID("req_"+id)).Touch(t.Context(), request(carrel.MemoryID(id))))
		app := activate(t, d, dead, carrel.PluginName("p"+id))
		noError(t, dead.Begin(acme, "req").Touch(t.Context(), application(app, carrel.MemoryID("app_"+id))))
	}
	noError(t, dead.Shutdown(t.Context()))
	if n := open(t, d, carrel.ScopeApplication); n != 0 {
		t.Errorf("the shutdown left %d application scopes open", n)
	}
	alive := registry(t, d, "alive", nil)
	wantRecovered(t, alive, scope.Recovered{Scopes: many, Histories: many})
	if n := open(t, d, carrel.ScopeApplication); n != many || len(histories(t, d)) != 0 || open(t, d, carrel.ScopeRequest) != 0 {
		t.Errorf("%d application scopes are open; left are %d histories", n, len(histories(t, d)))
	}
}

// A Recover that the store interrupts, at whatever write, is an error, and the
// next one ends where an undisturbed one would have.
func TestRecoverThatIsInterrupted(t *testing.T) {
	for _, done := range []bool{false, true} {
		for n := 1; ; n++ {
			d := newDisk(t)
			dead := registry(t, d, "dead", nil)
			app, gone := activate(t, d, dead, chat), activate(t, d, dead, "gone")
			q := dead.Begin(acme, "req_1")
			chatOnce(t, d, q, request("a"), 1)
			chatOnce(t, d, q, application(app, "b"), 1)
			chatOnce(t, d, q, application(gone, "c"), 1)
			_, err := d.Deactivate(t.Context(), acme, "gone")
			noError(t, err)
			before := len(d.written())
			d.failNth(n, done)
			alive := registry(t, d, "alive", closeApplications)
			_, err = alive.Recover(t.Context())
			if len(d.written())-before < n { // it had no n-th write to fail
				if n < 5 {
					t.Fatalf("only %d writes: %v, %v", n-1, d.written()[before:], err)
				}
				break
			}
			if !errors.Is(err, errDisk) {
				t.Fatalf("write %d failed and Recover returned %v", n, err)
			}
			_, err = alive.Recover(t.Context())
			noError(t, err)
			if len(histories(t, d)) != 0 || open(t, d, carrel.ScopeRequest) != 0 || open(t, d, carrel.ScopeApplication) != 1 ||
				applicationOf(t, d, chat) == "" || applicationOf(t, d, chat) == app.ID {
				t.Errorf("after write %d failed the second start left %v, %v", n, histories(t, d), d.written()[before:])
			}
		}
	}
}

func TestShutdownTellsWhenItCouldNot(t *testing.T) {
	d := newDisk(t)
	r := registry(t, d, "one", closeApplications)
	app := activate(t, d, r, chat)
	d.failAll(true)
	if err := r.Shutdown(t.Context()); !errors.Is(err, errDisk) {
		t.Errorf("got %v", err)
	}
	d.failAll(false)
	wantRecovered(t, registry(t, d, "two", closeApplications), scope.Recovered{Scopes: 1})
	if applicationOf(t, d, chat) == app.ID {
		t.Error("the next start did not do what the shutdown could not")
	}
}

func TestNewReportsEveryFault(t *testing.T) {
	_, err := scope.New(scope.Config{})
	if err == nil {
		t.Fatal("want an error")
	}
	for _, want := range []string{"Store", "Node", "Log"} {
		if !strings.Contains(err.Error(), "Config."+want) {
			t.Errorf("%q does not name %s", err, want)
		}
	}
}

func TestApplicationScopesAreFresh(t *testing.T) {
	d := newDisk(t)
	r := registry(t, d, "one", func(c *scope.Config) { c.NewID = nil })
	a, b := r.NewApplication(acme, chat), r.NewApplication(acme, chat)
	if a.ID == b.ID || a.ID == "" {
		t.Errorf("got %q twice", a.ID)
	}
	b.ID = a.ID
	want := store.ScopeInstance{ID: a.ID, Tenant: acme, Scope: carrel.ScopeApplication, Plugin: chat, Node: "one", OpenedAt: noon}
	if a != want || b != want {
		t.Errorf("got %+v, want %+v", a, want)
	}
}
