package storetest

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/store"
)

var pluginCases = []testCase{
	{"a version comes back whole, by digest and by number", versionFound},
	{"the same module is stored once", versionOnce},
	{"a version is found by its digest alone, in its tenant and nowhere else", versionByDigest},
	{"a version's number is never used again", versionNumbers},
	{"a version of a missing tenant is not found", versionOfMissingTenant},
	{"past a limit nothing is stored and the limit is named", pluginLimits},
	{"versions are listed newest first, page by page, without their manifests", versionPages},
	{"plugins are listed in order of name, page by page", pluginPages},
	{"what does not exist is not found", pluginMissing},
	{"plugins of equal names in two tenants are apart", pluginTenants},
	{"an active version cannot be deleted, another can", versionDeleted},
	{"a deleted plugin is gone with its versions", pluginDeleted},
	{"bytes that a caller changes later are not the store's", pluginCopies},
}

func versionFound(t *testing.T, s store.Store) {
	createTenants(t, s, acme)
	module := string(bytes.Repeat([]byte{0, 0xff, 'x'}, 100_000))
	want := versionOf(acme, chat, module)
	want.Manifest = []byte(`{}`)
	got, created, err := s.PutVersion(context.Background(), want, []byte(module), roomy)
	noError(t, err)
	want.N, want.Bytes, want.CreatedAt = 1, int64(len(module)), storedNoon
	wantSame(t, "stored version", got, want)
	if !created {
		t.Error("created is false")
	}
	for _, ref := range []carrel.VersionRef{{Digest: want.Digest}, {N: 1}} {
		wantSame(t, "version", must(s.Version(context.Background(), acme, chat, ref))(t), want)
	}
	if !bytes.Equal(must(s.Module(context.Background(), acme, chat, want.Digest))(t), []byte(module)) {
		t.Error("the module's bytes differ")
	}
	wantSame(t, "plugin", must(s.Plugin(context.Background(), acme, chat))(t),
		store.Plugin{Tenant: acme, Name: chat, Versions: 1, CreatedAt: storedNoon})
}

func versionOnce(t *testing.T, s store.Store) {
	createTenants(t, s, acme)
	first := put(t, s, acme, chat, "one")
	again := versionOf(acme, chat, "one")
	again.Manifest = []byte(`"other"`)
	// The limits are reached, but this adds nothing.
	got, created, err := s.PutVersion(context.Background(), again, []byte("one"), store.PluginLimits{Plugins: 1, Versions: 1})
	noError(t, err)
	if created {
		t.Error("created is true")
	}
	wantSame(t, "version", got, first)
}

func versionByDigest(t *testing.T, s store.Store) {
	ctx := context.Background()
	createTenants(t, s, acme, globex)
	put(t, s, acme, "a", "one")
	put(t, s, acme, "z", "two")
	put(t, s, globex, chat, "theirs")
	want := put(t, s, acme, chat, "wanted")
	want.Manifest, want.Report = nil, nil
	wantSame(t, "version", must(s.FindVersion(ctx, acme, want.Digest))(t), want)
	for tenant, module := range map[carrel.TenantID]string{acme: "theirs", globex: "wanted", "nobody": "one"} {
		_, err := s.FindVersion(ctx, tenant, carrel.DigestOf([]byte(module)))
		wantCode(t, err, abi.NotFound)
	}
	noError(t, s.DeleteVersion(ctx, acme, chat, want.Digest))
	_, err := s.FindVersion(ctx, acme, want.Digest)
	wantCode(t, err, abi.NotFound)
}

func versionNumbers(t *testing.T, s store.Store) {
	createTenants(t, s, acme)
	for i, module := range []string{"one", "two"} {
		if v := put(t, s, acme, chat, module); v.N != i+1 {
			t.Errorf("version %q has number %d", module, v.N)
		}
	}
	for _, module := range []string{"one", "two"} {
		noError(t, s.DeleteVersion(context.Background(), acme, chat, carrel.DigestOf([]byte(module))))
	}
	if v := put(t, s, acme, chat, "two"); v.N != 3 {
		t.Errorf("after two deleted versions the next has number %d", v.N)
	}
	must(s.DeletePlugin(context.Background(), acme, chat))(t)
	if v := put(t, s, acme, chat, "one"); v.N != 1 {
		t.Errorf("a new plugin's first version has number %d", v.N)
	}
}

func versionOfMissingTenant(t *testing.T, s store.Store) {
	_, _, err := s.PutVersion(context.Background(), versionOf(acme, chat, "one"), []byte("one"), roomy)
	wantCode(t, err, abi.NotFound)
}

