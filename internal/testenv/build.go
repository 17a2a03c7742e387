package testenv

import (
	"os"

	"github.com/carrelhost/carrel/client"
	"github.com/carrelhost/carrel/internal/scaffold"
)

// Build builds the plugin project in dir, with the toolchain of this machine,
// and uploads it.
func (a *Actor) Build(dir string) client.Uploaded {
	a.t.Helper()
	file, err := scaffold.Build(a.t.Context(), dir)
	if err != nil {
		a.t.Fatalf("build %s: %v", dir, err)
	}
	wasm, err := os.ReadFile(file) //nolint:gosec // what was built just now
	if err != nil {
		a.t.Fatal(err)
	}
	up, err := a.Client().Upload(a.t.Context(), wasm, client.UploadOptions{})
	a.check("upload "+file, err)
	return up
}
