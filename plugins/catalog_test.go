package plugins_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox/module"
	"github.com/carrelhost/carrel/plugins"
	"github.com/carrelhost/carrel/store"
)

func TestUploadOfTheSameBytesIsTheSameVersion(t *testing.T) {
	l := newLibrary(t, nil)
	first := l.upload(false, "1")
	if !first.Created || first.Version.N != 1 || first.Plugin.Versions != 1 || first.Plugin.Active != (carrel.Digest{}) {
		t.Errorf("got %+v", first)
	}
	l.wantRunning(active, "")
	again := l.upload(true, "1")
	if again.Created || again.Version.N != 1 || again.Version.Digest != digest("1").Digest || again.Plugin.Versions != 1 || again.Plugin.Active != first.Version.Digest {
		t.Errorf("got %+v", again)
	}
	if second := l.upload(false, "2"); !second.Created || second.Version.N != 2 || second.Plugin.Active != first.Version.Digest {
		t.Errorf("got %+v", second)
	}
	l.wantRunning(active, "1")
	b, err := l.Module(t.Context(), acme, "p", first.Version.Digest)
	if err != nil || string(b) != string(chatModule("p", "1")) {
		t.Errorf("the module is kept as %q, %v", b, err)
	}
}

func TestABadUploadNeverReplacesAGoodVersion(t *testing.T) {
	for name, tc := range map[string]struct {
		module []byte
		code   abi.Code
	}{
		"bytes that are no module": {[]byte("hello"), abi.InvalidModule},
		"nothing":                  {nil, abi.InvalidModule},
		"a module cut short":       {chatModule("p", "2")[:60], abi.InvalidModule},
		"a faulty manifest":        {module.Prompt([]byte(`{"abi":"carrel/v1","name":"p","version":"2","x":1}`)), abi.InvalidManifest},
		"a manifest that leaks": {module.Prompt([]byte(fmt.Sprintf(
			`{"abi":"carrel/v1","name":"p","version":"2","services":[{"name":"S","scope":"application","methods":[{"name":"chat","kind":"chat"%s}]}]}`, msgParams))), abi.DefaultIDLeak},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLibrary(t, nil)
			before := l.upload(true, "1").Plugin
			out, err := l.Upload(t.Context(), plugins.Upload{Tenant: acme, Module: tc.module, Activate: true})
			wantCode(t, err, tc.code)
			if out.Created || out.Version.N != 0 {
				t.Errorf("got %+v", out)
			}
			l.wantRunning(active, "1")
			if after, err := l.Plugin(t.Context(), acme, "p"); err != nil || after != before {
				t.Errorf("the plugin became %+v, %v", after, err)
			}
		})
	}
}

func TestUploadForATenantThatDoesNotExist(t *testing.T) {
	l := newLibrary(t, nil)
	_, err := l.Upload(t.Context(), plugins.Upload{Tenant: "nobody", Module: chatModule("p", "1"), Activate: true})
	wantCode(t, err, abi.NotFound)
}

func TestADryRunStoresNothing(t *testing.T) {
	l := newLibrary(t, nil)
	out, err := l.Upload(t.Context(), plugins.Upload{Tenant: acme, Module: chatModule("p", "1"), Activate: true, DryRun: true})
	if err != nil || out.Created || out.Version.N != 0 || out.Version.Plugin != "p" || out.Version.Digest != digest("1").Digest ||
		!strings.Contains(string(out.Version.Report), `"path":"prompt"`) || out.Plugin != (store.Plugin{}) {
		t.Errorf("got %+v, %v", out, err)
	}
	if list, err := l.List(t.Context(), acme, "", 10); err != nil || len(list) != 0 {
		t.Errorf("there are %+v, %v", list, err)
	}
	l.wantRunning(active, "")
	_, err = l.Upload(t.Context(), plugins.Upload{Tenant: acme, Module: []byte("hello"), DryRun: true})
	wantCode(t, err, abi.InvalidModule)
	if v := l.upload(true, "1").Version; v.N != 1 {
		t.Errorf("the first version has number %d", v.N)
	}
	if _, err = l.Upload(t.Context(), plugins.Upload{Tenant: acme, Module: chatModule("p", "2"), Activate: true, DryRun: true}); err != nil {
		t.Error(err)
	}
	l.wantRunning(active, "1")
}

