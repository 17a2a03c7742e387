package sandbox_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/carrelhost/carrel/host/sandbox"
)

// BenchmarkOpen measures how long a Go plugin with a warm-up takes to be ready
// in a sandbox that just started, with what is on disk then.
func BenchmarkOpen(b *testing.B) {
	wasm, setup := goModule(b), warmed("json", benchInput)
	for _, c := range []struct {
		name string
		lost func(cfg sandbox.Config) error
	}{
		{"code and snapshot", func(sandbox.Config) error { return nil }},
		{"code", func(cfg sandbox.Config) error { return os.RemoveAll(cfg.SnapshotDir) }},
		{"nothing", func(cfg sandbox.Config) error { return os.RemoveAll(filepath.Dir(cfg.CacheDir)) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			dir := filepath.Join(b.TempDir(), "cache")
			cfg := sandbox.Config{CacheDir: filepath.Join(dir, "code"), SnapshotDir: filepath.Join(dir, "snapshots")}
			opened := func(measured bool) {
				s, err := sandbox.New(b.Context(), cfg)
				if err != nil {
					b.Fatal(err)
				}
				if measured {
					b.StartTimer()
				}
				p, err := s.Open(b.Context(), wasm, setup)
				b.StopTimer()
				if err != nil {
					b.Fatal(err)
				}
				if _, err := p.Call(b.Context(), sandbox.Call{Export: "noop"}); err != nil {
					b.Error(err)
				}
				if err := s.Close(); err != nil {
					b.Error(err)
				}
			}
			b.StopTimer()
			opened(false)
			for range b.N {
				if err := c.lost(cfg); err != nil {
					b.Fatal(err)
				}
				opened(true)
			}
		})
	}
}
