package host_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/client"
	"github.com/carrelhost/carrel/host"
	"github.com/carrelhost/carrel/internal/testenv"
)

// keyOf returns the key of the one history with a memory id.
func keyOf(t *testing.T, a *testenv.Actor, plugin, id string) string {
	t.Helper()
	for _, m := range a.Memories(plugin) {
		if m.MemoryID == id {
			return m.Key
		}
	}
	t.Fatalf("%s has no history %q", plugin, id)
	return ""
}

// exported reads a whole export.
func exported(t *testing.T, a *testenv.Actor, key string) []byte {
	t.Helper()
	r, err := a.Client().Export(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close() //nolint:errcheck // what was read counts
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func imported(t *testing.T, a *testenv.Actor, history []byte, o client.ImportOptions) (client.Memory, error) {
	t.Helper()
	return a.Client().Import(t.Context(), bytes.NewReader(history), o)
}

func messages(t *testing.T, a *testenv.Actor, key string) []client.Message {
	t.Helper()
	all, err := client.All(1000, func(o client.ListOptions) (client.Page[client.Message], error) {
		return a.Client().Messages(t.Context(), key, o)
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestAnExportImportedIsTheSameHistory(t *testing.T) {
	testenv.EachStore(t, func(t *testing.T, cfg host.Config) {
		env := testenv.New(t, cfg)
		acme := env.Tenant("acme")
		acme.Install(testenv.Example(t, "nice-and-mean"))
		env.Model.Reply("<b>&amp;\u2028\x01\"\n", "A2")
		acme.Chat(nice, "id", "1", "msg", "U1 \u00e9\U0001F4DA")
		acme.Chat(nice, "id", "1", "msg", "U2")
		key := keyOf(t, acme, "nice-and-mean", "1")
		before := messages(t, acme, key)

		file := exported(t, acme, key)
		lines := bytes.Split(bytes.TrimSuffix(file, []byte("\n")), []byte("\n"))
		var head client.HistoryHead
		if err := json.Unmarshal(lines[0], &head); err != nil {
			t.Fatal(err)
		}
		if head.Format != "carrel.history/v1" || head.Plugin != "nice-and-mean" || head.MemoryID != "1" || head.Kind != "explicit" ||
			head.Messages != 5 || head.CreatedAt.IsZero() || len(lines) != 7 || string(lines[6]) != `{"end":true,"messages":5}` {
			t.Fatalf("the export is\n%s", file)
		}
		for i, line := range lines[1:6] {
			var m client.Message
			if err := json.Unmarshal(line, &m); err != nil {
				t.Fatal(err)
			}
			if fmt.Sprint(m) != fmt.Sprint(before[i]) {
				t.Errorf("line %d is %+v, the message %+v", i+2, m, before[i])
			}
		}

		if _, err := imported(t, acme, file, client.ImportOptions{}); testenv.CodeOf(err) != abi.HistoryConflict {
			t.Errorf("imported over what is there: %v", err)
		}
		copied, err := imported(t, acme, file, client.ImportOptions{MemoryID: "copy", Size: int64(len(file))})
		if err != nil {
			t.Fatal(err)
		}
		if copied.Key == key || copied.MemoryID != "copy" || copied.Kind != "explicit" || copied.Messages != 5 || copied.Plugin != "nice-and-mean" {
			t.Errorf("the copy is %+v", copied)
		}
		acme.End("nice-and-mean", "1")
		if _, err := imported(t, acme, file, client.ImportOptions{}); err != nil {
			t.Fatalf("imported again: %v", err)
		}
		for _, id := range []string{"1", "copy"} {
			got := messages(t, acme, keyOf(t, acme, "nice-and-mean", id))
			if len(got) != len(before) {
				t.Fatalf("%s has %d messages", id, len(got))
			}
			for i, m := range got {
				want := before[i]
				if m.Origin != "import" && m.Turn > 0 || m.Role != want.Role || m.Content != want.Content || m.Turn != want.Turn || m.Turn > 0 && !m.At.Equal(want.At) {
					t.Errorf("%s: message %d is %+v, want %+v", id, i, m, want)
				}
			}
			acme.Chat(nice, "id", id, "msg", "U3")
			sent := env.Model.Send(len(env.Model.Calls()))
			same(t, "the send on "+id, sent, sysNice, "user:U1 \u00e9\U0001F4DA", "assistant:<b>&amp;\u2028\x01\"\n", "user:U2", "assistant:A2", "user:U3")
		}
	})
}

func TestAnImportNeedsAnActivePluginAndALastingMemoryID(t *testing.T) {
	testenv.EachStore(t, func(t *testing.T, cfg host.Config) {
		cfg.Limits.ImportBytes, cfg.Limits.MessagesPerHistory = 2000, 5
		env := testenv.New(t, cfg)
		acme := env.Tenant("acme")
		acme.Install(testenv.Example(t, "nice-and-mean"))
		acme.Install(testenv.Example(t, "short-memory"))
		acme.Install(testenv.Example(t, "default-ids"))
		acme.Chat(nice, "id", "1", "msg", "hello")
		file := exported(t, acme, keyOf(t, acme, "nice-and-mean", "1"))
		globex := env.Tenant("globex")

		if _, err := imported(t, globex, file, client.ImportOptions{}); testenv.CodeOf(err) != abi.NotFound {
			t.Errorf("another tenant has no such plugin: %v", err)
		}
		if _, err := imported(t, acme, file, client.ImportOptions{Plugin: "nobody"}); testenv.CodeOf(err) != abi.NotFound {
			t.Errorf("for a plugin that nobody has: %v", err)
		}
		if _, err := imported(t, acme, file, client.ImportOptions{Plugin: "No Name"}); testenv.CodeOf(err) != abi.BadRequest {
			t.Errorf("for a plugin that cannot be: %v", err)
		}
		if _, err := imported(t, acme, file, client.ImportOptions{MemoryID: "a\x00b"}); testenv.CodeOf(err) != abi.InvalidMemoryID {
			t.Errorf("under an id that cannot be: %v", err)
		}
		given, err := imported(t, acme, file, client.ImportOptions{Plugin: "short-memory"})
		if err != nil || given.Plugin != "short-memory" || given.MemoryID != "1" {
			t.Errorf("for another plugin: %+v, %v", given, err)
		}

		ofASession := bytes.Replace(file, []byte(`"kind":"explicit"`), []byte(`"kind":"session"`), 1)
		if _, err := imported(t, acme, ofASession, client.ImportOptions{}); testenv.CodeOf(err) != abi.InvalidParams || !strings.Contains(err.Error(), "line 1") {
			t.Errorf("a session's own id: %v", err)
		}
		if kept, err := imported(t, acme, ofASession, client.ImportOptions{MemoryID: "kept"}); err != nil || kept.Kind != "explicit" {
			t.Errorf("a session's history under an id of its own: %+v, %v", kept, err)
		}

		for _, size := range []int64{0, 2001} { // in chunks, or announced
			big := append(bytes.Clone(file), bytes.Repeat([]byte(" "), 2001-len(file))...)
			if _, err := imported(t, acme, big, client.ImportOptions{MemoryID: "2", Size: size}); testenv.CodeOf(err) != abi.TooLarge {
				t.Errorf("over limits.importBytes, size %d: %v", size, err)
			}
		}
		const path = "/api/v1/memories/import"
		lined := acme.With("Content-Type", client.HistoryType)
		for name, c := range map[string]struct {
			as    *testenv.Actor
			query string
			body  string
			code  abi.Code
			limit string
		}{
			"it is sent as JSON":            {acme, "", string(file), abi.UnsupportedMediaType, ""},
			"the query is unknown":          {lined, "?colour=red", string(file), abi.BadRequest, ""},
			"the memory id is empty":        {lined, "?memoryId=", string(file), abi.InvalidMemoryID, ""},
			"the plugin is empty":           {lined, "?plugin=", string(file), abi.BadRequest, ""},
			"it is larger than imports":     {lined, "", string(file) + strings.Repeat(" ", 2000), abi.TooLarge, "importBytes"},
			"it has more than histories":    {lined, "?memoryId=2", manyTurns(3), abi.LimitExceeded, "messagesPerHistory"},
			"its last line is missing":      {lined, "?memoryId=2", strings.Replace(string(file), `{"end":true,"messages":3}`+"\n", "", 1), abi.InvalidParams, ""},
			"it has two system messages":    {lined, "?memoryId=2", doubled(file), abi.InvalidParams, ""},
			"it lacks the answer of a turn": {lined, "?memoryId=2", halved(file), abi.InvalidParams, ""},
		} {
			answer := c.as.Do(http.MethodPost, path+c.query, c.body)
			if p := answer.Problem(t); p.Code != c.code.String() || p.Limit != c.limit {
				t.Errorf("%s: %+v", name, p)
			}
		}
		gone(t, acme, "nice-and-mean", "2")
	})
}

// manyTurns is an export of turns without a system message.
func manyTurns(turns int, texts ...string) string {
	text := strings.Join(texts, "")
	var b strings.Builder
	b.WriteString(`{"format":"carrel.history/v1","plugin":"nice-and-mean","memoryId":"many","kind":"explicit","createdAt":"2026-01-02T03:04:05Z","messages":0}` + "\n")
	for n := 1; n <= turns; n++ {
		fmt.Fprintf(&b, `{"seq":%d,"turn":%d,"role":"user","content":"U%d%s"}`+"\n", 2*n-1, n, n, text)
		fmt.Fprintf(&b, `{"seq":%d,"turn":%d,"role":"assistant","content":"A%d%s"}`+"\n", 2*n, n, n, text)
	}
	fmt.Fprintf(&b, `{"end":true,"messages":%d}`+"\n", 2*turns)
	return b.String()
}

// doubled is an export with its system message twice, halved one without its
// last answer.
func doubled(file []byte) string {
	lines := strings.SplitAfter(string(file), "\n")
	lines = slices.Insert(lines, 2, lines[1])
	return strings.Replace(strings.Join(lines, ""), `"end":true,"messages":3`, `"end":true,"messages":4`, 1)
}

func halved(file []byte) string {
	lines := strings.SplitAfter(string(file), "\n")
	lines = slices.Delete(lines, 3, 4)
	return strings.Replace(strings.Join(lines, ""), `"end":true,"messages":3`, `"end":true,"messages":2`, 1)
}

func TestAnExportOfAHistoryThatEndsMeanwhileIsCut(t *testing.T) {
	testenv.EachStore(t, func(t *testing.T, cfg host.Config) {
		env := testenv.New(t, cfg)
		acme := env.Tenant("acme")
		acme.Install(testenv.Example(t, "nice-and-mean"))
		// More than the host can be ahead of a client that does not read.
		if _, err := imported(t, acme, []byte(manyTurns(40, strings.Repeat("x", 1<<18))), client.ImportOptions{}); err != nil {
			t.Fatal(err)
		}
		got, err := halfway(t, acme, func(key string) error { return acme.Client().DeleteTurn(t.Context(), key, 40) })
		if err != nil || bytes.Contains(got, []byte(`"U40x`)) || !bytes.HasSuffix(got, []byte(`{"end":true,"messages":78}`+"\n")) {
			t.Errorf("a turn that was deleted before it was read: %v, %d bytes", err, len(got))
		}
		got, err = halfway(t, acme, func(key string) error { _, err := acme.Client().DeleteMemory(t.Context(), key); return err })
		if err == nil || bytes.Contains(got, []byte(`"end":true`)) {
			t.Errorf("the export of a deleted history ends well, after %d bytes", len(got))
		}
		if !errors.Is(err, client.ErrCutHistory) && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("it ends with %v", err)
		}
		if _, err := imported(t, acme, got, client.ImportOptions{}); err == nil {
			t.Error("a cut export can be imported")
		}
	})
}

// halfway exports the history "many", does something once the export has
// begun, and reads the rest.
func halfway(t *testing.T, a *testenv.Actor, then func(key string) error) ([]byte, error) {
	t.Helper()
	key := keyOf(t, a, "nice-and-mean", "many")
	// Systems differ in how far ahead of its reader a connection may be.
	narrow := &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		if err == nil {
			err = conn.(*net.TCPConn).SetReadBuffer(64 << 10)
		}
		return conn, err
	}}
	defer narrow.CloseIdleConnections()
	slow := a.Client()
	slow.HTTP = &http.Client{Transport: narrow}
	r, err := slow.Export(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close() //nolint:errcheck // what was read counts
	first := make([]byte, 10)
	if _, err := io.ReadFull(r, first); err != nil {
		t.Fatal(err)
	}
	if err := then(key); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(r)
	return slices.Concat(first, rest), err
}

func TestAHeadersOwnerIsExportedToTheTenantsOwnerAlone(t *testing.T) {
	testenv.EachStore(t, func(t *testing.T, cfg host.Config) {
		env := testenv.New(t, cfg)
		acme := env.Tenant("acme")
		acme.Install(testenv.Example(t, "own-default-id"))
		backend := env.Key("acme", client.NewKey{Role: "caller", AssertSubject: true})
		ada := backend.As("ada").With(headerKey, "blue")
		ada.Chat(byHeader, "msg", "U1")
		key := keyOf(t, acme, "own-default-id", "blue#com.acme.MyChat.chat")
		file := exported(t, acme, key)
		if !bytes.Contains(file, []byte(`"kind":"plugin","owner":"subject:ada"`)) {
			t.Errorf("the owner exports %s", file)
		}
		for name, other := range map[string]*testenv.Actor{"a viewer": env.Key("acme", client.NewKey{Role: "viewer"}), "ada": backend.As("ada")} {
			if got := exported(t, other, key); bytes.Contains(got, []byte("owner")) || !bytes.Contains(got, []byte(`"content":"U1"`)) {
				t.Errorf("%s exports %s", name, got)
			}
		}
		acme.End("own-default-id", "blue#com.acme.MyChat.chat")
		if made, err := imported(t, acme, file, client.ImportOptions{}); err != nil || made.Key != key || made.Kind != "plugin" {
			t.Fatalf("imported: %+v, %v", made, err)
		}
		ada.Chat(byHeader, "msg", "U2")
		same(t, "send 2", env.Model.Send(2), sysNice, "user:U1", "assistant:A1", "user:U2")
		backend.As("bob").With(headerKey, "blue").Chat(byHeader, "msg", "U3")
		same(t, "another one's send", env.Model.Send(3), sysNice, "user:U3")
	})
}

// Whatever a host stores as one message it takes back as one line: an answer
// that is six times as long in JSON, and a system message far longer than its
// template.
func TestWhateverAHostStoresItCanImport(t *testing.T) {
	testenv.EachStore(t, func(t *testing.T, cfg host.Config) {
		cfg.Limits.AnswerBytes = 40 << 20 // of JSON
		env := testenv.New(t, cfg)
		acme := env.Tenant("acme")
		acme.Install(`---
name: large
version: 1.0.0
services:
  - name: S
    scope: application
    methods:
      - name: chat
        memoryId: id
---
# S
Keep to {{rules}}
`)
		answer, rules := strings.Repeat("\x01", 6<<20), strings.Repeat("r", 100<<10)
		env.Model.Reply(answer)
		acme.Chat("large/S.chat", "id", "1", "msg", "U1", "rules", rules)
		file := exported(t, acme, keyOf(t, acme, "large", "1"))
		if len(file) < 6*len(answer) {
			t.Fatalf("the export has %d bytes", len(file))
		}
		copied, err := imported(t, acme, file, client.ImportOptions{MemoryID: "copy"})
		if err != nil {
			t.Fatal(err)
		}
		got := messages(t, acme, copied.Key)
		if len(got) != 3 || got[0].Content != "Keep to "+rules || got[1].Content != "U1" || got[2].Content != answer {
			t.Errorf("the copy has %d messages", len(got))
		}
	})
}
