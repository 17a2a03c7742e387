package host_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/carrelhost/carrel/examples"
	"github.com/carrelhost/carrel/internal/scaffold"
	"github.com/carrelhost/carrel/internal/testenv"
)

// Addresses of the examples' methods.
const (
	nice      = "nice-and-mean/com.acme.MyChat.chat"
	mean      = "nice-and-mean/com.acme.AnotherChat.chat"
	unnamed   = "default-ids/com.acme.MyChat.chat"
	lasting   = "smallest-scope/com.acme.Lasting.chat"
	fleeting  = "smallest-scope/com.acme.Fleeting.chat"
	goldfish  = "short-memory/com.acme.Goldfish.chat"
	appChat   = "scopes/com.acme.AppChat.chat"
	sesChat   = "scopes/com.acme.SessionChat.chat"
	reqChat   = "scopes/com.acme.RequestChat.chat"
	inScopes  = "scopes/com.acme.Rest." // and a handler
	byHeader  = "own-default-id/com.acme.MyChat.chat"
	sysNice   = "system:You are a nice assistant"
	sysMean   = "system:You are a mean assistant"
	sysLast   = "system:You remember"
	sysShort  = "system:You have a short memory"
	headerKey = "X-Conversation"
)

// example returns the source of an example's plugin.
func example(t testing.TB, name string) string {
	t.Helper()
	b, err := examples.Files.ReadFile(name + "/" + name + ".md")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// scopesGuest returns the module of the example scopes.
func scopesGuest(t testing.TB) []byte {
	t.Helper()
	wasm, err := builtScopes()
	if err != nil {
		t.Fatal(err)
	}
	return wasm
}

// builtScopes builds the example scopes, once.
var builtScopes = sync.OnceValues(func() ([]byte, error) {
	file, err := scaffold.Build(context.Background(), filepath.Join("..", "examples", "scopes"))
	if err != nil {
		return nil, err
	}
	return os.ReadFile(file)
})

// same holds messages against what they must be.
func same(t testing.TB, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

// gone checks that there is no history under a memory id, not even an empty
// one.
func gone(t testing.TB, a *testenv.Actor, plugin, id string) {
	t.Helper()
	if got := a.Stored(plugin, id); got != nil {
		t.Errorf("the history %q of %s is there: %q", id, plugin, got)
	}
}
