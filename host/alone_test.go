package host_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/client"
	"github.com/carrelhost/carrel/host/sandbox/module"
	"github.com/carrelhost/carrel/internal/testenv"
	"github.com/carrelhost/carrel/plugins"
)

// The guest ABI's specification is enough to write a guest: alone.c was
// written from it, without an SDK or a header of ours.
func TestAGuestThatKnowsTheSpecificationAlone(t *testing.T) {
	wasm, manifest := testenv.Read(t, filepath.Join("testdata", "alone", "alone.wasm")), testenv.Read(t, filepath.Join("testdata", "alone", "manifest.json"))
	whole, err := plugins.Embed([]byte(wasm), []byte(manifest), module.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	acme := testenv.New(t, testenv.Config()).Tenant("acme")
	acme.Upload(whole)
	const shout = "alone/com.acme.Alone.shout"
	out, _ := acme.Chat(shout, "text", "hello").Output.(string)
	if !strings.HasPrefix(out, `{"TEXT":"HELLO"}{`) || !strings.Contains(out, `"method":"shout"`) {
		t.Errorf("the guest answers %q", out)
	}
	_, err = acme.Call(t.Context(), shout, "text", strings.Repeat("x", 5000))
	p, ok := errors.AsType[*client.Problem](err)
	if !ok || p.Code != abi.GuestFailed.String() || p.GuestCode != "too_long" || p.Detail != "at most 4096 bytes" {
		t.Errorf("too long a text: %v", err)
	}
	if _, err := os.Stat(filepath.Join("testdata", "alone", "alone.c")); err != nil {
		t.Errorf("the guest's source is gone: %v", err)
	}
}
