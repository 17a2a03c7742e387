package plugins_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/plugins"
	"github.com/carrelhost/carrel/store"
)

// hall is a store that counts how often calls read something of acme's plugin
// "p": which version is active, or that version's module. do runs in each such
// read; what do itself reads does not count.
type hall struct {
	store.Plugins
	plugin, module atomic.Int64
	do             func()
	doing          bool // calls come one after the other
}

func (h *hall) Plugin(ctx context.Context, t carrel.TenantID, p carrel.PluginName) (store.Plugin, error) {
	row, err := h.Plugins.Plugin(ctx, t, p)
	h.read(&h.plugin, t, p)
	return row, err
}

func (h *hall) Module(ctx context.Context, t carrel.TenantID, p carrel.PluginName, d carrel.Digest) ([]byte, error) {
	wasm, err := h.Plugins.Module(ctx, t, p, d)
	h.read(&h.module, t, p)
	return wasm, err
}

func (h *hall) read(count *atomic.Int64, t carrel.TenantID, p carrel.PluginName) {
	if t != acme || p != "p" || h.do == nil || h.doing {
		return
	}
	count.Add(1)
	h.doing = true
	defer func() { h.doing = false }()
	h.do()
}

// TestWhatIsReadStaysWhateverOthersDo has somebody change plugins each time
// that one is read, as who does so all the time would.
func TestWhatIsReadStaysWhateverOthersDo(t *testing.T) {
	absent := func(err error) error {
		if carrel.CodeOf(err) != abi.NotFound {
			return errors.Join(errors.New("there is something to delete"), err)
		}
		return nil
	}
	for name, tc := range map[string]struct {
		do             func(l *library) error
		plugin, module int64 // reads of three calls
	}{
		"another tenant deletes what is not there": {func(l *library) error {
			_, err := l.Delete(l.t.Context(), other, "nothing")
			return absent(err)
		}, 1, 1},
		"another tenant deletes a plugin of the same name": {func(l *library) error {
			u := plugins.Upload{Tenant: other, Module: codeModule("p", "two"), Activate: true}
			_, err := l.Upload(l.t.Context(), u)
			_, gone := l.Delete(l.t.Context(), other, "p")
			return errors.Join(err, gone)
		}, 1, 1},
		"another plugin is deleted": {func(l *library) error {
			l.uploadCode("q", "two")
			_, err := l.Delete(l.t.Context(), acme, "q")
			return err
		}, 1, 1},
		"another version is deleted": {func(l *library) error {
			u := plugins.Upload{Tenant: acme, Module: codeModule("p", "three")}
			_, err := l.Upload(l.t.Context(), u)
			return errors.Join(err, l.DeleteVersion(l.t.Context(), acme, "p", digestOf("three")))
		}, 1, 1},
		"a version that is not there is deleted": {func(l *library) error {
			return absent(l.DeleteVersion(l.t.Context(), acme, "p", digestOf("four")))
		}, 1, 1},
		"it is activated again": {func(l *library) error {
			_, err := l.Activate(l.t.Context(), acme, "p", n(2))
			return err
		}, 3, 1},
	} {
		t.Run(name, func(t *testing.T) {
			h := &hall{}
			l, _ := newCodeLibrary(t, func(c *plugins.Config) {
				h.Plugins = c.Store
				c.Store = h
			})
			h.do = func() {
				if err := tc.do(l); err != nil {
					t.Error(err)
				}
			}
			for range 3 {
				r := l.running("p", active)
				wantSays(t, r, "two")
				r.Release()
			}
			if plugin, module := h.plugin.Load(), h.module.Load(); plugin != tc.plugin || module != tc.module {
				t.Errorf("what is active was read %d times, want %d, and the module %d times, want %d", plugin, tc.plugin, module, tc.module)
			}
		})
	}
}

func digestOf(version string) carrel.VersionRef {
	return carrel.VersionRef{Digest: carrel.DigestOf(codeModule("p", version))}
}