func TestQuotas(t *testing.T) {
	l := newLibrary(t, func(c *plugins.Config) { c.Limits = store.PluginLimits{Plugins: 2, Versions: 2} })
	put := func(tenant carrel.TenantID, name, version string, limit string) {
		t.Helper()
		_, err := l.Upload(t.Context(), plugins.Upload{Tenant: tenant, Module: chatModule(name, version), Activate: true})
		if limit == "" {
			wantCode(t, err, abi.OK)
			return
		}
		wantCode(t, err, abi.QuotaExceeded)
		if e, ok := errors.AsType[*carrel.Error](err); !ok || e.Limit != limit {
			t.Errorf("got %v, want the limit %s named", err, limit)
		}
	}
	put(acme, "p", "1", "")
	put(acme, "p", "2", "")
	put(acme, "p", "3", "versions")
	l.wantRunning(active, "2") // what was refused is not active either
	put(acme, "p", "1", "")    // known bytes need no room
	l.wantRunning(active, "1")
	put(acme, "q", "1", "")
	put(acme, "r", "1", "plugins")
	put(other, "r", "1", "") // another tenant has room of its own
	if err := l.DeleteVersion(t.Context(), acme, "p", n(2)); err != nil {
		t.Fatal(err)
	}
	put(acme, "p", "3", "")
	if v, err := l.Version(t.Context(), acme, "p", active); err != nil || v.N != 3 {
		t.Errorf("the number %d is used again (%v)", v.N, err)
	}
	if _, err := l.Delete(t.Context(), acme, "q"); err != nil {
		t.Fatal(err)
	}
	put(acme, "r", "1", "")
}

func TestRunning(t *testing.T) {
	l := newLibrary(t, nil)
	l.upload(true, "one", "two", "three")
	if _, err := l.Activate(t.Context(), acme, "p", n(2)); err != nil {
		t.Fatal(err)
	}
	for ref, version := range map[carrel.VersionRef]string{
		active: "two", n(1): "one", n(2): "two", n(3): "three", n(4): "",
		digest("one"): "one", digest("two"): "two", digest("three"): "three", digest("four"): "",
	} {
		r := l.wantRunning(ref, version)
		if version != "" && (r.Application.ID != "app_1" || r.Application.Tenant != acme || r.Application.Plugin != "p" || r.Application.Scope != carrel.ScopeApplication) {
			t.Errorf("version %s has the application scope %+v", version, r.Application)
		}
	}
	for _, of := range []struct {
		t carrel.TenantID
		p carrel.PluginName
	}{{other, "p"}, {"nobody", "p"}, {acme, "q"}} {
		for _, ref := range []carrel.VersionRef{active, n(1), digest("one")} {
			_, err := l.Running(t.Context(), of.t, of.p, ref)
			wantCode(t, err, abi.NotFound)
		}
	}
}

func TestNothingRunsOfAPluginThatIsNotActive(t *testing.T) {
	for name, end := range map[string]func(l *library) error{
		"deactivated": func(l *library) error { _, err := l.Deactivate(t.Context(), acme, "p"); return err },
		"deleted":     func(l *library) error { _, err := l.Delete(t.Context(), acme, "p"); return err },
	} {
		t.Run("after it was "+name, func(t *testing.T) {
			l := newLibrary(t, nil)
			l.upload(true, "one", "two")
			l.wantRunning(active, "two") // it is ready before the change
			if err := end(l); err != nil {
				t.Fatal(err)
			}
			for _, ref := range []carrel.VersionRef{active, n(1), n(2), digest("one"), digest("two")} {
				l.wantRunning(ref, "")
			}
		})
	}
}

