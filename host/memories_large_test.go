package host_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/carrelhost/carrel/client"
	"github.com/carrelhost/carrel/host"
	"github.com/carrelhost/carrel/internal/testenv"
)

// largeTurns is an export of turns whose messages have so many bytes each.
func largeTurns(turns, size int) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, `{"format":"carrel.history/v1","plugin":"nice-and-mean","memoryId":"large","kind":"explicit","createdAt":"2026-01-01T00:00:00Z","messages":%d}`+"\n", 2*turns)
	for i := range 2 * turns {
		role := [...]string{"user", "assistant"}[i%2]
		fmt.Fprintf(&b, `{"seq":%d,"turn":%d,"role":%q,"content":"%s"}`+"\n", i+1, i/2+1, role, strings.Repeat("x", size))
	}
	fmt.Fprintf(&b, `{"end":true,"messages":%d}`+"\n", 2*turns)
	return []byte(b.String())
}

func TestAPageOfLargeMessagesEndsEarly(t *testing.T) {
	testenv.EachStore(t, func(t *testing.T, cfg host.Config) {
		env := testenv.New(t, cfg)
		acme := env.Tenant("acme")
		acme.Install(testenv.Example(t, "nice-and-mean"))
		m, err := imported(t, acme, largeTurns(4, 300<<10), client.ImportOptions{})
		if err != nil {
			t.Fatal(err)
		}
		one, err := imported(t, acme, largeTurns(1, 3<<20), client.ImportOptions{MemoryID: "one"})
		if err != nil {
			t.Fatal(err)
		}
		for name, c := range map[string]struct {
			key   string
			limit int
			pages []string
		}{
			"as many as fit into its bytes": {m.Key, 1000, []string{"3", "3", "2"}},
			"as many as are asked for":      {m.Key, 2, []string{"2", "2", "2", "2"}},
			"one, however large":            {one.Key, 1000, []string{"1", "1"}},
		} {
			var got []string
			var all []client.Message
			for o := (client.ListOptions{Limit: c.limit}); ; {
				p, err := acme.Client().Messages(t.Context(), c.key, o)
				if err != nil {
					t.Fatal(err)
				}
				got, all = append(got, strconv.Itoa(len(p.Data))), append(all, p.Data...)
				if o.After = p.Next; p.Next == "" {
					break
				}
			}
			same(t, name, got, c.pages...)
			for i, m := range all {
				if m.Seq != int64(i+1) {
					t.Errorf("%s: message %d has seq %d", name, i, m.Seq)
				}
			}
		}
	})
}

