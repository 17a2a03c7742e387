package storetest

import (
	"context"
	"testing"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/store"
)

var activationCases = []testCase{
	{"the first activation opens the given application scope", activateFirst},
	{"activating another version keeps the scope and remembers the one before", activateAnother},
	{"activating the active version changes nothing", activateSame},
	{"deactivation leaves an orphaned scope and remembers what was active", deactivate},
	{"an activation after a deactivation opens a new scope", reactivate},
	{"active plugins of all tenants are listed in order, page by page", activePages},
}

func activateFirst(t *testing.T, s store.Store) {
	ctx := context.Background()
	createTenants(t, s, acme)
	v := put(t, s, acme, chat, "one")
	p := must(s.Activate(ctx, acme, chat, v.Digest, applicationScope(acme, chat, "app")))(t)
	want := store.Plugin{Tenant: acme, Name: chat, Active: v.Digest, ActiveN: 1, Scope: "app", Versions: 1, CreatedAt: storedNoon}
	wantSame(t, "plugin", p, want)
	wantSame(t, "plugin", must(s.Plugin(ctx, acme, chat))(t), want)
	wantSame(t, "active version", must(s.Version(ctx, acme, chat, carrel.VersionRef{}))(t), v)
	open := applicationScope(acme, chat, "app")
	open.OpenedAt = storedNoon
	wantSame(t, "open scopes", must(s.ListScopes(ctx, carrel.ScopeApplication, "", 10))(t), []store.ScopeInstance{open})
	if orphans := must(s.Orphans(ctx, "another node", 10))(t); len(orphans) != 0 {
		t.Errorf("the scope of an active plugin is an orphan: %v", orphans)
	}
}

func activateAnother(t *testing.T, s store.Store) {
	ctx := context.Background()
	createTenants(t, s, acme)
	one, two := put(t, s, acme, chat, "one"), put(t, s, acme, chat, "two")
	must(s.Activate(ctx, acme, chat, one.Digest, applicationScope(acme, chat, "app")))(t)
	p := must(s.Activate(ctx, acme, chat, two.Digest, applicationScope(acme, chat, "unused")))(t)
	if p.Active != two.Digest || p.ActiveN != 2 || p.Previous != one.Digest || p.Scope != "app" {
		t.Errorf("plugin is %+v", p)
	}
	p = must(s.Activate(ctx, acme, chat, one.Digest, applicationScope(acme, chat, "unused")))(t)
	if p.Active != one.Digest || p.ActiveN != 1 || p.Previous != two.Digest || p.Scope != "app" {
		t.Errorf("after going back the plugin is %+v", p)
	}
	wantSame(t, "plugin", must(s.Plugin(ctx, acme, chat))(t), p)
	wantSame(t, "listed plugins", must(s.ListPlugins(ctx, acme, "", 10))(t), []store.Plugin{p})
	wantSame(t, "active plugins", must(s.ActivePlugins(ctx, "", "", 10))(t), []store.Plugin{p})
	wantSame(t, "plugin before the second activation of what is active",
		must(s.Activate(ctx, acme, chat, one.Digest, applicationScope(acme, chat, "unused")))(t), p)
	open := must(s.ListScopes(ctx, carrel.ScopeApplication, "", 10))(t)
	if len(open) != 1 || open[0].ID != "app" {
		t.Errorf("open scopes are %v", open)
	}
}

func activateSame(t *testing.T, s store.Store) {
	ctx := context.Background()
	createTenants(t, s, acme)
	one, two := put(t, s, acme, chat, "one"), put(t, s, acme, chat, "two")
	must(s.Activate(ctx, acme, chat, one.Digest, applicationScope(acme, chat, "app")))(t)
	want := must(s.Activate(ctx, acme, chat, two.Digest, applicationScope(acme, chat, "unused")))(t)
	got := must(s.Activate(ctx, acme, chat, two.Digest, applicationScope(acme, chat, "unused")))(t)
	wantSame(t, "plugin", got, want)
}

func deactivate(t *testing.T, s store.Store) {
	ctx := context.Background()
	createTenants(t, s, acme)
	app := install(t, s, acme, chat, "app")
	k := keyOf(acme, "1")
	say(t, s, app, k, "hello", "hi")
	was := must(s.Plugin(ctx, acme, chat))(t)
	wantSame(t, "plugin before", must(s.Deactivate(ctx, acme, chat))(t), was)
	now := must(s.Plugin(ctx, acme, chat))(t)
	if now.Active != (carrel.Digest{}) || now.ActiveN != 0 || was.ActiveN != 1 || now.Previous != was.Active || now.Scope != "" {
		t.Errorf("plugin is %+v", now)
	}
	_, err := s.Version(ctx, acme, chat, carrel.VersionRef{})
	wantCode(t, err, abi.NotFound)
	// Work under way may still touch until the scope is closed.
	touch(t, s, app, k)
	orphans := must(s.Orphans(ctx, node, 10))(t)
	if len(orphans) != 1 || orphans[0].ID != app.ID {
		t.Errorf("orphans are %v", orphans)
	}
	wantSame(t, "second deactivation", must(s.Deactivate(ctx, acme, chat))(t), now)
	wantSame(t, "plugin", must(s.Plugin(ctx, acme, chat))(t), now)
	closeScope(t, s, app.ID)
	wantGone(t, s, k)
	if orphans := must(s.Orphans(ctx, node, 10))(t); len(orphans) != 0 {
		t.Errorf("orphans are left: %v", orphans)
	}
}

func reactivate(t *testing.T, s store.Store) {
	ctx := context.Background()
	createTenants(t, s, acme)
	old := install(t, s, acme, chat, "app-1")
	was := must(s.Deactivate(ctx, acme, chat))(t)
	p := must(s.Activate(ctx, acme, chat, was.Active, applicationScope(acme, chat, "app-2")))(t)
	if p.Scope != "app-2" {
		t.Errorf("the scope is %q", p.Scope)
	}
	closeScope(t, s, old.ID)
	if p := must(s.Plugin(ctx, acme, chat))(t); p.Scope != "app-2" {
		t.Errorf("closing the old scope left scope %q", p.Scope)
	}
	// A scope that closes while its plugin is active is taken from it.
	closeScope(t, s, "app-2")
	if p := must(s.Plugin(ctx, acme, chat))(t); p.Scope != "" || p.Active != was.Active {
		t.Errorf("closing the open scope left %+v", p)
	}
	p = must(s.Activate(ctx, acme, chat, was.Active, applicationScope(acme, chat, "app-3")))(t)
	if p.Scope != "app-3" {
		t.Errorf("the scope is %q", p.Scope)
	}
}

func activePages(t *testing.T, s store.Store) {
	ctx := context.Background()
	createTenants(t, s, globex, acme)
	install(t, s, globex, "a", "s1")
	install(t, s, acme, "b", "s2")
	install(t, s, acme, "d", "s3")
	install(t, s, globex, "c", "s4")
	put(t, s, acme, "c", "not activated")
	list := walk(t, 2, func(last *store.Plugin) ([]store.Plugin, error) {
		return s.ActivePlugins(ctx,
			orElse(last, "", func(p store.Plugin) carrel.TenantID { return p.Tenant }),
			orElse(last, "", func(p store.Plugin) carrel.PluginName { return p.Name }), 2)
	})
	var names []string
	for _, p := range list {
		names = append(names, string(p.Tenant)+" "+string(p.Name))
	}
	wantSame(t, "active plugins", names, []string{"acme b", "acme d", "globex a", "globex c"})
	wantSame(t, "first", list[0], must(s.Plugin(ctx, acme, "b"))(t))
}