func pluginLimits(t *testing.T, s store.Store) {
	createTenants(t, s, acme, globex)
	tight := store.PluginLimits{Plugins: 1, Versions: 2}
	refused := func(p carrel.PluginName, module string, most store.PluginLimits, limit string) {
		t.Helper()
		_, _, err := s.PutVersion(context.Background(), versionOf(acme, p, module), []byte(module), most)
		wantCode(t, err, abi.QuotaExceeded)
		if e, ok := errors.AsType[*carrel.Error](err); ok && e.Limit != limit {
			t.Errorf("the limit is %q, want %q", e.Limit, limit)
		}
	}
	refused(chat, "one", store.PluginLimits{Plugins: 1}, "versions")
	_, err := s.Plugin(context.Background(), acme, chat)
	wantCode(t, err, abi.NotFound)

	put(t, s, acme, chat, "one")
	put(t, s, acme, chat, "two")
	refused(chat, "three", tight, "versions")
	refused("other", "one", tight, "plugins")
	if p := must(s.Plugin(context.Background(), acme, chat))(t); p.Versions != 2 {
		t.Errorf("the plugin has %d versions", p.Versions)
	}
	_, err = s.Plugin(context.Background(), acme, "other")
	wantCode(t, err, abi.NotFound)
	// Another tenant's plugins do not count.
	_, _, err = s.PutVersion(context.Background(), versionOf(globex, chat, "one"), []byte("one"), tight)
	noError(t, err)
	// Room is room again after a deletion.
	noError(t, s.DeleteVersion(context.Background(), acme, chat, carrel.DigestOf([]byte("one"))))
	_, _, err = s.PutVersion(context.Background(), versionOf(acme, chat, "three"), []byte("three"), tight)
	noError(t, err)
}

func versionPages(t *testing.T, s store.Store) {
	createTenants(t, s, acme)
	for _, module := range []string{"one", "two", "three", "four", "five"} {
		put(t, s, acme, chat, module)
	}
	list := walk(t, 2, func(last *store.Version) ([]store.Version, error) {
		before := orElse(last, 0, func(v store.Version) int { return v.N })
		if before == 1 {
			return nil, nil
		}
		return s.ListVersions(context.Background(), acme, chat, before, 2)
	})
	var numbers []int
	for _, v := range list {
		numbers = append(numbers, v.N)
	}
	wantSame(t, "numbers", numbers, []int{5, 4, 3, 2, 1})
	for _, v := range list {
		want := must(s.Version(context.Background(), acme, chat, carrel.VersionRef{N: v.N}))(t)
		want.Manifest, want.Report = nil, nil
		wantSame(t, "listed version", v, want)
	}
	if below := must(s.ListVersions(context.Background(), acme, chat, 1, 2))(t); len(below) != 0 {
		t.Errorf("%d versions are below the first", len(below))
	}
}

func pluginPages(t *testing.T, s store.Store) {
	createTenants(t, s, acme, globex)
	for _, name := range []carrel.PluginName{"c", "a", "e", "b", "d"} {
		put(t, s, acme, name, "one")
	}
	put(t, s, globex, "f", "one")
	list := walk(t, 2, func(last *store.Plugin) ([]store.Plugin, error) {
		after := orElse(last, "", func(p store.Plugin) carrel.PluginName { return p.Name })
		return s.ListPlugins(context.Background(), acme, after, 2)
	})
	var names []carrel.PluginName
	for _, p := range list {
		names = append(names, p.Name)
		if p.Versions != 1 {
			t.Errorf("plugin %s has %d versions", p.Name, p.Versions)
		}
	}
	wantSame(t, "names", names, []carrel.PluginName{"a", "b", "c", "d", "e"})
}

func pluginMissing(t *testing.T, s store.Store) {
	createTenants(t, s, acme)
	absentEverywhere(t, s, acme, "nothing", carrel.DigestOf([]byte("one")))
	put(t, s, acme, chat, "one")
	for what, ref := range map[string]carrel.VersionRef{
		"active while none is": {},
		"an unknown number":    {N: 2},
		"an unknown digest":    {Digest: carrel.Digest{1}},
	} {
		if _, err := s.Version(context.Background(), acme, chat, ref); carrel.CodeOf(err) != abi.NotFound {
			t.Errorf("%s: %v, want not_found", what, err)
		}
	}
	unknown := carrel.Digest{1}
	_, err := s.Module(context.Background(), acme, chat, unknown)
	wantCode(t, err, abi.NotFound)
	wantCode(t, s.DeleteVersion(context.Background(), acme, chat, unknown), abi.NotFound)
	_, err = s.Activate(context.Background(), acme, chat, unknown, applicationScope(acme, chat, "app"))
	wantCode(t, err, abi.NotFound)
	if open := must(s.ListScopes(context.Background(), carrel.ScopeApplication, "", 10))(t); len(open) != 0 {
		t.Errorf("a failed activation opened %v", open)
	}
}