func TestMethodsAreReady(t *testing.T) {
	l := newLibrary(t, nil)
	_, err := l.Upload(t.Context(), plugins.Upload{Tenant: acme, Activate: true, Module: module.Prompt([]byte(
		`{"abi":"carrel/v1","name":"p","version":"1","services":[` +
			`{"name":"a.S","scope":"request","systemMessage":"service's","methods":[` +
			`{"name":"inherits","kind":"chat"` + msgParams + `},` +
			`{"name":"own","kind":"chat","systemMessage":"method's","userMessage":"say {{msg}}"` + msgParams + `}]},` +
			`{"name":"a.T","methods":[{"name":"own","kind":"chat"` + msgParams + `}]}]}`))})
	if err != nil {
		t.Fatal(err)
	}
	r := l.wantRunning(active, "1")
	args := map[string]any{"msg": "hi"}
	for _, tc := range []struct {
		s            carrel.ServiceName
		m            carrel.MethodName
		system, user string
	}{{"a.S", "inherits", "service's", ""}, {"a.S", "own", "method's", "say hi"}, {"a.T", "own", "", ""}} {
		m, ok := r.Method(tc.s, tc.m)
		if !ok || m.Service != tc.s || m.Spec.Name != string(tc.m) || m.Scope != carrel.ScopeRequest {
			t.Fatalf("%s.%s is %+v", tc.s, tc.m, m)
		}
		var system, user string
		if m.System != nil {
			system, err = m.System.Render(args)
		}
		if m.User != nil && err == nil {
			user, err = m.User.Render(args)
		}
		if err != nil || system != tc.system || user != tc.user || (user == "") != (m.Spec.UserParam == "msg") {
			t.Errorf("%s.%s says %q, %q, %v", tc.s, tc.m, system, user, err)
		}
		if err := m.Params.Validate(args, 10); err != nil {
			t.Error(err)
		}
		wantCode(t, m.Params.Validate(map[string]any{}, 10), abi.InvalidParams)
	}
	for _, none := range [][2]string{{"a.S", "chat"}, {"S", "own"}, {"a.T", "inherits"}, {"", ""}} {
		if m, ok := r.Method(carrel.ServiceName(none[0]), carrel.MethodName(none[1])); ok {
			t.Errorf("%v is %+v", none, m)
		}
	}
}

// Defaults are written out where a manifest is stored, so the stored one may
// be larger than what could ever be read again: it is refused at the door.
func TestAManifestThatDefaultsMakeLarge(t *testing.T) {
	var services []string
	for i := range 40 {
		var methods []string
		for j := range 100 {
			methods = append(methods, fmt.Sprintf(`{"name":"m%d","kind":"chat","userMessage":"x"}`, j))
		}
		services = append(services, fmt.Sprintf(`{"name":"S%d","methods":[%s]}`, i, strings.Join(methods, ",")))
	}
	raw := `{"abi":"carrel/v1","name":"p","version":"1","services":[` + strings.Join(services, ",") + `]}`
	if len(raw) > abi.MaxManifestBytes {
		t.Fatalf("the manifest has %d bytes", len(raw))
	}
	l := newLibrary(t, nil)
	for _, dry := range []bool{true, false} {
		_, err := l.Upload(t.Context(), plugins.Upload{Tenant: acme, Module: module.Prompt([]byte(raw)), Activate: true, DryRun: dry})
		wantCode(t, err, abi.LimitExceeded)
		if e, ok := errors.AsType[*carrel.Error](err); !ok || e.Limit != "manifestBytes" {
			t.Errorf("got %v, want the limit manifestBytes named", err)
		}
	}
	if list, err := l.List(t.Context(), acme, "", 10); err != nil || len(list) != 0 {
		t.Errorf("there are %+v, %v", list, err)
	}
}

// FuzzUpload checks that what is refused has a code that says why, and that
// what is taken in can be run.
func FuzzUpload(f *testing.F) {
	f.Add(chatModule("p", "1"))
	f.Add([]byte("hello"))
	f.Add(module.Prompt([]byte("---\nname: p\n---\nno JSON\n")))
	f.Fuzz(func(t *testing.T, wasm []byte) {
		l := newLibrary(t, nil)
		up, err := l.Upload(t.Context(), plugins.Upload{Tenant: acme, Module: wasm, Activate: true})
		if err != nil {
			if carrel.CodeOf(err) == abi.Internal {
				t.Fatal(err)
			}
			return
		}
		r, err := l.Running(t.Context(), acme, up.Plugin.Name, active)
		if err != nil {
			t.Fatal(err)
		}
		r.Release()
	})
}

func TestNewCatalogReportsEveryFault(t *testing.T) {
	_, err := plugins.NewCatalog(plugins.Config{Loaded: -1})
	if err == nil {
		t.Fatal("want an error")
	}
	for _, want := range []string{"Sandbox", "Scopes", "Limits", "size"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not name %s", err, want)
		}
	}
}

func TestACatalogWhoseStoreFails(t *testing.T) {
	l := newLibrary(t, nil)
	l.upload(true, "1")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.Running(ended, acme, "p", active); carrel.CodeOf(err) != abi.Canceled {
		t.Errorf("got %v", err)
	}
	l.wantRunning(active, "1") // that reader's end is nobody else's
}
