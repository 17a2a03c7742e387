package host_test

import (
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox/module"
	"github.com/carrelhost/carrel/host/sandbox/wasmtest"
	"github.com/carrelhost/carrel/internal/testenv"
)

// thinker is a plugin whose default memory id provider asks a model first.
func thinker() []byte {
	const manifest = `{"abi":"carrel/v1","name":"thinker","version":"1",` +
		`"defaultMemoryId":{"export":"think","priority":-1},"capabilities":{"models":["default"]},` +
		`"services":[{"name":"Req","methods":[{"name":"chat","kind":"chat","params":{"type":"object","properties":{"msg":{"type":"string"}},"required":["msg"]}}]}]}`
	m := wasmtest.New()
	call, write := m.Carrel("call"), m.Carrel("output_write")
	m.Memory(1)
	op, ask := string(abi.OpModelGenerate), `{"messages":[{"role":"user","content":"which one?"}]}`
	m.Data(16, []byte(op))
	m.Data(256, []byte(ask))
	m.Method("think").Const(16).Const(int32(len(op))).Const(256).Const(int32(len(ask))).Call(call).Drop().
		Const(16).Const(5).Call(write).Drop().Const(0)
	return module.AppendCustom(m.Bytes(), abi.ManifestSection, []byte(manifest))
}

// half opens a WebSocket by hand and sends the beginning of a text frame of
// the given size, of which some bytes come.
func half(t *testing.T, a *testenv.Actor, addr string, size uint32, bytes int) net.Conn {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(addr, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() }) // the host closes it
	r := a.Request(http.MethodGet, "/api/v1/ws")
	for name, value := range upgrading {
		r.Header.Set(name, value)
	}
	if err := r.Write(conn); err != nil {
		t.Fatal(err)
	}
	head := []byte{0x81, 0xff, 0, 0, 0, 0, byte(size >> 24), byte(size >> 16), byte(size >> 8), byte(size), 0, 0, 0, 0}
	if _, err := conn.Write(append(head, make([]byte, bytes)...)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// said reads what a host sends until it closes the connection.
func said(t *testing.T, conn net.Conn) string {
	t.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	buf := make([]byte, 4096)
	for {
		n, err := conn.Read(buf)
		all.Write(buf[:n])
		if ne, ok := err.(net.Error); ok && ne.Timeout() { //nolint:errorlint // as it comes from the connection
			t.Fatalf("the connection stays open; the host sent %q", all.String())
		}
		if err != nil {
			return all.String()
		}
	}
}

func TestAFrameHasToArriveWholeInTime(t *testing.T) {
	cfg := testenv.Config()
	cfg.Limits.BodyTimeout, cfg.Limits.WriteTimeout = 50*time.Millisecond, 100*time.Millisecond
	env := testenv.New(t, cfg)
	acme := env.Tenant("acme")
	for name, sent := range map[string]int{"of which some came": 100, "of which much came": 100_000} {
		t.Run(name, func(t *testing.T) {
			if got := said(t, half(t, acme, env.Addr(), 500_000, sent)); !strings.Contains(got, "\x11\x38") || !strings.Contains(got, "limits.bodyTimeout") {
				t.Errorf("the host sends %q", got)
			}
		})
	}
}

func TestFramesTakeRoomOfTheBodies(t *testing.T) {
	cfg := testenv.Config()
	cfg.Limits.ModuleBytes, cfg.Limits.ImportBytes, cfg.Limits.BodyBytes = 64<<10, 64<<10, 64<<10
	cfg.Limits.BodyTimeout, cfg.Limits.WriteTimeout = 200*time.Millisecond, 100*time.Millisecond
	env := testenv.New(t, cfg)
	acme := env.Tenant("acme")
	acme.Install(lives)
	if got := said(t, half(t, acme, env.Addr(), 500_000, 70_000)); !strings.Contains(got, "\x11\x4d") || !strings.Contains(got, "limits.bodyBytes") {
		t.Errorf("the host sends %q", got)
	}
	// What is handled gives its room back, also if it is refused.
	w := plug(t, acme, &websocket.DialOptions{})
	msg := strings.Repeat("x", 40<<10)
	for range 3 {
		w.send(`{"type":"invoke","id":"1","method":"` + passing + `","args":{"msg":"` + msg + `"}}`)
		for f := w.receive(); f["type"] != "response.completed"; f = w.receive() {
			if f["type"] == "error" {
				t.Fatalf("got %v", f)
			}
		}
		w.send(`{"type":"invoke","id":"1","method":"none","args":{"msg":"` + msg + `"}}`)
		if f := w.receive(); f["type"] != "error" {
			t.Errorf("got %v", f)
		}
	}
}
