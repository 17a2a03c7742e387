//go:build unix

package crash_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/client"
	"github.com/carrelhost/carrel/host"
	"github.com/carrelhost/carrel/host/model/modeltest"
	"github.com/carrelhost/carrel/host/sandbox/hostile"
	"github.com/carrelhost/carrel/host/sandbox/marker"
	"github.com/carrelhost/carrel/host/sandbox/wasmtest"
	"github.com/carrelhost/carrel/internal/testenv"
	"github.com/carrelhost/carrel/internal/testproc"
)

const spin = "spin"

// spinner is a plugin whose method spin never returns, and whose method Fine
// does. build makes its bytes others.
func spinner(name, build string) []byte {
	m := wasmtest.New()
	m.Memory(1)
	m.Method(spin).Loop().Br(0).End().Const(0)
	m.Method(hostile.Fine).Const(0)
	m.Custom(abi.ManifestSection, hostile.Manifest(name, "60s", "", spin, hostile.Fine))
	m.Custom("build", []byte(build))
	return m.Bytes()
}

// fragile is a host in a process of its own that crashes and is started again
// on the same data, with two tenants.
type fragile struct {
	t     *testing.T
	data  string
	model *modeltest.Server
	keys  map[string]string // of the tenants' owners
	p     *testenv.Process
}

var fragileAdmin = strings.Repeat("admin-", 8)

func newFragile(t *testing.T) *fragile {
	t.Helper()
	f := &fragile{t: t, data: t.TempDir(), model: modeltest.NewServer(t), keys: map[string]string{}}
	f.start()
	for _, name := range []string{"mallory", "acme"} {
		if _, err := f.admin().CreateTenant(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		made, err := f.admin().CreateKey(t.Context(), name, client.NewKey{Role: "owner"})
		if err != nil {
			t.Fatal(err)
		}
		f.keys[name] = made.Secret
	}
	f.upload("acme", hostile.Worker("worker"))
	return f
}

func (f *fragile) start() {
	f.t.Helper()
	f.p = program.Serve(f.t, f.data, f.model, "CARREL_ADMIN_KEY="+fragileAdmin)
}

func (f *fragile) admin() *client.Client { return &client.Client{Base: f.p.Base, Key: fragileAdmin} }

func (f *fragile) tenant(name string) *client.Client {
	return &client.Client{Base: f.p.Base, Key: f.keys[name]}
}

func (f *fragile) upload(tenant string, wasm []byte) {
	f.t.Helper()
	if _, err := f.tenant(tenant).Upload(f.t.Context(), wasm, client.UploadOptions{}); err != nil {
		f.t.Fatal(err)
	}
}

// call calls a method, which is to end with the code.
func (f *fragile) call(tenant, plugin string, want abi.Code) {
	f.t.Helper()
	if err := testenv.CallHostile(f.t.Context(), f.tenant(tenant), plugin, hostile.Fine); testenv.CodeOf(err) != want {
		f.t.Errorf("%s calls %s: %v, want %v", tenant, plugin, err, want)
	}
}

// end runs guest code of mallory's with do, lets the process end in the middle
// of it, and starts the host again.
func (f *fragile) end(by func(), wasm []byte, do func(context.Context) error) {
	f.t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- do(f.t.Context()) }()
	testproc.Until(f.t, "the mark of a guest that runs", func() bool {
		guests, err := marker.Read(filepath.Join(f.data, "running"))
		if err != nil {
			f.t.Fatal(err)
		}
		return slices.ContainsFunc(guests, func(g marker.Guest) bool {
			return g.Digest == carrel.DigestOf(wasm) && g.Running && g.Share == "mallory"
		})
	})
	by()
	if err := <-ended; err == nil {
		f.t.Error("what never ends has ended")
	}
	f.start()
}

// fault crashes the process: the file that it has mapped is cut, so that the
// processor faults at its next mark, which is of another call than those that
// go on. What the file had is there again afterwards.
func (f *fragile) fault() {
	f.t.Helper()
	path := filepath.Join(f.data, "running")
	marks := testenv.Read(f.t, path)
	if err := os.Truncate(path, 0); err != nil {
		f.t.Fatal(err)
	}
	if err := testenv.CallHostile(f.t.Context(), f.tenant("acme"), "worker", hostile.Fine); err == nil {
		f.t.Error("the process goes on")
	}
	<-f.p.Ended
	overwrite(f.t, path, []byte(marks))
}

// sent ends the process with a signal.
func (f *fragile) sent(s syscall.Signal) func() { return func() { f.p.End(f.t, s) } }

// spins is a call of mallory's that ends with the host.
func (f *fragile) spins(context.Context) error {
	return testenv.CallHostile(f.t.Context(), f.tenant("mallory"), "loops", spin)
}

