package plugins_test

import (
	"context"
	"errors"
	"os/exec"
	"testing"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox"
	"github.com/carrelhost/carrel/plugins"
)

// TestWhyAStoredVersionDoesNotOpen has one sandbox admit a version and another
// one, which keeps code in a cache of its own, open it.
func TestWhyAStoredVersionDoesNotOpen(t *testing.T) {
	shell, err := exec.LookPath("sh")
	if err != nil {
		t.Skip(err)
	}
	for name, tc := range map[string]struct {
		compiler string // what stands in for the compiler's process
		closed   bool
		code     abi.Code
		limit    string
	}{
		"the host ends":                         {"exit 0", true, abi.Draining, ""},
		"the compilation takes longer now":      {"exec sleep 600", false, abi.Overloaded, "sandbox.compileTime"},
		"the compiler is killed from outside":   {"kill -9 $$", false, abi.Overloaded, ""},
		"the compiler has a fault":              {"exit 3", false, abi.Internal, ""},
		"the module's own limits are lower now": {"", false, abi.Internal, ""},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := sandbox.Config{CacheDir: t.TempDir()}
			if tc.limit != "" {
				cfg.CompileWall = 200 * time.Millisecond
			}
			if tc.compiler == "" {
				cfg.Module.Bytes = 16
			} else {
				cfg.CompileCommand = []string{shell, "-c", tc.compiler}
			}
			box, err := sandbox.New(context.WithoutCancel(t.Context()), cfg)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := box.Close(); err != nil {
					t.Error(err)
				}
			})
			l, _ := newCodeLibrary(t, func(c *plugins.Config) { c.Sandbox = box })
			if tc.closed {
				if err := box.Close(); err != nil {
					t.Fatal(err)
				}
			}
			_, err = l.Running(t.Context(), acme, "p", active)
			wantCode(t, err, tc.code)
			limit := ""
			if failed, ok := errors.AsType[*carrel.Error](err); ok {
				limit = failed.Limit
			}
			if limit != tc.limit {
				t.Errorf("it names the limit %q: %v", limit, err)
			}
		})
	}
}
