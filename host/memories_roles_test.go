package host_test

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/client"
	"github.com/carrelhost/carrel/host"
	"github.com/carrelhost/carrel/internal/testenv"
)

// Each route, asked by everybody who is there, about a history that one key
// touched for one end user.
func TestMemoryByHandIsForThoseWhomItConcerns(t *testing.T) {
	const ok, forbidden, missing = abi.OK, abi.Forbidden, abi.NotFound
	routes := []struct {
		name, method, path, body             string
		owner, viewer, toucher, other, press abi.Code // press: a publisher
	}{
		{"messages", http.MethodGet, "/api/v1/memories/KEY/messages", "", ok, ok, ok, missing, forbidden},
		{"window", http.MethodGet, "/api/v1/memories/KEY/messages?view=window&method=com.acme.MyChat.chat", "", ok, ok, ok, missing, forbidden},
		{"export", http.MethodGet, "/api/v1/memories/KEY/export", "", ok, ok, ok, missing, forbidden},
		{"delete a turn", http.MethodDelete, "/api/v1/memories/KEY/turns/TURN", "", ok, forbidden, ok, missing, forbidden},
		{"import", http.MethodPost, "/api/v1/memories/import?memoryId=NEW", manyTurns(1), ok, forbidden, forbidden, forbidden, forbidden},
		{"erase", http.MethodPost, "/api/v1/subjects/erase", `{"subject":"nobody"}`, ok, forbidden, forbidden, forbidden, forbidden},
		{"evictions", http.MethodGet, "/api/v1/evictions", "", ok, ok, forbidden, forbidden, forbidden},
	}
	testenv.EachStore(t, func(t *testing.T, cfg host.Config) {
		env := testenv.New(t, cfg)
		acme := env.Tenant("acme")
		acme.Install(testenv.Example(t, "nice-and-mean"))
		backend := env.Key("acme", client.NewKey{Role: "caller", AssertSubject: true})
		ada := backend.As("ada")
		for range 3 {
			ada.Chat(nice, "id", "1", "msg", "hello")
		}
		key := keyOf(t, acme, "nice-and-mean", "1")
		globex := env.Tenant("globex")
		globex.Install(testenv.Example(t, "nice-and-mean"))
		turn := 0
		for _, r := range routes {
			for name, who := range map[string]struct {
				*testenv.Actor
				want abi.Code
			}{
				"the owner":        {acme, r.owner},
				"a viewer":         {env.Key("acme", client.NewKey{Role: "viewer"}), r.viewer},
				"who touched it":   {ada, r.toucher},
				"another end user": {backend.As("bob"), r.other},
				"no end user":      {backend, r.other},
				"another key":      {env.Key("acme", client.NewKey{Role: "caller", AssertSubject: true}).As("ada"), r.other},
				"a publisher":      {env.Key("acme", client.NewKey{Role: "publisher"}), r.press},
				"nobody":           {env.Anyone(""), abi.Unauthenticated},
			} {
				path := strings.NewReplacer("KEY", key, "NEW", "new").Replace(r.path)
				if who.want == ok && r.name == "delete a turn" {
					turn++
				}
				path = strings.ReplaceAll(path, "TURN", strconv.Itoa(max(turn, 1)))
				if r.name == "import" {
					who.Actor = who.With("Content-Type", client.HistoryType)
				}
				answer := who.Do(r.method, path, r.body)
				got := abi.OK.String()
				if answer.Status/100 != 2 {
					got = answer.Problem(t).Code
				}
				if got != who.want.String() {
					t.Errorf("%s by %s: %d %s", r.name, name, answer.Status, answer.Body)
				}
			}
			if r.other != missing {
				continue
			}
			// Another tenant is not told more than of a key that nobody has.
			path := strings.ReplaceAll(r.path, "TURN", "3")
			theirs := globex.Do(r.method, strings.ReplaceAll(path, "KEY", key), "").Problem(t)
			nobodys := globex.Do(r.method, strings.ReplaceAll(path, "KEY", "AAAAAAAAAAAAAAAAAAAAAA"), "").Problem(t)
			theirs.RequestID, nobodys.RequestID = "", ""
			a, _ := json.Marshal(theirs)
			b, _ := json.Marshal(nobodys)
			if theirs.Code != abi.NotFound.String() || string(a) != string(b) {
				t.Errorf("%s by another tenant: %s, of nobody's key: %s", r.name, a, b)
			}
		}
		same(t, "what is left", acme.Stored("nice-and-mean", "1"), sysNice, "user:hello", "assistant:A3")
	})
}