// unread asks for something and reads no more than the first line of the
// answer.
func unread(t *testing.T, a *testenv.Actor, addr, path string) net.Conn {
	t.Helper()
	var d net.Dialer
	conn, err := d.DialContext(t.Context(), "tcp", strings.TrimPrefix(addr, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n\r\n", path, a.Key())
	line, err := bufio.NewReaderSize(conn, 16).ReadString('\n')
	if err != nil || !strings.Contains(line, " 200 ") {
		t.Fatalf("the answer to %s begins with %q, %v", path, line, err)
	}
	return conn
}

func TestAnswersThatNobodyReadsAreBounded(t *testing.T) {
	cfg := testenv.Config()
	cfg.Limits.UnsentBytes = 64 << 10
	env := testenv.New(t, cfg)
	acme, globex := env.Tenant("acme"), env.Tenant("globex")
	keys := map[*testenv.Actor]string{}
	for _, a := range []*testenv.Actor{acme, globex} {
		a.Install(testenv.Example(t, "nice-and-mean"))
		m, err := imported(t, a, largeTurns(8, 1<<20), client.ImportOptions{}) // more than sockets hold
		if err != nil {
			t.Fatal(err)
		}
		keys[a] = "/api/v1/memories/" + m.Key
	}
	for name, path := range map[string]string{
		"an export": "/export",
		"a page":    "/messages?limit=1000",
		"a window":  "/messages?view=window&method=com.acme.MyChat.chat",
	} {
		conn := unread(t, acme, env.Addr(), keys[acme]+"/export")
		full := refusal{status: http.StatusServiceUnavailable, code: "overloaded", limit: "unsentBytes", says: []string{"limits.unsentBytes"}}
		full.check(t, acme.Do(http.MethodGet, keys[acme]+path, ""))
		if ans := globex.Do(http.MethodGet, keys[globex]+path, ""); ans.Status != http.StatusOK {
			t.Errorf("%s of another tenant is %d %.200s", name, ans.Status, ans.Body)
		}
		if err := conn.Close(); err != nil {
			t.Fatal(err)
		}
		if ans := acme.Do(http.MethodGet, keys[acme]+path, ""); ans.Status != http.StatusOK {
			t.Errorf("%s, once there is room, is %d %.200s", name, ans.Status, ans.Body)
		}
	}
}

func TestABodyOfWhomMayNotCallIsNotWaitedFor(t *testing.T) {
	cfg := testenv.Config()
	cfg.Limits.BodyTimeout = time.Hour
	env := testenv.New(t, cfg)
	env.Tenant("acme").Install(talking("one"))
	for _, role := range []string{"viewer", "publisher"} {
		var d net.Dialer
		conn, err := d.DialContext(t.Context(), "tcp", strings.TrimPrefix(env.Addr(), "http://"))
		if err != nil {
			t.Fatal(err)
		}
		key := env.Key("acme", client.NewKey{Role: role}).Key()
		fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n\r\n{", botChat, key)
		r, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(r.Body)
		_ = r.Body.Close() // what was read counts
		if r.StatusCode != http.StatusForbidden || err != nil {
			t.Errorf("the answer to a %s is %d %s, %v", role, r.StatusCode, body, err)
		}
		if err := conn.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAPageIsAskedForInDigits(t *testing.T) {
	env := testenv.New(t, testenv.Config())
	acme := env.Tenant("acme")
	acme.Install(testenv.Example(t, "nice-and-mean"))
	acme.Chat(nice, "id", "1", "msg", "hello")
	for _, path := range []string{
		"/api/v1/plugins", "/api/v1/plugins/nice-and-mean/versions", "/api/v1/plugins/nice-and-mean/log", "/api/v1/sessions",
		"/api/v1/memories", "/api/v1/memories/" + keyOf(t, acme, "nice-and-mean", "1") + "/messages", "/api/v1/evictions",
	} {
		if ans := acme.Do(http.MethodGet, path+"?limit=5", ""); ans.Status != http.StatusOK {
			t.Errorf("%s is %d %s", path, ans.Status, ans.Body)
		}
		for _, query := range []string{"limit=", "limit=%2B5", "limit=05", "limit=5.0", "limit=0", "limit=1001", "limit=x", "after="} {
			refusal{method: http.MethodGet, path: path + "?" + query, status: 400, code: "bad_request"}.refuse(t, acme)
		}
	}
	const plus1, minus1, zero1, none = "KzE", "LTE", "MDE", "eA" // +1, -1, 01, x
	for _, path := range []string{
		"/api/v1/plugins/nice-and-mean/versions", "/api/v1/memories", "/api/v1/memories/" + keyOf(t, acme, "nice-and-mean", "1") + "/messages", "/api/v1/evictions",
	} {
		for _, cursor := range []string{plus1, minus1, zero1, none} {
			refusal{method: http.MethodGet, path: path + "?after=" + cursor, status: 400, code: "bad_request"}.refuse(t, acme)
		}
	}
	for _, line := range []string{"", "%2B1", "-1", "01"} {
		refusal{method: http.MethodGet, path: "/api/v1/plugins/nice-and-mean/log?after=" + line, status: 400, code: "bad_request"}.refuse(t, acme)
		refusal{method: http.MethodGet, path: "/api/v1/invocations/inv_1/events?after=" + line, status: 400, code: "bad_request"}.refuse(t, acme)
	}
}