// list returns what ran at crashes.
func (f *fragile) list() []client.CrashedModule {
	f.t.Helper()
	page, err := f.admin().CrashedModules(f.t.Context(), client.ListOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
	return page.Data
}

// reports returns how many reports of crashes are kept.
func (f *fragile) reports() int {
	f.t.Helper()
	kept, err := filepath.Glob(filepath.Join(f.data, "crashes", "*.txt"))
	if err != nil {
		f.t.Fatal(err)
	}
	for _, path := range kept {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 || info.Size() == 0 {
			f.t.Errorf("the report %+v, %v", info, err)
		}
	}
	return len(kept)
}

func TestAPluginThatRanAtTwoCrashesIsQuarantinedUntilThatIsLifted(t *testing.T) {
	f := newFragile(t)
	wasm := spinner("loops", "first")
	digest := carrel.DigestOf(wasm).String()
	f.upload("mallory", wasm)
	f.upload("mallory", hostile.Worker("other"))
	f.call("acme", "worker", abi.OK)

	f.end(f.fault, wasm, f.spins)
	if all := f.list(); len(all) != 1 || all[0].Digest != digest || !all[0].Since.IsZero() || len(all[0].Crashes) != 1 || !slices.Equal(all[0].Tenants, []string{"mallory"}) {
		t.Errorf("after one crash: %+v", all)
	} else if want := []client.CrashedVersion{{Tenant: "mallory", Plugin: "loops", N: 1}}; !slices.Equal(all[0].Versions, want) {
		t.Errorf("what ran is called %+v", all[0].Versions)
	}
	f.call("mallory", "loops", abi.OK)
	f.call("acme", "worker", abi.OK)

	f.end(f.fault, wasm, f.spins)
	if all := f.list(); len(all) != 1 || all[0].Digest != digest || all[0].Since.IsZero() || len(all[0].Crashes) != 2 {
		t.Errorf("after two crashes: %+v", all)
	}
	f.call("mallory", "loops", abi.Forbidden)
	f.call("mallory", "other", abi.OK)
	f.call("acme", "worker", abi.OK)
	f.refused("acme", wasm)
	f.seen(digest)
	if n := f.reports(); n != 2 {
		t.Errorf("%d reports are kept", n)
	}

	f.upload("mallory", spinner("loops", "second"))
	f.call("mallory", "loops", abi.OK)
	if _, err := f.tenant("mallory").Rollback(t.Context(), "loops"); testenv.CodeOf(err) != abi.Forbidden {
		t.Errorf("roll back to what is quarantined: %v", err)
	}
	if err := f.admin().LiftQuarantine(t.Context(), digest); err != nil {
		t.Fatal(err)
	}
	if _, err := f.tenant("mallory").Rollback(t.Context(), "loops"); err != nil {
		t.Fatal(err)
	}
	f.call("mallory", "loops", abi.OK)
	if code := f.p.End(t, syscall.SIGTERM); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if said := testenv.Read(t, filepath.Join(f.data, "crash.txt")); said != "" {
		t.Errorf("after an orderly end there is a report: %s", said)
	}
	f.start()
	f.call("mallory", "loops", abi.OK)
	if all := f.list(); len(all) != 0 {
		t.Errorf("after it was lifted: %+v", all)
	}
}

// refused checks that bytes are refused, also for a tenant that never had them.
func (f *fragile) refused(tenant string, wasm []byte) {
	f.t.Helper()
	for _, o := range []client.UploadOptions{{}, {DryRun: true}} {
		_, err := f.tenant(tenant).Upload(f.t.Context(), wasm, o)
		if testenv.CodeOf(err) != abi.Forbidden || !strings.Contains(err.Error(), "quarantined") {
			f.t.Errorf("%s uploads it with %+v: %v", tenant, o, err)
		}
	}
}

// seen checks that the owner sees why the plugin does not run.
func (f *fragile) seen(digest string) {
	f.t.Helper()
	versions, err := f.tenant("mallory").Versions(f.t.Context(), "loops", client.ListOptions{})
	if err != nil || len(versions.Data) != 1 || versions.Data[0].Digest != digest || versions.Data[0].Quarantined == nil || len(versions.Data[0].Quarantined.Crashes) != 2 {
		f.t.Errorf("the versions are %+v, %v", versions.Data, err)
	}
	lines, err := f.tenant("mallory").PluginLog(f.t.Context(), "loops", client.ListOptions{})
	if err != nil || len(lines.Data) != 1 || !strings.Contains(lines.Data[0].Text, "quarantined") {
		f.t.Errorf("the log says %+v, %v", lines.Data, err)
	}
}

func TestAModuleThatRunsAtCrashesWhileItIsAdmittedIsQuarantined(t *testing.T) {
	f := newFragile(t)
	wasm := hostile.Stuck("stuck")
	for range 2 {
		f.end(f.fault, wasm, func(ctx context.Context) error {
			_, err := f.tenant("mallory").Upload(ctx, wasm, client.UploadOptions{})
			return err
		})
	}
	f.refused("mallory", wasm)
}

func TestWhatEndsAHostFromOutsideQuarantinesNothing(t *testing.T) {
	f := newFragile(t)
	wasm := spinner("loops", "")
	f.upload("mallory", wasm)
	for _, s := range []syscall.Signal{syscall.SIGKILL, syscall.SIGQUIT, syscall.SIGHUP, syscall.SIGABRT, syscall.SIGSEGV} {
		for range 2 {
			f.end(f.sent(s), wasm, f.spins)
			if all := f.list(); len(all) != 0 {
				t.Errorf("after %v: %+v", s, all)
			}
		}
	}
	f.call("mallory", "loops", abi.OK)
	if n := f.reports(); n != 5 {
		t.Errorf("%d reports are kept, of the six that three signals ask for five stay", n)
	}
}

func TestACrashWhileNoPluginRunsQuarantinesNothing(t *testing.T) {
	f := newFragile(t)
	for range 2 {
		f.call("acme", "worker", abi.OK)
		f.fault()
		f.start()
	}
	if all := f.list(); len(all) != 0 || f.reports() != 2 {
		t.Errorf("%+v ran, %d reports are kept", all, f.reports())
	}
	f.call("acme", "worker", abi.OK)
}

func TestNoDamageToWhatIsKeptOfCrashesKeepsAHostFromStarting(t *testing.T) {
	f := newFragile(t)
	wasm := spinner("loops", "")
	f.upload("mallory", wasm)
	f.end(f.fault, wasm, f.spins) // for a list
	crashed := make(chan struct{})
	go func() { // for what a crash leaves
		defer close(crashed)
		_ = f.spins(t.Context())
	}()
	testproc.Until(t, "the mark of a guest that runs", func() bool {
		guests, err := marker.Read(filepath.Join(f.data, "running"))
		return err == nil && len(guests) > 0
	})
	f.fault()
	<-crashed

	cfg := testenv.Config()
	cfg.Data, cfg.Store = filepath.Join(t.TempDir(), "data"), host.StoreMemory
	whole := map[string][]byte{}
	for _, name := range []string{"running", "crash.txt", "quarantine.json"} {
		whole[name] = []byte(testenv.Read(t, filepath.Join(f.data, name)))
	}
	// begin starts a host so many times after somebody damaged its files, and
	// returns what ran at crashes then.
	begin := func(t *testing.T, starts int, damage func(dir string)) []client.CrashedModule {
		t.Helper()
		if err := os.RemoveAll(cfg.Data); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(cfg.Data, 0o700); err != nil {
			t.Fatal(err)
		}
		for name, content := range whole {
			if err := os.WriteFile(filepath.Join(cfg.Data, name), content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		damage(cfg.Data)
		var out []client.CrashedModule
		for range starts {
			out = ranAt(t, cfg)
		}
		return out
	}
	if all := begin(t, 2, func(string) {}); len(all) != 1 || all[0].Since.IsZero() {
		t.Fatalf("without damage: %+v", all)
	}
	for name, content := range whole {
		t.Run(name, func(t *testing.T) {
			for region := range 8 {
				begin(t, 1, func(dir string) {
					damaged := slices.Clone(content)
					n := len(damaged) / 8
					for i := region * n; i < (region+1)*n; i++ {
						damaged[i] ^= byte(i*7 + 1)
					}
					overwrite(t, filepath.Join(dir, name), damaged)
				})
				begin(t, 1, func(dir string) { overwrite(t, filepath.Join(dir, name), content[:len(content)*region/8]) })
			}
			begin(t, 2, func(dir string) { // a folder in its place, and a file in that of the reports
				err := errors.Join(os.Remove(filepath.Join(dir, name)), os.MkdirAll(filepath.Join(dir, name, "in it"), 0o700),
					os.MkdirAll(filepath.Join(dir, name+".damaged", "in it"), 0o700))
				if err != nil {
					t.Fatal(err)
				}
				overwrite(t, filepath.Join(dir, "crashes"), nil)
			})
			if info, err := os.Stat(filepath.Join(cfg.Data, name)); name != "running" && err == nil && info.IsDir() {
				t.Error("the folder is in the way of the next report")
			}
		})
	}
}

func overwrite(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}
