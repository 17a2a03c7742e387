package siege_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/client"
	"github.com/carrelhost/carrel/host/model/modeltest"
	"github.com/carrelhost/carrel/host/sandbox/hostile"
	"github.com/carrelhost/carrel/internal/testenv"
)

// TestGuestsHaveWhatIsConfigured has a guest that never ends use up less fuel
// than it has by default.
func TestGuestsHaveWhatIsConfigured(t *testing.T) {
	data := t.TempDir()
	p := program.Serve(t, data, modeltest.NewServer(t), "CARREL_SANDBOX_FUEL=7654321", "CARREL_SANDBOX_SLOTS=1")
	owner := &client.Client{Base: p.Base, Key: strings.TrimSpace(testenv.Read(t, filepath.Join(data, "owner.key")))}
	for _, a := range hostile.Attacks() {
		if a.Name != "eight calls spin at once" {
			continue
		}
		if _, err := owner.Upload(t.Context(), a.Plugin(), client.UploadOptions{}); err != nil {
			t.Fatal(err)
		}
		err := testenv.CallHostile(t.Context(), owner, hostile.Plugin, a.Method)
		if code, limit := answer(err); code != abi.FuelExhausted || limit != "sandbox.fuel" || !strings.Contains(err.Error(), "7654321 units") {
			t.Errorf("it ended with %v", err)
		}
		return
	}
	t.Fatal("there is no such attack")
}
