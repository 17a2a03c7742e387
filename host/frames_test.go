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
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/carrelhost/carrel/client"
	"github.com/carrelhost/carrel/host"
	"github.com/carrelhost/carrel/internal/testenv"
)

// wire is a WebSocket on which a test sends whatever it likes.
type wire struct {
	t    *testing.T
	conn *websocket.Conn
}

// plug opens a WebSocket and reads its first frame.
func plug(t *testing.T, a *testenv.Actor, o *websocket.DialOptions) wire {
	t.Helper()
	o.HTTPHeader = a.Request(http.MethodGet, "/api/v1/ws").Header
	conn, _, err := websocket.Dial(t.Context(), a.Client().Base+"/api/v1/ws", o) //nolint:bodyclose // the library does
	if err != nil {
		t.Fatal(err)
	}
	conn.SetReadLimit(1 << 20)
	t.Cleanup(func() { _ = conn.CloseNow() })
	w := wire{t, conn}
	if first := w.receive(); first["type"] != "session.created" || !strings.HasPrefix(first["session"].(string), "ses_") {
		t.Fatalf("the first frame is %v", first)
	}
	return w
}

func (w wire) receive() map[string]any {
	w.t.Helper()
	_, b, err := w.conn.Read(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	var f map[string]any
	if err := json.Unmarshal(b, &f); err != nil {
		w.t.Fatal(err)
	}
	return f
}

func (w wire) send(text string) {
	w.t.Helper()
	if err := w.conn.Write(w.t.Context(), websocket.MessageText, []byte(text)); err != nil {
		w.t.Fatal(err)
	}
}

// end reads up to the close and returns its code and reason.
func (w wire) end() (websocket.StatusCode, string) {
	w.t.Helper()
	for {
		if _, _, err := w.conn.Read(w.t.Context()); err != nil {
			c, _ := errors.AsType[websocket.CloseError](err)
			return c.Code, c.Reason
		}
	}
}

func TestAFrameThatCannotBeReadOrAnsweredEndsTheConnection(t *testing.T) {
	cfg := testenv.Config()
	cfg.Limits.FrameBytes = 1000
	env := testenv.New(t, cfg)
	acme := env.Tenant("acme")
	for name, c := range map[string]struct {
		frame string
		kind  websocket.MessageType
		code  websocket.StatusCode
	}{
		"no JSON":                    {"hello", websocket.MessageText, 4400},
		"a member twice":             {`{"type":"ping","type":"ping"}`, websocket.MessageText, 4400},
		"data after the value":       {`{"type":"ping"}{}`, websocket.MessageText, 4400},
		"a member to come":           {`{"type":"ping","at":1}`, websocket.MessageText, 4400},
		"another case":               {`{"Type":"ping"}`, websocket.MessageText, 4400},
		"a type to come":             {`{"type":"subscribe","id":"1"}`, websocket.MessageText, 4400},
		"no type":                    {`{"id":"1"}`, websocket.MessageText, 4400},
		"a binary frame":             {`{"type":"ping"}`, websocket.MessageBinary, 4400},
		"a ping with an id":          {`{"type":"ping","id":"1"}`, websocket.MessageText, 4400},
		"an invoke without an id":    {`{"type":"invoke","method":"x"}`, websocket.MessageText, 4400},
		"an id of 129 bytes":         {`{"type":"invoke","id":"` + strings.Repeat("x", 129) + `"}`, websocket.MessageText, 4400},
		"a cancel without an id":     {`{"type":"cancel"}`, websocket.MessageText, 4400},
		"a cancel with a method":     {`{"type":"cancel","id":"1","method":"x"}`, websocket.MessageText, 4400},
		"an id that is a number":     {`{"type":"invoke","id":1}`, websocket.MessageText, 4400},
		"bytes that are not UTF-8":   {"{\"type\":\"ping\",\"id\":\"\xff\"}", websocket.MessageText, 4400},
		"a frame of 1001 bytes":      {`{"type":"ping"}` + strings.Repeat(" ", 986), websocket.MessageText, 4413},
		"a frame of a million bytes": {strings.Repeat("[", 1_000_000), websocket.MessageText, 4413},
	} {
		t.Run(name, func(t *testing.T) {
			w := plug(t, acme.In(t), &websocket.DialOptions{})
			_ = w.conn.Write(t.Context(), c.kind, []byte(c.frame)) // the host may close it before it has all
			if code, reason := w.end(); code != c.code || reason == "" {
				t.Errorf("it is closed with %d %q", code, reason)
			}
		})
	}
	w := plug(t, acme, &websocket.DialOptions{})
	w.send(`{"type":"ping"}` + strings.Repeat(" ", 985))
	if f := w.receive(); len(f) != 1 || f["type"] != "pong" {
		t.Errorf("a ping of 1000 bytes is answered with %v", f)
	}
	w.send(`{"type":"cancel","id":"of nothing"}`)
	w.send(`{"type":"ping"}`)
	if f := w.receive(); f["type"] != "pong" {
		t.Errorf("a cancel of nothing is answered with %v", f)
	}
}

func TestAnIDMayBeUsedAgainOnceItsInvocationHasEnded(t *testing.T) {
	env := testenv.New(t, testenv.Config())
	acme := env.Tenant("acme")
	acme.Install(lives)
	w := plug(t, acme, &websocket.DialOptions{})
	invoke := `{"type":"invoke","id":"\u00e4\"1","method":"` + passing + `","args":{"msg":"U"}}`
	last := func() map[string]any {
		for {
			if f := w.receive(); f["type"] != "response.created" && f["type"] != "response.output_text.delta" &&
				f["type"] != "response.output_text.done" && f["type"] != "carrel.memory.evicted" {
				return f
			}
		}
	}
	release := env.Model.Hold()
	defer release()
	w.send(invoke)
	if err := env.Model.Arrived(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	w.send(invoke)
	if f := last(); f["type"] != "error" || f["id"] != `ä"1` || f["error"].(map[string]any)["code"] != "bad_request" {
		t.Errorf("the same id again is answered with %v", f)
	}
	release()
	for range 20 {
		if f := last(); f["type"] != "response.completed" || f["id"] != `ä"1` {
			t.Fatalf("the invocation ends with %v", f)
		}
		w.send(invoke)
	}
}

func TestFramesThatComeTooFastEndTheConnection(t *testing.T) {
	cfg := testenv.Config()
	cfg.Limits.FramesPerSecond = 1 // and bursts of 10
	env := testenv.New(t, cfg)
	acme := env.Tenant("acme")
	for name, send := range map[string]func(w wire){
		"frames": func(w wire) {
			for range 12 { // the host may have closed it before the last
				_ = w.conn.Write(t.Context(), websocket.MessageText, []byte(`{"type":"ping"}`))
			}
		},
		"pings of the protocol": func(w wire) {
			for range 12 { // each waits for its pong, which only some get
				go func() { _ = w.conn.Ping(t.Context()) }()
			}
		},
	} {
		w := plug(t, acme, &websocket.DialOptions{})
		send(w)
		if code, _ := w.end(); code != 4429 {
			t.Errorf("%s: it is closed with %d", name, code)
		}
	}
}

func TestOnlySoManyInvocationsRunOnOneSocket(t *testing.T) {
	cfg := testenv.Config()
	cfg.Limits.SocketInvocations = 2
	env := testenv.New(t, cfg)
	acme := env.Tenant("acme")
	acme.Install(lives)
	s := acme.Socket(client.SocketOptions{})
	releases := []func(){env.Model.Hold(), env.Model.Hold()}
	var running []*client.SocketCall
	for i, id := range []string{"1", "2"} {
		running = append(running, s.Begin(named, "id", id, "msg", "U"))
		if err := env.Model.Arrived(t.Context(), i+1); err != nil {
			t.Fatal(err)
		}
	}
	_, err := s.Begin(named, "id", "3", "msg", "U").Result(t.Context())
	if p := new(client.Problem); !errors.As(err, &p) || p.Code != "quota_exceeded" || p.Limit != "socketInvocations" {
		t.Errorf("the third is refused with %v", err)
	}
	for i, c := range running {
		releases[i]()
		if _, err := c.Result(t.Context()); err != nil {
			t.Error(err)
		}
		s.Chat(named, "id", "3", "msg", "U")
	}
}

func TestAClientThatIsNotHeardIsClosedAndOneThatAnswersPingsIsNot(t *testing.T) {
	cfg := testenv.Config()
	cfg.Limits.SocketIdle = time.Second // a busy machine answers within that
	env := testenv.New(t, cfg)
	acme := env.Tenant("acme")
	pings := make(chan struct{})
	alive := plug(t, acme, &websocket.DialOptions{OnPingReceived: func(context.Context, []byte) bool {
		select {
		case pings <- struct{}{}:
		default:
		}
		return true
	}})
	deaf := plug(t, acme, &websocket.DialOptions{OnPingReceived: func(context.Context, []byte) bool { return false }})
	read := make(chan map[string]any, 1)
	go func() {
		defer close(read) // also if the host closes it
		read <- alive.receive()
	}()
	if code, _ := deaf.end(); code != 4408 {
		t.Errorf("who does not answer is closed with %d", code)
	}
	for range 6 { // each comes a third of the idle time after the one before
		select {
		case <-pings:
		case f := <-read:
			t.Fatalf("who answers pings is sent %v", f)
		}
	}
	alive.send(`{"type":"ping"}`)
	if f := <-read; f["type"] != "pong" {
		t.Errorf("who answers is sent %v", f)
	}
}

func TestAClientThatDoesNotReadIsCutOffAndTakesItsCallsAlong(t *testing.T) {
	testenv.EachStore(t, func(t *testing.T, cfg host.Config) {
		cfg.Limits.WriteTimeout = 50 * time.Millisecond
		cfg.Limits.EventBytes, cfg.Limits.EventBytesTotal = 1<<30, 1<<30
		cfg.Limits.AnswerBytes = 64 << 20
		env := testenv.New(t, cfg)
		acme := env.Tenant("acme")
		acme.Install(lives)
		// Far more than the buffers between the two hold.
		flood := func() {
			pieces := make([]string, 400)
			for i := range pieces {
				pieces[i] = strings.Repeat("x", 64<<10)
			}
			env.Model.ReplyPieces(pieces...)
		}
		flood()
		defer env.Model.HoldAfter(399)()
		w := plug(t, acme, &websocket.DialOptions{})
		w.send(`{"type":"invoke","id":"1","method":"` + sitting + `","args":{"msg":"U"}}`)
		if err := env.Model.Gone(t.Context(), 1); err != nil {
			t.Error(err)
		}
		for len(acme.Memories("lives")) > 0 {
		}

		flood()
		defer env.Model.HoldAfter(399)()
		r := acme.With("Accept", "text/event-stream").With("Content-Type", "application/json").Request(http.MethodPost,
			"/api/v1/plugins/lives/services/com.acme.Passing/chat")
		body := `{"msg":"U"}`
		r.Body, r.ContentLength = newBody(body), int64(len(body))
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close() //nolint:errcheck // it is cut
		if err := env.Model.Gone(t.Context(), 2); err != nil {
			t.Error(err)
		}
	})
}

func TestAClientThatLeavesAFrameHalfSentIsClosedAllTheSame(t *testing.T) {
	cfg := testenv.Config()
	cfg.Limits.FrameBytes, cfg.Limits.WriteTimeout = 1000, 100*time.Millisecond
	env := testenv.New(t, cfg)
	acme := env.Tenant("acme")
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(env.Addr(), "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() //nolint:errcheck // the host closes it
	r := acme.Request(http.MethodGet, "/api/v1/ws")
	for name, value := range upgrading {
		r.Header.Set(name, value)
	}
	if err := r.Write(conn); err != nil {
		t.Fatal(err)
	}
	// A text frame of 1 TiB, masked, of which 2,000 bytes come.
	frame := append([]byte{0x81, 0xff, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0}, make([]byte, 2000)...)
	if _, err := conn.Write(frame); err != nil {
		t.Fatal(err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(4 * time.Second)); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(conn)
	if ne := net.Error(nil); errors.As(err, &ne) && ne.Timeout() {
		t.Error("the connection stays open")
	}
	if !bytes.Contains(got, []byte{0x88}) || !bytes.Contains(got, []byte("limits.frameBytes")) {
		t.Errorf("the host sends %q", got)
	}
}

func TestAnAddressOfWebSocketsTakesNothingElse(t *testing.T) {
	env := testenv.New(t, testenv.Config())
	acme := env.Tenant("acme")
	viewer := env.Key("acme", client.NewKey{Role: "viewer"})
	for name, c := range map[string]struct {
		header, value string
		status        int
		code          string
	}{
		"no connection upgrade":      {"Connection", "keep-alive", 400, "bad_request"},
		"another protocol":           {"Upgrade", "h2c", 400, "bad_request"},
		"another version":            {"Sec-WebSocket-Version", "8", 400, "bad_request"},
		"a key of another length":    {"Sec-WebSocket-Key", "AAAA", 400, "bad_request"},
		"a rule for frames":          {"Carrel-On-Conflict", "reject", 400, "bad_request"},
		"a disconnect rule":          {"Carrel-On-Disconnect", "continue", 400, "bad_request"},
		"a timeout":                  {"Carrel-Timeout", "1s", 400, "bad_request"},
		"a session of another form":  {"Carrel-Session", "ses_1", 404, "not_found"},
		"a page from elsewhere":      {"Origin", "https://evil.example", 403, "forbidden"},
		"a page without an origin":   {"Origin", "null", 403, "forbidden"},
		"a page of a file":           {"Origin", "file://", 403, "forbidden"},
		"a page of another port":     {"Origin", "http://127.0.0.1:1", 403, "forbidden"},
		"a page of another scheme":   {"Origin", strings.Replace(env.Addr(), "http:", "https:", 1), 403, "forbidden"},
		"an origin with a path":      {"Origin", env.Addr() + "/page", 403, "forbidden"},
		"an origin with a user":      {"Origin", strings.Replace(env.Addr(), "://", "://u@", 1), 403, "forbidden"},
		"a host of another name":     {"Host", "evil.example", 421, "wrong_host"},
		"a page that rebinds a name": {"Origin", "http://evil.example", 403, "forbidden"},
	} {
		t.Run(name, func(t *testing.T) {
			a := acme.In(t)
			for h, v := range upgrading {
				a = a.With(h, v)
			}
			refusal{status: c.status, code: c.code}.check(t, a.With(c.header, c.value).Do(http.MethodGet, "/api/v1/ws", ""))
		})
	}
	a := viewer
	for h, v := range upgrading {
		a = a.With(h, v)
	}
	refusal{status: 403, code: "forbidden"}.check(t, a.Do(http.MethodGet, "/api/v1/ws", ""))
	refusal{status: 400, code: "bad_request"}.check(t, acme.Do(http.MethodGet, "/api/v1/ws?key="+acme.Key(), ""))
}

func TestAPageOfAnAllowedOriginMayOpenAWebSocket(t *testing.T) {
	cfg := testenv.Config()
	cfg.AllowedOrigins = []string{"https://App.example"}
	env := testenv.New(t, cfg)
	acme := env.Tenant("acme")
	for _, origin := range []string{"https://app.example", env.Addr(), ""} {
		acme.Socket(client.SocketOptions{Origin: origin})
	}
	for _, origin := range []string{"https://app.example:8443", "http://app.example", "https://app.example.evil"} {
		if _, err := acme.Client().Connect(t.Context(), client.SocketOptions{Origin: origin}); !errors.As(err, new(*client.Problem)) {
			t.Errorf("%s: %v", origin, err)
		}
	}
	cfg.AllowedOrigins = []string{"app.example", "https://app.example/", "https://ok.example"}
	if err := cfg.Validate(); err == nil || strings.Count(fmt.Sprint(err), "allowedOrigins") != 2 {
		t.Errorf("two origins that are none: %v", err)
	}
}

func newBody(s string) io.ReadCloser { return io.NopCloser(strings.NewReader(s)) }
