package testenv

import (
	"context"
	"os"
	"sync"
	"testing"

	"github.com/carrelhost/carrel/client"
	"github.com/carrelhost/carrel/examples"
	"github.com/carrelhost/carrel/internal/scaffold"
)

// Example returns the source of an example's prompt plugin.
func Example(t testing.TB, name string) string {
	t.Helper()
	b, err := examples.Files.ReadFile(name + "/" + name + ".md")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Project is a plugin project that the tests of one package share: it is built
// once, with the toolchain of this machine, when a test first needs it. Safe
// for use by many goroutines.
type Project struct {
	Dir  string // relative to the package
	once sync.Once
	wasm []byte
	err  error
}

// Module returns the project's module, which nobody may change.
func (p *Project) Module(t testing.TB) []byte {
	t.Helper()
	p.once.Do(func() { p.wasm, p.err = build(context.WithoutCancel(t.Context()), p.Dir) })
	if p.err != nil {
		t.Fatalf("build %s: %v", p.Dir, p.err)
	}
	return p.wasm
}

func build(ctx context.Context, dir string) ([]byte, error) {
	file, err := scaffold.Build(ctx, dir)
	if err != nil {
		return nil, err
	}
	return os.ReadFile(file) //nolint:gosec // what was built just now
}

// Build builds the plugin project in dir, with the toolchain of this machine,
// and uploads it.
func (a *Actor) Build(dir string) client.Uploaded {
	a.t.Helper()
	wasm, err := build(a.t.Context(), dir)
	if err != nil {
		a.t.Fatalf("build %s: %v", dir, err)
	}
	up, err := a.Client().Upload(a.t.Context(), wasm, client.UploadOptions{})
	a.check("upload the module of "+dir, err)
	return up
}
