package host_test

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/client"
	"github.com/carrelhost/carrel/internal/testenv"
)

// TestABodyThatNeverComesDoesNotHoldUpTheEndOfAHost has clients that send half
// of what they announced and stay.
func TestABodyThatNeverComesDoesNotHoldUpTheEndOfAHost(t *testing.T) {
	cfg := testenv.Config()
	cfg.Limits.DrainTimeout = 200 * time.Millisecond
	cfg.Limits.BodyTimeout = time.Hour
	// One body has all the room, so that others wait for it.
	cfg.Limits.ModuleBytes, cfg.Limits.ImportBytes, cfg.Limits.BodyBytes = 1<<20, 1<<20, 1<<20
	env := testenv.New(t, cfg)
	acme, globex := env.Tenant("acme"), env.Tenant("globex")
	acme.Install(bot("bot", "one"))
	half := func(method, path, kind, key, more string) (read func() (status int, body string, err error)) {
		conn := connect(t, env)
		request := method + " " + path + " HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1048576\r\nContent-Type: " + kind + "\r\n"
		if key != "" {
			request += "Authorization: Bearer " + key + "\r\n"
		}
		if _, err := io.WriteString(conn, request+more+"\r\n"); err != nil {
			t.Fatal(err)
		}
		if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		r := bufio.NewReader(conn)
		return func() (int, string, error) {
			ans, err := http.ReadResponse(r, nil)
			if err != nil {
				return 0, "", err
			}
			body, err := io.ReadAll(ans.Body)
			return ans.StatusCode, string(body), errors.Join(err, ans.Body.Close())
		}
	}
	const begun = "Expect: 100-continue\r\n" // the host says when it reads
	first := half("POST", "/api/v1/plugins", "application/wasm", acme.Key(), begun)
	if status, _, err := first(); err != nil || status != http.StatusContinue {
		t.Fatalf("the body is answered with %d, %v", status, err)
	}
	cases := map[string]func() (int, string, error){
		"an upload":                     first,
		"an upload that waits for room": half("POST", "/api/v1/plugins", "application/wasm", globex.Key(), "Prefer: respond-async\r\n"),
		"a call that waits for room":    half("POST", "/api/v1/plugins/bot/services/com.acme.MyChat/chat", "application/json", globex.Key(), ""),
		"an import that waits for room": half("POST", "/api/v1/memories/import", client.HistoryType, acme.Key(), ""),
		"what an administrator wants":   half("POST", "/admin/v1/tenants", "application/json", testenv.AdminKey, ""),
	}
	unread := half("GET", "/livez", "text/plain", "", "Transfer-Encoding: chunked\r\n")
	// Connections are accepted in their order: this one shows that those are.
	if status, _, err := half("GET", "/version", "text/plain", "", begun)(); err != nil || status != http.StatusOK {
		t.Fatalf("the version is answered with %d, %v", status, err)
	}
	start := time.Now()
	env.Stop()
	if took := time.Since(start); took > cfg.Limits.CommitTimeout/2 {
		t.Errorf("the host ended after %v", took)
	}
	for name, read := range cases {
		if status, body, err := read(); err != nil || status != http.StatusServiceUnavailable || !strings.Contains(body, abi.Draining.String()) {
			t.Errorf("%s is answered with %d %s, %v", name, status, body, err)
		}
	}
	if status, _, err := unread(); err != nil || status != http.StatusOK {
		t.Errorf("a body that nobody reads is answered with %d, %v", status, err)
	}
}
