package host_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/client"
	"github.com/carrelhost/carrel/host"
	"github.com/carrelhost/carrel/internal/testenv"
)

// connect opens a connection to a host that the test's end closes.
func connect(t *testing.T, env *testenv.Env) net.Conn {
	t.Helper()
	at, err := url.Parse(env.Addr())
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", at.Host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// A server waits for a body before it answers, also for one that no handler
// reads: it must not wait for ever.
func TestABodyThatNeverComesHoldsNothingForEver(t *testing.T) {
	cfg := testenv.Config()
	cfg.Limits.BodyTimeout = 200 * time.Millisecond
	env := testenv.New(t, cfg)
	for name, request := range map[string]string{
		"without a key":              "POST /api/v1/plugins HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n",
		"where no body belongs":      "GET /livez HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n",
		"chunked, without a chunk":   "POST /api/v1/sessions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n",
		"at an address that is none": "POST /nowhere HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			conn := connect(t, env)
			if _, err := io.WriteString(conn, request); err != nil {
				t.Fatal(err)
			}
			if err := conn.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadAll(conn); err != nil { // an answer or none: the connection ends
				t.Errorf("the connection stays: %v", err)
			}
		})
	}
}

func TestAClientThatSendsAllOfABodyBeforeItReadsSeesWhyItIsTooLarge(t *testing.T) {
	env := testenv.New(t, testenv.Config())
	acme := env.Tenant("acme")
	conn := connect(t, env)
	const size = 10 << 20
	head := fmt.Sprintf("POST /api/v1/sessions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n"+
		"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n", acme.Key(), size)
	if _, err := io.WriteString(conn, head+strings.Repeat(" ", size)); err != nil {
		t.Fatalf("the host did not take the body: %v", err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // a body that nobody reads
	if resp.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("the status is %s", resp.Status)
	}
}

func TestPartsOfAPathMayBeEncodedMoreThanTheyMust(t *testing.T) {
	env := testenv.New(t, testenv.Config())
	acme := env.Tenant("acme")
	acme.Install("---\nname: app\nservices: [{name: com.acme.Chat}]\n---\nYou are nice")
	for path, want := range map[string]int{
		"/api/v1/plugins/app%401/services/com.acme.Chat/chat":   http.StatusOK,
		"/api/v1/plugins/app@1/services/com%2Eacme%2EChat/chat": http.StatusOK,
		"/api/v1/plugins/%61pp/versions/%31":                    http.StatusOK,
		"/api/v1/plugins/app%2540%31":                           http.StatusBadRequest, // decoded once
		"/api/v1/plugins/app%2Fversions":                        http.StatusBadRequest,
	} {
		if got := acme.Do(http.MethodGet, path, "").Status; got != want {
			t.Errorf("GET %s: status %d, want %d", path, got, want)
		}
	}
}

func TestProbesMayAskWithHEAD(t *testing.T) {
	env := testenv.New(t, testenv.Config())
	for _, path := range []string{"/livez", "/readyz"} {
		if got := env.Anyone("").Do(http.MethodHead, path, "").Status; got != http.StatusOK {
			t.Errorf("HEAD %s: status %d", path, got)
		}
	}
}

func TestAHeaderThatIsSentTwiceIsNotReadOnce(t *testing.T) {
	env := testenv.New(t, testenv.Config())
	acme := env.Tenant("acme")
	for name, headers := range map[string]http.Header{
		"encodings": {"Content-Type": {"application/json"}, "Content-Encoding": {"identity", "gzip"}},
		"types":     {"Content-Type": {"application/json", "text/plain"}},
	} {
		r := acme.Request(http.MethodPost, "/api/v1/sessions")
		r.Body = io.NopCloser(strings.NewReader("{}"))
		for name, values := range headers {
			r.Header[name] = values
		}
		if p := acme.Send(r).Problem(t); p.Code != abi.UnsupportedMediaType.String() {
			t.Errorf("two %s: %s", name, p.Code)
		}
	}
}

func TestOneSecretOpensOnePlane(t *testing.T) {
	start := func(cfg host.Config) error {
		h, err := host.New(context.Background(), cfg, client.HostVersion{}, slog.New(slog.DiscardHandler))
		if err == nil {
			err = h.Close()
		}
		return err
	}
	cfg := testenv.Config()
	cfg.Data = t.TempDir()
	cfg.OwnerKey = cfg.AdminKey
	if err := start(cfg); err == nil || !strings.Contains(err.Error(), "CARREL_OWNER_KEY") {
		t.Errorf("one key for both: %v", err)
	}
	cfg.OwnerKey = "the-owner-key-of-this-host-0123456789"
	if err := start(cfg); err != nil {
		t.Fatal(err)
	}
	cfg.AdminKey, cfg.OwnerKey = cfg.OwnerKey, ""
	if err := start(cfg); err == nil || !strings.Contains(err.Error(), "API key") {
		t.Errorf("an API key as the administrator's: %v", err)
	}
}

func TestAHangingClientDoesNotKeepApplicationsFromClosing(t *testing.T) {
	cfg := testenv.Config()
	cfg.Memory.CloseApplicationOnShutdown = true
	cfg.Limits.DrainTimeout, cfg.Limits.CommitTimeout = time.Second, 100*time.Millisecond
	cfg.Limits.BodyTimeout = time.Minute
	env := testenv.New(t, cfg)
	acme := env.Tenant("acme")
	acme.Install("---\nname: app\nservices: [{name: com.acme.Chat, scope: application, methods: [{name: chat, memoryId: id}]}]\n---\nYou are nice")
	acme.Chat("app/com.acme.Chat.chat", "id", "1", "msg", "hello")
	conn := connect(t, env)
	if _, err := io.WriteString(conn, "POST /nowhere HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	env.Stop() // fails the test if it reports an error
	env.Restart()
	if left := acme.MemoryIDs("app"); len(left) != 0 {
		t.Errorf("histories %q outlived the host", left)
	}
}