// absentEverywhere checks that every method says not_found of a plugin.
func absentEverywhere(t *testing.T, s store.Store, tenant carrel.TenantID, p carrel.PluginName, d carrel.Digest) {
	t.Helper()
	ctx := context.Background()
	_, err := s.Plugin(ctx, tenant, p)
	wantCode(t, err, abi.NotFound)
	for _, ref := range []carrel.VersionRef{{}, {N: 1}, {Digest: d}} {
		_, err = s.Version(ctx, tenant, p, ref)
		wantCode(t, err, abi.NotFound)
	}
	_, err = s.ListVersions(ctx, tenant, p, 0, 10)
	wantCode(t, err, abi.NotFound)
	_, err = s.Module(ctx, tenant, p, d)
	wantCode(t, err, abi.NotFound)
	_, err = s.Activate(ctx, tenant, p, d, applicationScope(tenant, p, "absent"))
	wantCode(t, err, abi.NotFound)
	_, err = s.Deactivate(ctx, tenant, p)
	wantCode(t, err, abi.NotFound)
	wantCode(t, s.DeleteVersion(ctx, tenant, p, d), abi.NotFound)
	_, err = s.DeletePlugin(ctx, tenant, p)
	wantCode(t, err, abi.NotFound)
	for _, listed := range must(s.ListPlugins(ctx, tenant, "", 100))(t) {
		if listed.Name == p {
			t.Errorf("plugin %s of %s is listed", p, tenant)
		}
	}
}

func pluginTenants(t *testing.T, s store.Store) {
	createTenants(t, s, acme, globex)
	v := put(t, s, acme, chat, "one")
	must(s.Activate(context.Background(), acme, chat, v.Digest, applicationScope(acme, chat, "app")))(t)
	absentEverywhere(t, s, globex, chat, v.Digest)

	other := put(t, s, globex, chat, "one")
	if other.N != 1 || other.Tenant != globex {
		t.Errorf("the other tenant's version is %+v", other)
	}
	must(s.DeletePlugin(context.Background(), globex, chat))(t)
	if p := must(s.Plugin(context.Background(), acme, chat))(t); p.Active != v.Digest || p.Versions != 1 {
		t.Errorf("deleting the other tenant's plugin left %+v", p)
	}
	must(s.Module(context.Background(), acme, chat, v.Digest))(t)
}

func versionDeleted(t *testing.T, s store.Store) {
	ctx := context.Background()
	createTenants(t, s, acme)
	one, two := put(t, s, acme, chat, "one"), put(t, s, acme, chat, "two")
	must(s.Activate(ctx, acme, chat, one.Digest, applicationScope(acme, chat, "app")))(t)
	wantIs(t, s.DeleteVersion(ctx, acme, chat, one.Digest), store.ErrActive)
	must(s.Version(ctx, acme, chat, carrel.VersionRef{}))(t)

	must(s.Activate(ctx, acme, chat, two.Digest, applicationScope(acme, chat, "ignored")))(t)
	noError(t, s.DeleteVersion(ctx, acme, chat, one.Digest))
	p := must(s.Plugin(ctx, acme, chat))(t)
	if p.Previous != (carrel.Digest{}) || p.Versions != 1 || p.Active != two.Digest {
		t.Errorf("after the previous version was deleted the plugin is %+v", p)
	}
	_, err := s.Module(ctx, acme, chat, one.Digest)
	wantCode(t, err, abi.NotFound)
	_, err = s.Version(ctx, acme, chat, carrel.VersionRef{N: 1})
	wantCode(t, err, abi.NotFound)
	wantCode(t, s.DeleteVersion(ctx, acme, chat, one.Digest), abi.NotFound)
}

func pluginDeleted(t *testing.T, s store.Store) {
	ctx := context.Background()
	createTenants(t, s, acme)
	app := install(t, s, acme, chat, "app")
	k := keyOf(acme, "1")
	say(t, s, app, k, "hello", "hi")
	before := must(s.Plugin(ctx, acme, chat))(t)
	wantSame(t, "deleted plugin", must(s.DeletePlugin(ctx, acme, chat))(t), before)
	if before.Scope != app.ID || before.Versions != 1 {
		t.Errorf("the plugin was %+v", before)
	}
	absentEverywhere(t, s, acme, chat, before.Active)
	// Only closing its scope deletes histories.
	wantContents(t, s, k, "hello", "hi")
	orphans := must(s.Orphans(ctx, node, 10))(t)
	if len(orphans) != 1 || orphans[0].ID != app.ID {
		t.Errorf("orphans are %v", orphans)
	}
	if evicted := closeScope(t, s, app.ID); len(evicted) != 1 {
		t.Errorf("evicted %v", evicted)
	}
	wantGone(t, s, k)
}

func pluginCopies(t *testing.T, s store.Store) {
	ctx := context.Background()
	createTenants(t, s, acme)
	v, module := versionOf(acme, chat, "one"), []byte("one")
	want := versionOf(acme, chat, "one")
	got, _, err := s.PutVersion(ctx, v, module, roomy)
	noError(t, err)
	spoil := func(lists ...[]byte) {
		for _, b := range lists {
			b[0] = '!'
		}
	}
	spoil(v.Manifest, v.Report, module, got.Manifest, got.Report)
	for range 2 {
		got = must(s.Version(ctx, acme, chat, carrel.VersionRef{N: 1}))(t)
		module = must(s.Module(ctx, acme, chat, want.Digest))(t)
		wantSame(t, "manifest", got.Manifest, want.Manifest)
		wantSame(t, "report", got.Report, want.Report)
		wantSame(t, "module", module, []byte("one"))
		spoil(got.Manifest, got.Report, module)
	}
}
