package host_test

import (
	"path/filepath"
	"slices"
	"testing"

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

// scopes is the example scopes.
var scopes = testenv.Project{Dir: filepath.Join("..", "examples", "scopes")}

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
